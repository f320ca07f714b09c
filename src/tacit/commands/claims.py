"""`tacit claims`: every published finding, and ours, with what the results say of it."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands.output import Subparsers, add_json_flag, print_json
from tacit.errors import BadInput
from tacit_lab.studies import registry
from tacit_lab.studies.registry import OURS, PAPERS, paper_of_claim

if TYPE_CHECKING:
    from tacit_lab.studies.claims import ClaimVerdict

WIDTH = 100
ABOUT = """\
Every finding of the papers in our words, with the published figure, ours, the data, and a verdict: holds,
fails, undecided or not tested. Then what tacit does beyond the papers. Verdicts are computed now, from the
tables in a folder of results, by the rule that is printed with each claim. Rules were fixed before this run;
earlier trials were known. Without --results these are the results that come with tacit."""
EXAMPLES = f"""\
examples:
  tacit claims
  tacit claims --paper hardt
  tacit reproduce all && tacit claims --results reproduced

papers:
{chr(10).join(f"  {paper.name:<6} {paper.short}, {paper.title}" for paper in PAPERS)}
  {OURS:<6} beyond the papers

A claim with several findings (markets, models, studies) fails if one fails, holds if all hold and none of its
studies is missing, and is undecided otherwise. "The rule tests the direction" means that the published figure
itself is not tested. A finding that fails is a result, not an error: exit code 0. Tables and settings that were
edited are refused."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "claims",
        help="every published finding, ours beside it, and whether it holds",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="a folder that tacit reproduce made; default: those recorded",
    )
    names = [paper.name for paper in PAPERS]
    parser.add_argument("--paper", choices=[*names, OURS], metavar="NAME", help="only of one paper: see below")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit_lab.studies.claims import RECORDED, judge_claims, read_result

    if args.results is not None and not args.results.is_dir():
        raise BadInput(f"--results: expected a folder that tacit reproduce made, got {args.results}")
    folder = args.results or RECORDED
    if not any((folder / f"{name}.json").exists() for name in registry.STUDIES):
        raise BadInput(
            f"--results: expected a folder with results of tacit reproduce, got {folder} without any"
        )
    reads = [read_result(registry.load_study(name), folder) for name in registry.STUDIES]
    for stale in (each for each in reads if each.stale):
        print(f"tacit claims: {stale.stale_words}", file=sys.stderr)
    chosen = [each for each in judge_claims(reads) if args.paper in (None, each.paper_name)]
    if args.json:
        print_json([record for each in chosen for record in each.as_json()])
    else:
        print("\n".join(_listing(chosen)))
    return 0


def _listing(chosen: Sequence[ClaimVerdict]) -> Iterator[str]:
    from tacit_lab.studies.claims import tally

    for paper in (*PAPERS, None):
        group = [each for each in chosen if paper_of_claim(each.claim) is paper]
        if group:
            yield from _wrap(paper.cited if paper else "Beyond the papers, and what each is held against")
            yield ""
            for each in group:
                yield from _claim_lines(each)
                yield ""
    published = [each for each in chosen if not each.claim.ours]
    ours = [each for each in chosen if each.claim.ours]
    if published:
        yield f"{len(published)} published: {tally(published)}"
    if ours:
        yield f"{len(ours)} of ours: {tally(ours)}"


def _claim_lines(judged: ClaimVerdict) -> Iterator[str]:
    """Id, verdict and words; then what was published; then each rule with its findings; then the data."""
    claim = judged.claim
    yield from _wrap(f"{claim.id:<4} {judged.verdict:<10}  {claim.words}", deeper=5)
    where = f"against: {claim.place}" if claim.ours else f"published: {claim.published} ({claim.place})"
    yield from _wrap(where, indent=5)
    for rule, found in judged.by_rule:
        yield from _wrap(f"rule: {rule}", indent=5, deeper=2)
        for each in found:
            yield from _wrap(f"{judged.mark(each)}: {each.words}", indent=5, deeper=2)
    for data in dict.fromkeys(f"data: {each.data} [{each.read.study.name}]" for each in judged.heard):
        yield from _wrap(data, indent=5, deeper=2)
    for read in judged.missing:
        yield from _wrap(f"{'more' if judged.heard else 'to test it'}: {read.command}", indent=5, deeper=2)


def _wrap(text: str, *, indent: int = 0, deeper: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + deeper),
        break_long_words=False,
        break_on_hyphens=False,
    )
