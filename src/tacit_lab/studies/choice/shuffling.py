"""Appendix B: what a shuffled batch makes of a local epsilon, by the size of the cohort.

Counts stay exact: nothing is added to them. The paper names shuffling (Cheu et al. 2018, Erlingsson et al.
2018) and prints no figure; the closed form here is that of Feldman, McMillan, Talwar 2021 (arXiv
2012.12803).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tacit.privacy import shuffling
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling import bounds
from tacit_lab.studies.choice.lifts import LiftRow, write_outcome
from tacit_lab.studies.choice.markets import PAPER
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import ONE_SEED, Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

R18 = Claim(
    "R18",
    "appendix B",
    "shuffling turns a moderate local epsilon into a small central one, without noise in the counts",
)

NAME = "choice-shuffling"
DELTA = 1e-6
LOCALS = (1, 2, 3, 5)
COHORTS = {
    StudyScale.TOY: (100, 10_000),
    StudyScale.SMALL: (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
}
COHORTS[StudyScale.FULL] = COHORTS[StudyScale.SMALL]
TICKS = (0.1, 1, 10, 100, 1_000)
BEST, NUMERIC, CLOSED = "tacit", "Feldman et al., numeric", "Feldman et al., closed form"
JUDGED, AT, BELOW = 5, 10_000, 1
HALVINGS = 20


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("its bounds need no data")
    began, cohorts = time.monotonic(), COHORTS[asked.scale]
    table: list[LiftRow] = []
    for at, local in enumerate(LOCALS):
        asked.progress(f"{NAME}: local epsilon {local}", at, len(LOCALS))
        for cohort in cohorts:
            found = {
                BEST: shuffling.epsilon(ShuffledChoice(Fraction(local), cohort), DELTA),
                NUMERIC: numeric_bound(local, cohort),
                CLOSED: closed_form(local, cohort),
            }
            labels = {"local_epsilon": local, "cohort": cohort}
            for bound, central in found.items():
                if central is not None:
                    table.append({**labels, "bound": bound, "central_epsilon": central})
    return write_outcome(
        NAME,
        asked,
        began=began,
        seeds=ONE_SEED,
        data=f"bounds at delta {DELTA:g}",
        parameters={"local_epsilons": list(LOCALS), "cohorts": list(cohorts), "delta": DELTA},
        table=table,
        columns=("local epsilon", "cohort", BEST, NUMERIC, CLOSED),
        rows=[
            (f"{local}", f"{cohort:,}", *_cells(table, local, cohort)) for local in LOCALS for cohort in cohorts
        ],
        panels=[_panel(table, local) for local in LOCALS],
        axes=Axes("thousands in the cohort", "central epsilon", TICKS),
        relation="private scores of one member of the cohort replaced",
    )


def numeric_bound(local: float, cohort: int) -> float:
    """The standard clones, searched for the least epsilon."""
    low, high = 0.0, float(local)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = bounds.clone_delta(local, cohort, middle, bounds.standard_clones) <= DELTA
        low, high = (low, middle) if enough else (middle, high)
    return high


def closed_form(local: float, cohort: int) -> float | None:
    """None where it does not apply: local > ln(cohort / (16 ln(4 / delta)))."""
    if local > math.log(cohort / (16 * math.log(4 / DELTA))):
        return None
    growth = math.exp(local)
    spread = 8 * math.sqrt(growth * math.log(4 / DELTA) / cohort) + 8 * growth / cohort
    return math.log1p(spread * -math.expm1(-local) / (1 + math.exp(-local) / (1 + spread)))


def _cells(table: Sequence[LiftRow], local: float, cohort: int) -> tuple[str, ...]:
    found = {
        row["bound"]: row["central_epsilon"]
        for row in table
        if row["local_epsilon"] == local and row["cohort"] == cohort
    }
    return tuple(f"{found[name]:.3f}" if name in found else "" for name in (BEST, NUMERIC, CLOSED))


def _panel(table: Sequence[LiftRow], local: float) -> Panel:
    def line(bound: str, look: Mechanism, *, published: bool = False) -> list[Series]:
        rows = [row for row in table if row["local_epsilon"] == local and row["bound"] == bound]
        if not rows:
            return []
        xs, ys = [row["cohort"] / 1_000 for row in rows], [row["central_epsilon"] for row in rows]
        return [Series(bound, xs, ys, mechanism=look, published=published)]

    ends = [TICKS[0], TICKS[-1]]
    return Panel(
        f"Local epsilon {local}",
        [
            *line(BEST, Mechanism.OURS),
            *line(NUMERIC, Mechanism.CLIENT),
            *line(CLOSED, Mechanism.CLIENT, published=True),
            Series("local epsilon", ends, [local, local], mechanism=Mechanism.NON_PRIVATE),
        ],
    )


def judge(kept: ResultFiles) -> list[Finding]:
    rows: Sequence[Mapping[str, Any]] = kept.rows
    found = {
        row["bound"]: row["central_epsilon"]
        for row in rows
        if row["local_epsilon"] == JUDGED and row["cohort"] == AT
    }
    closed = f"{found[CLOSED]:.3f}" if CLOSED in found else "nothing"
    return [
        Finding(
            R18,
            f"at local epsilon {JUDGED} a cohort of {AT:,} has a central epsilon below {BELOW} (delta "
            f"{DELTA:g}), if all share the candidate set, context, prices and mechanism",
            f"{found[BEST]:.3f}; {found[NUMERIC]:.3f} by Feldman et al.'s numeric bound, {closed} by their "
            "closed form",
            found[BEST] < BELOW,
            why="exact arithmetic: no data enters",
        )
    ]


STUDY = Study(
    NAME,
    "Central epsilon over the size of the cohort",
    PAPER,
    "appendix B",
    (R18,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 0.1},
    dict.fromkeys(StudyScale, 1),
    run,
    judge,
)
