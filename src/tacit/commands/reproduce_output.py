"""How `tacit reproduce` speaks: the list of studies, a study's table, or one line for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.commands.output import print_json, print_table

if TYPE_CHECKING:
    from tacit.studies.study import Outcome, Study

SCALES = ("small", "full")


def print_outcome(study: Study, outcome: Outcome) -> None:
    """Its table, its verdicts with their rules, its files."""
    from tacit.studies.results import columns_of_figures

    numbers = columns_of_figures(outcome.columns, outcome.rows)
    print_table(f"{study.title} ({study.place})", outcome.columns, outcome.rows, numbers=numbers)
    print(outcome.note)
    for finding in outcome.findings:
        where = f" ({finding.where})" if finding.where else ""
        print(f"{finding.claim.id} {finding.verdict}: {finding.claim.words}{where}")
        print(f"    seen: {finding.seen}\n    rule: {finding.rule}")
    if outcome.kept:
        print("kept from before: nothing has changed")
    print(f"files: {', '.join(str(file) for file in outcome.files)}\n")


def print_brief(study: Study, outcome: Outcome, at: str, seconds: float, in_all: float) -> None:
    """One line, when it is finished: its verdicts and how long it took."""
    took = "kept, nothing changed" if outcome.kept else spent(seconds)
    print(f"{at}: {study.name}, {took} ({spent(in_all)} so far){_verdicts(study, outcome)}", flush=True)


def _verdicts(study: Study, outcome: Outcome) -> str:
    from tacit.studies.claims import Read, judged

    found = [each for each in judged([Read(study, None, outcome.findings)]) if each.heard]
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
    from tacit.studies.papers import paper_beside, paper_of_study

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


def spent(seconds: float) -> str:
    """12 s, 4.5 min, 1.2 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _time(minutes: float | None) -> str:
    """About how long: < 1 min, 4 min, 5 h."""
    if minutes is None:
        return ""
    if minutes < 1:
        return "< 1 min"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
