"""The book: every study of a folder in one HTML file, a chapter per paper, and a verdict on each claim.

A study is a section with its figure, table, verdicts and settings; one whose results are missing or cannot
be read says how to make them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from tacit import __version__
from tacit.errors import BadInput
from tacit.pages import (
    Block,
    Board,
    Cell,
    Chip,
    Code,
    Details,
    Facts,
    Figure,
    Link,
    Prose,
    Ruling,
    Section,
    Table,
    Verdict,
    Verdicts,
    page,
)
from tacit.pages.drawings import inline_svg
from tacit_lab.studies.claims import (
    FAILS,
    HOLDS,
    NOT_TESTED,
    UNDECIDED,
    ClaimVerdict,
    Evidence,
    StudyResult,
    judge_claims,
)
from tacit_lab.studies.registry import OURS, PAPERS, Paper, paper_of_claim, paper_of_study
from tacit_lab.studies.results import ResultFiles, numeric_columns
from tacit_lab.studies.study import Claim, Study

MOST_LETTERS = 200  # of a setting: a long list says no more than its beginning


def study_section(read: StudyResult, folder: Path) -> Section:
    """With figure and table where the folder has them; else how to make them."""
    return Section(read.study.title, [Prose(_shows(read.study)), *_results(read, folder)], id=read.study.name)


def ruling_id(study: Study, claim: Claim) -> str:
    """Where a study's verdict on a claim is."""
    return f"{study.name}-{claim.id.lower()}"


def _shows(study: Study) -> str:
    """What a study's run says that it is, or else its module, and where the paper has it."""
    module = sys.modules.get(getattr(study.run, "__module__", ""))
    own = study.run.__doc__ if isinstance(study.run, FunctionType) else None
    about = " ".join((own or getattr(module, "__doc__", None) or "").split("\n\n")[0].split())
    return f"{about} `{study.name}`, {study.place}.".strip()


def _results(read: StudyResult, folder: Path) -> list[Block]:
    failed = f" It could not be made this time: {read.failed}." if read.failed else ""
    if read.stale:
        what = "Its results cannot be read" if read.kept is None else "Its table is not what this version reads"
        return [Prose(f"{what}: {read.stale}.{failed} This makes it again:"), Code(read.command)]
    if read.kept is None:
        claims = f" It speaks to {_list_claims(read.study.claims)}." if read.study.claims else ""
        return [Prose(f"Not run here.{claims}{failed} This makes it:"), Code(read.command)]
    earlier = f"Not made again this time: {read.failed}. These are results of an earlier run."
    return [
        *([Prose(earlier)] if read.failed else []),
        *_figure(read, read.kept, folder),
        *_table(read.kept),
        *_verdicts(read),
        _settings(read, read.kept),
    ]


def figure_svg(kept: ResultFiles, folder: Path) -> str | None:
    """The figure in a folder, None if it has none; refused by its name if a page could not hold it."""
    place = folder / f"{kept.settings['name']}.svg"
    content = kept.figure(place)
    if content is None:
        return None
    try:
        svg = content.decode()
        inline_svg(svg, "")
    except UnicodeDecodeError:
        raise BadInput(f"{place}: expected a figure in UTF-8, got other bytes") from None
    except BadInput as problem:
        raise BadInput(f"{place}: {problem}") from None
    return svg


def _figure(read: StudyResult, kept: ResultFiles, folder: Path) -> list[Block]:
    """A figure that cannot be shown takes nothing from the table, which the verdicts are of."""
    try:
        svg = figure_svg(kept, folder)
    except (BadInput, OSError) as problem:
        return [Prose(f"Its figure cannot be shown: {problem}. This makes it again:"), Code(read.command)]
    data = "Synthetic data. " if kept.settings["synthetic"] else ""
    return [] if svg is None else [Figure(svg, f"{data}The figures are in `{read.study.name}.csv`.")]


def _note(kept: ResultFiles) -> str:
    """What the data was. Made-up data is called so, whatever the study itself says."""
    note = str(kept.settings.get("shown", {}).get("note") or kept.words)
    return note if not kept.settings["synthetic"] or "synthetic" in note else f"{note} (synthetic)"


def _table(kept: ResultFiles) -> list[Table]:
    shown = kept.settings.get("shown")
    if not shown:
        return []
    columns, rows = shown["columns"], shown["rows"]
    return [Table(columns, rows, numbers=numeric_columns(columns, rows), caption=_note(kept))] if rows else []


def _verdicts(read: StudyResult) -> list[Verdicts]:
    """By claim, in the order in which they were judged."""
    heard = [Evidence(read, finding) for finding in read.findings]
    claims = {each.finding.claim.id: each.finding.claim for each in heard}
    rulings = [
        _ruling(ClaimVerdict(claim, [each for each in heard if each.finding.claim.id == name], ()))
        for name, claim in claims.items()
    ]
    return [Verdicts(rulings)] if rulings else []


