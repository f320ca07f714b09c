"""Ours, beside figure 7(a): what one level, a bound on each cell, more events and shrinkage are worth."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from tacit.deliver.server.moment_shrinkage import MomentShrinkage
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import compare, coverage_at, make_panels, rises, say, trade_off_line
from tacit_lab.studies.contexts.contest import ArmTallies, run_contest
from tacit_lab.studies.contexts.setting import OURS
from tacit_lab.studies.gather.setting import (
    ONE_LEVEL,
    PRECISE_ENOUGH,
    SEEDS,
    Gathering,
    OurNoise,
    coverage_rows,
    coverage_words,
    data_words,
    difference_name,
    shared_parameters,
    trial_sources,
    write_outcome,
)
from tacit_lab.studies.plotting import Mechanism, Series
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

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


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    held = run_contest(asked, NAME, trial_sources(asked), ARMS)
    table, rows = coverage_rows(held.found)
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=data_words(held),
        parameters=shared_parameters(list(ARMS)),
        table=[*table, *_contrasts(held.found)],
        columns=("statistics at ε 1", f"coverage at precision {PRECISE_ENOUGH:g}"),
        rows=rows,
        panels=make_panels(
            [("Statistics at ε 1, zero-out device", [_line(arm, found) for arm, found in held.found.items()])]
        ),
        axes=Axes("coverage", "precision"),
    )


def _line(arm: str, found: ArmTallies) -> Series | None:
    return trade_off_line(arm, found.everything, Mechanism.NON_PRIVATE if arm == EXACT else Mechanism.OURS)


def _contrasts(arms: Mapping[str, ArmTallies]) -> Iterator[bootstrap.Row]:
    for better, worse in COMPARED.values():
        gained = compare(arms[better].everything, arms[worse].everything, coverage_at(PRECISE_ENOUGH))
        yield bootstrap.contrast_row(difference_name(better, worse), gained)


def judge(kept: ResultFiles) -> list[Finding]:
    return [_covers_more(kept, claim, *two) for claim, two in COMPARED.items()]


def _covers_more(kept: ResultFiles, claim: Claim, better: str, worse: str) -> Finding:
    gained = bootstrap.read_contrast(kept, difference_name(better, worse))
    return Finding(
        claim,
        f"coverage at precision {PRECISE_ENOUGH:g} rises from '{worse}' to '{better}', whole interval over "
        "people",
        f"{say(gained)}: from {coverage_words(kept, worse)} to {coverage_words(kept, better)}",
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Bounds, levels and shrinkage for private statistics",
    OURS,
    "beside figure 7",
    tuple(COMPARED),
    {StudyScale.TOY: 0.3, StudyScale.SMALL: 0.7, StudyScale.FULL: 90.0},
    SEEDS,
    run,
    judge,
)
