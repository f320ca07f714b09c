"""`tacit reproduce`: the papers' figures again, with a verdict on each finding."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table
from tacit.commands.places import check_folder
from tacit.errors import BadInput
from tacit.studies.registry import STUDIES

if TYPE_CHECKING:
    from tacit.studies.study import Outcome, Study, Track

EVERYTHING = "all"
DEFAULT_OUT = "reproduced"
ABOUT = """\
Run a paper's figure again: on a made-up log, or on published files that you have (--data). Leaves NAME.csv,
NAME.svg, NAME.png and NAME.json in a folder, prints a table, and says of each published finding whether it
holds here, by a rule that was fixed before. What is finished is kept in the folder's cache: the same command
again does only what is missing or has changed, so an interrupted run goes on where it was."""
EXAMPLES = """\
examples:
  tacit reproduce --list
  tacit reproduce semi-sensitive-display
  tacit reproduce semi-sensitive-display --seeds 10 --out figures
  tacit reproduce semi-sensitive-search --data logs      # logs/criteo-search.tsv.gz, as published

what --data DIR holds, as far as a study wants it; it says so if the marks there tell that it was made up:
  semi-sensitive-*  criteo-display, criteo-search (.txt, .csv, .tsv, these with .gz, or .parquet), as published
  label-dp-*        criteo-attribution, likewise
  choice-*          three folders: taobao (tacit data prepare taobao), and fnn and din, models of these names
                    that tacit train made of it
  contexts-*        visits, or checkins_nyc

Scales: toy is seconds and shows that it runs, small is minutes on two cores, full is hours. A finding that
fails is a result, not an error: exit code 0."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="the papers' figures again, and which findings hold",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="studies by name (see --list), or all")
    parser.add_argument("--list", action="store_true", help="list the studies and what they take")
    parser.add_argument("--scale", choices=("toy", "small", "full"), default="small", help="default small")
    parser.add_argument(
        "--out", type=Path, default=Path(DEFAULT_OUT), metavar="DIR", help=f"default {DEFAULT_OUT}"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="files or folders to use instead of made-up data: see below"
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="how many seeds; default by study and scale")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="one thread each; default 2")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit import expect
    from tacit.studies import registry
    from tacit.studies.look import expect_matplotlib
    from tacit.studies.study import Asked, Scale

    if args.list:
        _list([registry.study(name) for name in STUDIES], as_json=args.json)
        return 0
    expect_matplotlib()
    if not args.names:
        raise BadInput(f"expected a study's name or {EVERYTHING}, got none: see tacit reproduce --list")
    if args.data is not None and not args.data.is_dir():
        raise BadInput(f"expected a folder of published files, got {args.data}, which is none")
    check_folder("--out", args.out)
    chosen = [
        registry.study(name) for name in (STUDIES if EVERYTHING in args.names else dict.fromkeys(args.names))
    ]
    scale = Scale(args.scale)
    processes = expect.whole("processes", args.processes, at_least=1)
    records: list[dict[str, Any]] = []
    for each in chosen:
        seeds = each.seeds[scale] if args.seeds is None else expect.whole("seeds", args.seeds, at_least=1)
        with _progress() as track:
            outcome = each.outcome(Asked(args.out, scale, seeds, args.data, processes, track))
        records += [_record(each, finding.as_json(), outcome) for finding in outcome.findings]
        if not args.json:
            _print(each, outcome)
    if args.json:
        print_json(records)
    return 0


def _record(study: Study, finding: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    return {
        **finding,
        "study": study.name,
        "note": outcome.note,
        "files": [str(file) for file in outcome.files],
    }


def _print(study: Study, outcome: Outcome) -> None:
    print_table(f"{study.title} ({study.place})", outcome.columns, outcome.rows, numbers=_numbers(outcome))
    print(outcome.note)
    for finding in outcome.findings:
        print(f"{finding.id} {finding.verdict}: {finding.words}")
        print(f"    seen: {finding.seen}\n    rule: {finding.rule}")
    print(f"files: {', '.join(str(file) for file in outcome.files)}\n")


def _numbers(outcome: Outcome) -> list[str]:
    """The columns that hold figures."""
    return [
        name
        for at, name in enumerate(outcome.columns)
        if all(not row[at] or row[at][0] in "-+.0123456789" for row in outcome.rows)
    ]


def _list(studies: list[Study], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "title": each.title,
                    "paper": each.paper,
                    "place": each.place,
                    "claims": list(each.claims),
                    "minutes": {str(scale): minutes for scale, minutes in each.minutes.items()},
                    "seeds": {str(scale): seeds for scale, seeds in each.seeds.items()},
                }
                for each in studies
            ]
        )
        return
    for paper in dict.fromkeys(each.paper for each in studies):
        print_table(
            paper,
            ("name", "what", "place", "small", "full"),
            [
                (
                    each.name,
                    each.title,
                    each.place,
                    _time(each.minutes.get("small")),  # type: ignore[call-overload]
                    _time(each.minutes.get("full")),  # type: ignore[call-overload]
                )
                for each in studies
                if each.paper == paper
            ],
            numbers=("small", "full"),
        )


def _time(minutes: float | None) -> str:
    """About how long: < 1 min, 4 min, 5 h."""
    if minutes is None:
        return ""
    if minutes < 1:
        return "< 1 min"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


@contextmanager
def _progress() -> Iterator[Track]:
    """One line on stderr that says what is being done; quiet when stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=None)

        def track(label: str, done: int, total: int) -> None:
            progress.update(task, description=label, completed=done, total=total)

        yield track
