"""`tacit reproduce`: the papers' figures again, with a verdict per finding; its tables and progress."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, bars, print_json, print_table
from tacit.errors import BadInput, TacitError
from tacit.files import check_folder
from tacit.progress import Progress, no_progress
from tacit_lab.studies import registry

if TYPE_CHECKING:
    from tacit_lab.studies.study import Study, StudyOutcome, StudyRequest

EVERYTHING = "all"
DEFAULT_OUT = "reproduced"
MOST_SEEDS, MOST_PROCESSES = 1_000, 256
ABOUT = """\
Run a paper's figure again: on a made-up log, or on published files that you have (--data). Leaves NAME.csv,
NAME.svg, NAME.png and NAME.json in a folder, prints a table, and says of each published finding whether it
holds here, by a rule that is said with it. A study is not run again while nothing has changed that it depends
on, and finished work of one that was interrupted is kept in the folder's cache. All of them (all) end with a
book: index.html in the folder."""
EXAMPLES = """\
examples:
  tacit reproduce --list
  tacit reproduce semi-sensitive-display
  tacit reproduce semi-sensitive-display --seeds 10 --out figures
  tacit reproduce semi-sensitive-search --data logs      # logs/criteo-search.tsv.gz, as published
  tacit reproduce all
  tacit reproduce all --data logs --public-key user      # every study that the files there allow
  tacit reproduce --book                                 # only the book again, from what is there

what --data DIR holds, as far as a study wants it; it says so if the marks there tell that it was made up:
  semi-sensitive-*  criteo-display, criteo-search (.txt, .csv, .tsv, these with .gz, or .parquet), as published,
                    or extracts whose names begin so: criteo_search_219_partners.parquet
  label-dp-*        criteo-attribution, likewise; else criteo-search, whose users are sensitive: state by
                    --public-key user that anybody may know which clicks are of one user
  choice-*          three folders: taobao (tacit data prepare taobao), and fnn and din, models of these names
                    that tacit train made of it; choice-learning takes logs of visits
  contexts-*,       visits, or checkins_nyc; and visits_jakarta, whose results go to a folder of their own,
  gather-*          jakarta. Where no visit has coordinates, a location says nothing
  cleanroom-advertisers  criteo_search_219_partners.parquet, or criteo-search as above: half an hour

