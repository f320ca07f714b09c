"""`tacit claims`: every published finding, and ours, with what the results say of it."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands.output import Subparsers, add_json_flag, print_json
from tacit.errors import BadInput
from tacit.expect import nearest
from tacit_lab.studies import registry
from tacit_lab.studies.registry import OURS, PAPERS, paper_of_claim

if TYPE_CHECKING:
    from tacit_lab.studies.claims import ClaimColumns

WIDTH = 100
WORDS = 66  # of a claim's letters in its one line
AGREEMENTS = {
    "agree": "they agree",
    "differ": "they differ, and the real one counts",
    "open": "one of them is undecided",
}
ABOUT = """\
Every finding of the papers in our words, a line for each, with what became of it on made-up data and on real
data: holds, fails, undecided or not tested. Then what tacit does beyond the papers. By id, or with --details:
the published figure, ours, the data, the rule, and what would decide it. Verdicts are computed now, from the
tables in a folder of results, by the rule that is printed with each claim. Rules were fixed before this run;
earlier trials were known. Without --results these are the results that come with tacit."""
EXAMPLES = f"""\
examples:
  tacit claims
  tacit claims S1 L4                   # with figures, data and rules
  tacit claims --paper hardt --details
  tacit reproduce all && tacit claims --results reproduced

papers:
{chr(10).join(f"  {paper.name:<6} {paper.short}, {paper.title}" for paper in PAPERS)}
  {OURS:<6} beyond the papers

A claim with several findings (markets, models, studies) fails if one fails, holds if all hold and none of its
studies is missing, and is undecided otherwise. Of real data only the studies that were run count. Both columns
agree, differ, or leave it open, where one is undecided; where they differ, the real one counts. "The rule tests
the direction" means that the published figure itself is not tested. A finding that fails is a result, not an
error: exit code 0. Tables and settings that were edited are refused."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "claims",
        help="every published finding, ours beside it, and whether it holds",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims by their ids, in detail: S1")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="a folder that tacit reproduce made; default: those recorded",
    )
    names = [paper.name for paper in PAPERS]
    parser.add_argument("--paper", choices=[*names, OURS], metavar="NAME", help="only of one paper: see below")
    parser.add_argument("--details", action="store_true", help="figures, data and rules of every claim")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit_lab.studies.claims import RECORDED, judge_columns, read_results

    if args.results is not None and not args.results.is_dir():
        raise BadInput(f"--results: expected a folder that tacit reproduce made, got {args.results}")
    folder = args.results or RECORDED
    reads = read_results([registry.load_study(name) for name in registry.STUDIES], folder)
    if all(each.kept is None for each in reads):
        raise BadInput(
            f"--results: expected a folder with results of tacit reproduce, got {folder} without any"
        )
    for stale in (each for each in reads if each.stale):
        print(f"tacit claims: {stale.stale_words}", file=sys.stderr)
    chosen = _choose(judge_columns(reads), args.ids, args.paper)
    if args.json:
        print_json([record for each in chosen for record in each.as_json()])
    else:
        print("\n".join(_listing(chosen, details=bool(args.details or args.ids))))
    return 0


def _choose(judged: Sequence[ClaimColumns], ids: Sequence[str], paper: str | None) -> list[ClaimColumns]:
    known = [each.claim.id for each in judged]
    for each in ids:
        if each not in known:
            raise BadInput(f"expected a claim's id (tacit claims), got {each!r}{nearest(each, known)}")
    return [each for each in judged if paper in (None, each.paper_name) and (not ids or each.claim.id in ids)]


def _listing(chosen: Sequence[ClaimColumns], *, details: bool) -> Iterator[str]:
    for paper in (*PAPERS, None):
        group = [each for each in chosen if paper_of_claim(each.claim) is paper]
        if group:
            yield from _wrap(paper.cited if paper else "Beyond the papers, and what each is held against")
            if not details:
                yield f"{'':<{5 + WORDS}} {'made-up':<9}  real"
                yield from map(_claim_line, group)
            yield ""
            for each in group if details else ():
                yield from _claim_lines(each)
                yield ""
    for ours in (False, True):
        group = [each for each in chosen if each.claim.ours is ours]
        if group:
            yield from _tallies(group, "of ours" if ours else "published")


def _tallies(group: Sequence[ClaimColumns], whose: str) -> Iterator[str]:
    """How many verdicts of each kind: of made-up data, then of real data, with how many of both agree."""
    from tacit_lab.studies.claims import tally

    yield f"{len(group)} {whose}: {tally([each.made_up for each in group])}"
    real = [each for each in group if each.real.heard]
    if real:
        counted = Counter(each.agreement for each in real)
        yield (
            f"   {len(real)} on real data: {tally([each.real for each in real])}; "
            f"{counted['agree']} agree with made-up data, {counted['differ']} differ"
        )


def _claim_line(judged: ClaimColumns) -> str:
    """Id, the beginning of its words, and both verdicts."""
    words = textwrap.shorten(judged.claim.words, WORDS, placeholder=" ...", break_on_hyphens=False)
    real = judged.real.kind if judged.real.heard else "-"
    line = f"{judged.claim.id:<4} {words:<{WORDS}} {judged.made_up.kind:<10} {real:<9}"
    return f"{line}  differ" if judged.agreement == "differ" else line.rstrip()


def _claim_lines(judged: ClaimColumns) -> Iterator[str]:
    """Id, verdict and words; then what was published; then each rule with its findings; then the data."""
    claim, heard = judged.claim, [*judged.made_up.heard, *judged.real.heard]
    yield from _wrap(f"{claim.id:<4} {judged.verdict:<10}  {claim.words}", deeper=5)
    where = f"against: {claim.place}" if claim.ours else f"published: {claim.published} ({claim.place})"
    yield from _wrap(where, indent=5)
    for rule in dict.fromkeys(each.finding.rule for each in heard):
        yield from _wrap(f"rule: {rule}", indent=5, deeper=2)
        for column, mark in ((judged.made_up, ""), (judged.real, "real data, ")):
            for each in column.heard:
                if each.finding.rule == rule:
                    yield from _wrap(f"{mark}{column.mark(each)}: {each.words}", indent=5, deeper=2)
    if judged.agreement:
        yield from _wrap(f"made-up and real data: {AGREEMENTS[judged.agreement]}", indent=5, deeper=2)
    for decider in dict.fromkeys(f"would decide it: {each.decider}" for each in heard if each.decider):
        yield from _wrap(decider, indent=5, deeper=2)
    for data in dict.fromkeys(f"data: {each.data} [{each.read.study.name}]" for each in heard):
        yield from _wrap(data, indent=5, deeper=2)
    for read in judged.made_up.missing:
        yield from _wrap(f"{'more' if heard else 'to test it'}: {read.command}", indent=5, deeper=2)


def _wrap(text: str, *, indent: int = 0, deeper: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + deeper),
        break_long_words=False,
        break_on_hyphens=False,
    )
