"""Ours, beside figure 7(a): what one level, a bound on each cell, more events and shrinkage are worth."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from tacit.deliver.estimates.moments import MomentShrinkage
from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import compared, coverage_at
from tacit.studies.contexts.contest import Found, contest
from tacit.studies.contexts.figures import panels, rises, said, trade_off
from tacit.studies.contexts.setting import OURS
from tacit.studies.gather.covered import PRECISE_ENOUGH, coverages, covered, less
from tacit.studies.gather.setting import (
    ONE_LEVEL,
    SEEDS,
    Gathering,
    OurNoise,
    outcome,
    parameters,
    sources,
    words,
)
from tacit.studies.plotting import Mechanism, Series
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study

NAME = "gather-bounds"
TWO_LEVELS = ((4, 2, 2), *ONE_LEVEL)
EXACT, USUAL = "exact", "m 4, r 1, one level"
EVENTS, MORE, LEVELS, SHRUNK = (
    "m 4, r 4, one level",
    "m 16, r 1, one level",
    "m 4, r 1, two levels",
    "shrinkage",
)
ARMS = {
    EXACT: Gathering(),
    USUAL: Gathering(OurNoise(epsilon=1)),
    EVENTS: Gathering(OurNoise(epsilon=1, each=4)),
    MORE: Gathering(OurNoise(epsilon=1, events=16)),
    LEVELS: Gathering(OurNoise(epsilon=1, levels=2), levels=TWO_LEVELS),
    SHRUNK: Gathering(OurNoise(epsilon=1, levels=2), levels=TWO_LEVELS, estimator=MomentShrinkage()),
}
T15 = Claim("T15", "two levels", "one level of counts covers more than two that share the budget")
T16 = Claim("T16", "all events", "counting a device once a cell covers more than counting all of its events")
T17 = Claim("T17", "sixteen events", "four events a device cover more than sixteen, whose noise is larger")
T18 = Claim(
    "T18",
    "back-off as in section 4.4",
    "with noisy counts, shrinkage toward the context above covers more than backing off to it",
)
COMPARED = {T15: (USUAL, LEVELS), T16: (USUAL, EVENTS), T17: (USUAL, MORE), T18: (SHRUNK, LEVELS)}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, sources(asked), ARMS)
    table, rows = coverages(held.found)
    return outcome(
        NAME,
        asked,
        began=began,
        data=words(held),
        parameters=parameters(list(ARMS)),
        table=[*table, *_contrasts(held.found)],
        columns=("statistics at ε 1", f"coverage at precision {PRECISE_ENOUGH:g}"),
        rows=rows,
        panels=panels(
            [("Statistics at ε 1, zero-out device", [_line(arm, found) for arm, found in held.found.items()])]
        ),
        axes=Axes("coverage", "precision"),
    )


def _line(arm: str, found: Found) -> Series | None:
    return trade_off(arm, found.everything, Mechanism.NON_PRIVATE if arm == EXACT else Mechanism.OURS)


def _contrasts(arms: Mapping[str, Found]) -> Iterator[tabled.Row]:
    for better, worse in COMPARED.values():
        gained = compared(arms[better].everything, arms[worse].everything, coverage_at(PRECISE_ENOUGH))
        yield tabled.contrast(less(better, worse), gained)


def judge(kept: Kept) -> list[Finding]:
    return [_covers_more(kept, claim, *two) for claim, two in COMPARED.items()]


def _covers_more(kept: Kept, claim: Claim, better: str, worse: str) -> Finding:
    gained = tabled.contrast_of(kept, less(better, worse))
    return Finding(
        claim,
        f"coverage at precision {PRECISE_ENOUGH:g} rises from '{worse}' to '{better}', whole interval over "
        "people",
        f"{said(gained)}: from {covered(kept, worse)} to {covered(kept, better)}",
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Bounds, levels and shrinkage for private statistics",
    OURS,
    "beside figure 7",
    tuple(COMPARED),
    {Scale.TOY: 0.3, Scale.SMALL: 0.7, Scale.FULL: 90.0},
    SEEDS,
    run,
    judge,
)