Scales: toy is seconds and shows that it runs, small is minutes on two cores, full is hours. A finding that
fails is a result, not an error: exit code 0. With all, a study that cannot run does not keep the others from
running: those that could not are listed at the end, exit code 1."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="compute the papers' figures again, and say which findings hold",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="studies by name (see --list), or all")
    parser.add_argument("--list", action="store_true", help="list the studies and what they take")
    parser.add_argument("--book", action="store_true", help="run nothing: write the book of what is there")
    parser.add_argument(
        "--scale",
        choices=("toy", "small", "full"),
        default="small",
        help="how long a run may be: see below (default: small)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(DEFAULT_OUT),
        metavar="DIR",
        help=f"folder to write to (default: {DEFAULT_OUT})",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="files or folders to use instead of made-up data: see below"
    )
    parser.add_argument(
        "--public-key",
        action="append",
        default=[],
        metavar="KEY",
        help="you state that this key of the published files is public (user): see below",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds to run (default: by study and scale)")
    parser.add_argument(
        "--processes",
        type=int,
        default=2,
        metavar="N",
        help="processes at a time, one thread each (default: 2)",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.list:
        print_list([registry.load_study(name) for name in registry.STUDIES], as_json=args.json)
        return 0
    if args.book:
        if args.names:
            raise BadInput(f"expected no study's name with --book, which runs none, got {args.names[0]!r}")
        if not args.out.is_dir():
            raise BadInput(f"--out: expected a folder that tacit reproduce made, got {args.out}")
        place = str(_write_book(args.out, {}))
        if args.json:
            print_json({"book": place})
        else:
            print(place)
        return 0
    if not args.names:
        raise BadInput(f"expected a study's name or {EVERYTHING}, got none: see tacit reproduce --list")
    return _all(args) if EVERYTHING in args.names else _some(args)


def _some(args: argparse.Namespace) -> int:
    """Studies by name, each with its table."""
    records: list[dict[str, Any]] = []
    requests = _requests(args, list(dict.fromkeys(args.names)))
    if args.scale == "full":
        _say_time(args, [study for study, _ in requests])
    for study, asked in requests:
        for request in study.requests(asked(no_progress)):
            with _progress("", study) as progress:
                outcome = study.outcome(replace(request, progress=progress))
            records += _records(study, outcome)
            if not args.json:
                print_outcome(study, outcome)
    if args.json:
        print_json(records)
    return 0


def _all(args: argparse.Namespace) -> int:
    """Every study, one line for each, whatever becomes of the others; and the book. With a folder of published
    files, every study that these allow."""
    began = time.monotonic()
    records: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    requests = _requests(args, list(registry.STUDIES))
    barred = {study.name: why for study, asked in requests if (why := asked.lacking(study))}
    requests = [(study, asked) for study, asked in requests if study.name not in barred]
    _say_time(args, [study for study, _ in requests])
    for number, (study, asked) in enumerate(requests, start=1):
        at, started = f"study {number} of {len(requests)}", time.monotonic()
        try:
            for request in study.requests(asked(no_progress)):
                with _progress(f"{at}, {show_duration(started - began)} so far: ", study) as progress:
                    outcome = study.outcome(replace(request, progress=progress))
                records += _records(study, outcome)
                if not args.json:
                    where = f"{at}, {request.city.title()}" if request.city else at
                    print_brief(study, outcome, where, time.monotonic() - started, time.monotonic() - began)
        except Exception as problem:  # a refusal or a bug: either way the others go on
            if isinstance(problem, BadInput) and args.data is not None and not study.inputs.reads:
                barred[study.name] = str(problem)
                continue
            failed[study.name] = f"{type(problem).__name__}: {problem}"
            if not isinstance(problem, TacitError):
                traceback.print_exc()
            print(f"tacit reproduce: {study.name} failed: {problem}", file=sys.stderr, flush=True)
    for name, why in barred.items():
        print(f"tacit reproduce: {name} is not for these files: {why}", file=sys.stderr, flush=True)
    for name, why in failed.items():
        print(f"tacit reproduce: {name} has no new results: {why}", file=sys.stderr, flush=True)
    place = _write_book(args.out, failed)
    for city in sorted({city for study, _ in requests for city in study.inputs.cities if city}):
        if (args.out / city).is_dir():
            _write_book(args.out / city, failed)
    if args.json:
        print_json(records)
    else:
        print(f"\nthe book: {place}\nthe claims: tacit claims --results {args.out}")
    return 1 if failed else 0


class StudyRequestTemplate:
    """What will be asked of a study, all but the progress that it reports to."""

    def __init__(self, args: argparse.Namespace, study: Study) -> None:
        from tacit_lab.studies.study import StudyScale

        self.scale = StudyScale(args.scale)
        own = study.seeds[self.scale]
        self.seeds = own if args.seeds is None else _check_count("seeds", args.seeds, MOST_SEEDS)
        self.processes = _check_count("processes", args.processes, MOST_PROCESSES)
        self.out, self.data, self.public_keys = args.out, args.data, tuple(dict.fromkeys(args.public_key))

    def lacking(self, study: Study) -> str:
        """Why the folder of published files, if there is one, does not allow a study."""
        return "" if self.data is None else study.inputs.lacking(self.data, self.public_keys)

    def __call__(self, progress: Progress) -> StudyRequest:
        from tacit_lab.studies.study import StudyRequest

        return StudyRequest(
            self.out,
            self.scale,
            self.seeds,
            self.data,
            self.public_keys,
            processes=self.processes,
            progress=progress,
        )


def _say_time(args: argparse.Namespace, studies: Sequence[Study]) -> None:
    """Before anything is done: how long it takes, and that it can be stopped."""
    from tacit_lab.studies.study import StudyScale

    minutes = sum(study.minutes_of(StudyScale(args.scale), args.data) for study in studies)
    files = "" if args.data is None else f" that {args.data} may allow"
    several = f"{len(studies)} studies" if len(studies) != 1 else studies[0].name
    print(
        f"tacit reproduce: {several}{files}, about {_time(minutes)} at {args.scale} scale on two cores, less "
        f"what {args.out} has of it already; what is done stays done, if it is stopped",
        file=sys.stderr,
        flush=True,
    )


def _check_count(name: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise BadInput(f"expected {name} to be a whole number from 1 to {most:,}, got {value}")
    return value


def _requests(args: argparse.Namespace, names: list[str]) -> list[tuple[Study, StudyRequestTemplate]]:
    """All of it is checked before anything runs."""
    from tacit_lab.studies.figure_style import expect_matplotlib

    expect_matplotlib()
    if args.data is not None and not args.data.is_dir():
        raise BadInput(f"expected a folder of published files, got {args.data}, which is none")
    check_folder("--out", args.out)
    studies = [registry.load_study(name) for name in names]
    return [(study, StudyRequestTemplate(args, study)) for study in studies]


def _write_book(out: Path, failed: Mapping[str, str]) -> Path:
    """The book of all that lies in the folder; `failed` says why studies could not be made again."""
    from tacit_lab.studies.book import find_flaws, write_book
    from tacit_lab.studies.claims import read_result_or_stale

    reads = [
        read_result_or_stale(registry.load_study(name), out, failed.get(name, "")) for name in registry.STUDIES
    ]
    for name, why in find_flaws(out, reads):
        print(f"tacit reproduce: the book cannot show all of {name}: {why}", file=sys.stderr)
    return write_book(out, reads)


def _records(study: Study, outcome: StudyOutcome) -> list[dict[str, Any]]:
    files = [str(file) for file in outcome.files]
    return [
        {
            **finding.as_json(),
            "verdict": finding.verdict,
            "study": study.name,
            "note": outcome.note,
            "files": files,
        }
        for finding in outcome.findings
    ]


@contextmanager
def _progress(before: str, study: Study) -> Iterator[Progress]:
    """One line on stderr that says what is being done; quiet when stderr is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with bars(*columns) as shown:
        task = shown.add_task(before + study.name, total=None)

        def progress(label: str, done: int, total: int) -> None:
            shown.update(task, description=before + label, completed=done, total=total)

        yield progress


SCALES = ("small", "full")


def print_outcome(study: Study, outcome: StudyOutcome) -> None:
    """Its table, its verdicts with their rules, its files."""
    from tacit_lab.studies.results import numeric_columns

    numbers = numeric_columns(outcome.columns, outcome.rows)
    print_table(f"{study.title} ({study.place})", outcome.columns, outcome.rows, numbers=numbers)
    print(outcome.note)
    for finding in outcome.findings:
        where = f" ({finding.where})" if finding.where else ""
        print(f"{finding.claim.id} {finding.verdict}: {finding.claim.words}{where}")
        print(f"    seen: {finding.seen}\n    rule: {finding.rule}")
    if outcome.kept:
        print("kept from before: nothing has changed")
    print(f"files: {', '.join(str(file) for file in outcome.files)}\n")


def print_brief(study: Study, outcome: StudyOutcome, at: str, seconds: float, in_all: float) -> None:
    """One line, when it is finished: its verdicts and how long it took."""
    took = "kept, nothing changed" if outcome.kept else show_duration(seconds)
    print(f"{at}: {study.name}, {took} ({show_duration(in_all)} so far){_verdicts(study, outcome)}", flush=True)


def _verdicts(study: Study, outcome: StudyOutcome) -> str:
    from tacit_lab.studies.claims import StudyResult, judge_claims

    found = [each for each in judge_claims([StudyResult(study, None, outcome.findings)]) if each.heard]
    short = [each.kind if len(each.heard) == 1 else each.verdict for each in found]  # without why
    return "".join(f"; {each.claim.id} {verdict}" for each, verdict in zip(found, short, strict=True))


def print_list(studies: Sequence[Study], *, as_json: bool) -> None:
    """By paper, with the claims that each speaks to and how long it takes."""
    if as_json:
        print_json([_record(each) for each in studies])
        return
    for heading in dict.fromkeys(map(_heading, studies)):
        print_table(
            heading,
            ("name", "what", "claims", "place", *SCALES),
            [
                (
                    each.name,
                    each.title,
                    " ".join(claim.id for claim in each.claims),
                    each.place,
                    *(_time(each.minutes.get(scale)) for scale in SCALES),  # type: ignore[call-overload]
                )
                for each in studies
                if _heading(each) == heading
            ],
            numbers=SCALES,
        )
    totals = [sum(each.minutes.get(scale, 0.0) for each in studies) for scale in SCALES]  # type: ignore[call-overload]
    about = " and ".join(f"{_time(total)} at {scale}" for scale, total in zip(SCALES, totals, strict=True))
    print(f"{len(studies)} studies: about {about} scale, on two cores")


def _heading(study: Study) -> str:
    from tacit_lab.studies.registry import paper_beside, paper_of_study

    paper = paper_beside(study)
    if paper is None:
        return study.paper
    return paper.cited if paper_of_study(study) else f"Beyond {paper.short}"


def _record(study: Study) -> dict[str, object]:
    return {
        "name": study.name,
        "title": study.title,
        "paper": study.paper,
        "place": study.place,
        "claims": [claim.id for claim in study.claims],
        "minutes": {str(scale): minutes for scale, minutes in study.minutes.items()},
        "seeds": {str(scale): seeds for scale, seeds in study.seeds.items()},
    }


def show_duration(seconds: float) -> str:
    """12 s, 4.5 min, 1.2 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _time(minutes: float | None) -> str:
    from tacit_lab.studies.claims import time_words

    return "" if minutes is None else time_words(minutes)