def _ruling(judged: ClaimVerdict) -> Ruling:
    claim = judged.claim
    facts: list[tuple[str, Cell]] = []
    for rule, found in judged.by_rule:
        facts.append(("rule", rule))
        facts += [(judged.mark(each), each.words) for each in found]
    against = ("against", claim.place) if claim.ours else ("published", f"{claim.published} ({claim.place})")
    name = ruling_id(judged.heard[0].read.study, claim)
    return Ruling(claim.id, claim.words, Verdict(judged.verdict), [*facts, against], id=name)


def _settings(read: StudyResult, kept: ResultFiles) -> Details:
    of = kept.settings
    rows = [
        ("data", f"{'synthetic, ' if of['synthetic'] else ''}{of['data']}"),
        ("unit and relation", f"{of['unit']}, {of['relation']}"),
        ("seeds", _spell_value(of["seeds"])),
        *((name.replace("_", " "), _spell_value(value)) for name, value in sorted(of["parameters"].items())),
        ("minutes", f"{of['minutes']:g}"),
        ("tacit", str(of["code_version"])),
    ]
    return Details("Settings and command", [Code(read.command), Table(("setting", "value"), rows)])


def _spell_value(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, int | float | str) for each in value):
        text = ", ".join(map(str, value))
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ..."


def _list_claims(claims: Sequence[Claim]) -> str:
    return ", ".join(claim.id for claim in claims)


NAME = "index.html"
BEYOND = "Beyond the papers"
LEAD = """\
Five papers describe how advertising can learn without learning about people. These are their tables and \
figures, measured again, and what became of each finding.

The rule of every verdict was fixed before this run; earlier trials were known. Every verdict is computed from \
the table beside it: a finding fails where the figures decide that it does, and is undecided where they could \
go either way. A finding that fails here is a result, too."""


def write_book(folder: Path, reads: Sequence[StudyResult]) -> Path:
    """Write index.html from what lies in a folder."""
    place = folder / NAME
    place.write_text(render_book(folder, reads), encoding="utf-8")
    return place


def find_flaws(folder: Path, reads: Sequence[StudyResult]) -> Iterator[tuple[str, str]]:
    """The studies whose results or figure the book cannot show, by name, and why."""
    for read in reads:
        if read.stale:
            yield read.study.name, read.stale
        elif read.kept is not None:
            try:
                figure_svg(read.kept, folder)
            except (BadInput, OSError) as problem:
                yield read.study.name, str(problem)


def render_book(folder: Path, reads: Sequence[StudyResult]) -> str:
    """The page: a summary, a chapter for each paper, and ours."""
    claims = judge_claims(reads)
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


def _summary(claims: Sequence[ClaimVerdict], reads: Sequence[StudyResult]) -> list[Block]:
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
        *_origin_blocks(reads),
    ]


def _origin_blocks(reads: Sequence[StudyResult]) -> list[Block]:
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


def _chip(each: ClaimVerdict) -> Chip:
    return Chip(each.claim.id, Verdict(each.verdict), each.claim.words, _place(each))


def _place(each: ClaimVerdict) -> str:
    """Where in the book a claim is spelled out: at the study that judged it first, or that could."""
    return ruling_id(each.heard[0].read.study, each.claim) if each.heard else each.silent[0].study.name


def _chapter(
    paper: Paper | None, claims: Sequence[ClaimVerdict], reads: Sequence[StudyResult], folder: Path
) -> Section | None:
    studies = [study_section(read, folder) for read in reads if paper_of_study(read.study) is paper]
    own = [each for each in claims if paper_of_claim(each.claim) is paper]
    if not studies and not own:
        return None
    verdicts = Table(
        ("id", "claim", "published" if paper else "against", "verdict"),
        [
            (Link(each.claim.id, _place(each)), each.claim.words, _published_words(each), Verdict(each.verdict))
            for each in own
        ],
    )
    about = f"*{paper.title}*, {paper.venue}." if paper else "Beyond the papers, and what each is held against."
    inner: list[Block | Section] = [Prose(about), *([verdicts] if own else []), *studies]
    return Section(_chapter_name(paper), inner, id=_chapter_id(paper))


def _published_words(each: ClaimVerdict) -> str:
    claim = each.claim
    return claim.place if claim.ours else f"{claim.published} ({claim.place})"


def _chapter_name(paper: Paper | None) -> str:
    return paper.short if paper else BEYOND


def _chapter_id(paper: Paper | None) -> str:
    return f"paper-{paper.name if paper else OURS}"
