"""The book: every study of a folder in one HTML file, a chapter a paper, and what became of its claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tacit import __version__
from tacit.errors import BadInput
from tacit.pages import Block, Board, Chip, Code, Facts, Link, Prose, Section, Table, Verdict, page
from tacit.studies.book_study import drawing, ruling_id, study_section
from tacit.studies.claims import FAILS, HOLDS, NOT_TESTED, UNDECIDED, Judged, Read, judged
from tacit.studies.papers import OURS, PAPERS, Paper, paper_of_claim, paper_of_study

NAME = "index.html"
BEYOND = "Beyond the papers"
LEAD = """\
Five papers describe how advertising can learn without learning about people. These are their tables and \
figures, measured again, and what became of each finding.

The rule of every verdict was fixed before this run; earlier trials were known. Every verdict is computed from \
the table beside it: a finding fails where the figures decide that it does, and is undecided where they could \
go either way. A finding that fails here is a result, too."""


def write_book(folder: Path, reads: Sequence[Read]) -> Path:
    """Write index.html from what lies in a folder."""
    place = folder / NAME
    place.write_text(book(folder, reads), encoding="utf-8")
    return place


def flaws(folder: Path, reads: Sequence[Read]) -> Iterator[tuple[str, str]]:
    """The studies whose results or figure the book cannot show, by name, and why."""
    for read in reads:
        if read.stale:
            yield read.study.name, read.stale
        elif read.kept is not None:
            try:
                drawing(read.kept, folder)
            except (BadInput, OSError) as problem:
                yield read.study.name, str(problem)


def book(folder: Path, reads: Sequence[Read]) -> str:
    """The page: a summary, a chapter for each paper, and ours."""
    claims = judged(reads)
    chapters = [_chapter(paper, claims, reads, folder) for paper in (*PAPERS, None)]
    return page(
        "Five papers, run again",
        LEAD,
        [
            Section("What became of the claims", _summary(claims, reads), id="claims"),
            *(chapter for chapter in chapters if chapter is not None),
        ],
        footer=f"Made by tacit {__version__} from the tables beside this page. `tacit claims --results DIR` "
        "reads the same verdicts from them.",
        contents=True,
    )


def _summary(claims: Sequence[Judged], reads: Sequence[Read]) -> list[Block]:
    published = [each for each in claims if not each.claim.ours]
    counted = Counter(each.kind for each in published)
    facts = {
        HOLDS: ("hold", f"of {len(published)} published claims: in all their studies"),
        FAILS: ("fail", "on at least one market, model or study"),
        UNDECIDED: (
            "undecided",
            "the interval spans the rule's bar, our generator sets the figure, or a run was too small or is "
            "missing",
        ),
        NOT_TESTED: ("not tested", "no results here"),
    }
    groups = {
        paper: group
        for paper in (*PAPERS, None)
        if (group := [each for each in claims if paper_of_claim(each.claim) is paper])
    }
    rows = [(_chapter_name(paper), [_chip(each) for each in group]) for paper, group in groups.items()]
    return [
        Facts([(str(counted[kind]), *words) for kind, words in facts.items()]),
        Board(rows),
        Table(
            ("paper", "claims", "hold", "fail", "undecided", "not tested"),
            [
                (
                    Link(_chapter_name(paper), _chapter_id(paper)),
                    str(len(group)),
                    *(str(sum(each.kind == kind for each in group)) for kind in facts),
                )
                for paper, group in groups.items()
            ],
            numbers=("claims", "hold", "fail", "undecided", "not tested"),
        ),
        *_made(reads),
    ]


def _made(reads: Sequence[Read]) -> list[Block]:
    """Of what data, at which scale, by which commands."""
    kept = [read.kept for read in reads if read.kept is not None and not read.stale]
    failed = [read.study.name for read in reads if read.failed]
    marked = f"Not made again this time: {', '.join(failed)}. What is here of them is of an earlier run."
    left = [Prose(marked)] if failed else []
    if not kept:
        none = f"None of the {len(reads)} studies has results here."
        return [Prose(none), *left, Code("tacit reproduce all")]
    made_up = sum(bool(each.settings["synthetic"]) for each in kept)
    scales = Counter(each.scale for each in kept)
    versions = sorted({str(each.settings["code_version"]) for each in kept})
    data = "All data is synthetic" if made_up == len(kept) else f"The data of {made_up} of them is synthetic"
    told = (
        f"{len(kept)} of {len(reads)} studies have results here: "
        + ", ".join(f"{count} at {scale} scale" for scale, count in scales.most_common())
        + f", by tacit {' and '.join(versions)}. {data}, made by tacit to be like the published logs, and is "
        "called so at every table and figure; `--data DIR` uses the published files instead."
    )
    return [
        Prose(told),
        *left,
        Code(f"tacit reproduce all --scale {scales.most_common(1)[0][0]}\ntacit claims --results reproduced"),
    ]


def _chip(each: Judged) -> Chip:
    return Chip(each.claim.id, Verdict(each.verdict), each.claim.words, _place(each))


def _place(each: Judged) -> str:
    """Where in the book a claim is spelled out: at the study that judged it first, or that could."""
    return ruling_id(each.heard[0].read.study, each.claim) if each.heard else each.silent[0].study.name


def _chapter(
    paper: Paper | None, claims: Sequence[Judged], reads: Sequence[Read], folder: Path
) -> Section | None:
    studies = [study_section(read, folder) for read in reads if paper_of_study(read.study) is paper]
    own = [each for each in claims if paper_of_claim(each.claim) is paper]
    if not studies and not own:
        return None
    verdicts = Table(
        ("id", "claim", "published" if paper else "against", "verdict"),
        [
            (Link(each.claim.id, _place(each)), each.claim.words, _published(each), Verdict(each.verdict))
            for each in own
        ],
    )
    about = f"*{paper.title}*, {paper.venue}." if paper else "Beyond the papers, and what each is held against."
    inner: list[Block | Section] = [Prose(about), *([verdicts] if own else []), *studies]
    return Section(_chapter_name(paper), inner, id=_chapter_id(paper))


def _published(each: Judged) -> str:
    claim = each.claim
    return claim.place if claim.ours else f"{claim.published} ({claim.place})"


def _chapter_name(paper: Paper | None) -> str:
    return paper.short if paper else BEYOND


def _chapter_id(paper: Paper | None) -> str:
    return f"paper-{paper.name if paper else OURS}"
