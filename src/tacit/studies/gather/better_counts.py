"""Ours, beside figure 7(a): what one level, a bound on each cell, more events and shrinkage are worth."""

from __future__ import annotations

import time
from functools import partial

from tacit.deliver.estimates.moments import MomentShrinkage
from tacit.studies.contexts.clustered import compared, coverage_at
from tacit.studies.contexts.figures import panels, rises, said, trade_off
from tacit.studies.contexts.setting import OURS, Found
from tacit.studies.gather.kept import PRECISE_ENOUGH, coverages
from tacit.studies.gather.setting import ONE_LEVEL, SEEDS, Gathering, contest, our_plan, outcome, parameters
from tacit.studies.plotting import Mechanism, Series
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

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
    USUAL: Gathering(partial(our_plan, epsilon=1)),
    EVENTS: Gathering(partial(our_plan, epsilon=1, each=4)),
    MORE: Gathering(partial(our_plan, epsilon=1, events=16)),
    LEVELS: Gathering(partial(our_plan, epsilon=1, levels=2), levels=TWO_LEVELS),
    SHRUNK: Gathering(partial(our_plan, epsilon=1, levels=2), levels=TWO_LEVELS, estimator=MomentShrinkage()),
}
CLAIMS = (
    ("T15", "one level of counts covers more than two that share the budget", USUAL, LEVELS),
    ("T16", "counting a device once a cell covers more than counting all of its events", USUAL, EVENTS),
    ("T17", "four events a device cover more than sixteen, whose noise is larger", USUAL, MORE),
    ("T18", "shrinkage toward the context above covers more than backing off to it", SHRUNK, LEVELS),
)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, ARMS)
    table, rows = coverages(held.found)
    findings = []
    for claim, words, better, worse in CLAIMS:
        gained = compared(
            held.found[better].everything, held.found[worse].everything, coverage_at(PRECISE_ENOUGH)
        )
        rule = (
            f"coverage at precision {PRECISE_ENOUGH:g} rises from '{worse}' to '{better}', "
            "whole interval over people"
        )
        findings.append(Finding(claim, words, rule, said(gained), rises(gained)))
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters=parameters(list(ARMS)),
        table=table,
        columns=("statistics at ε 1", f"coverage at precision {PRECISE_ENOUGH:g}"),
        rows=rows,
        findings=findings,
        panels=panels(
            [("Statistics at ε 1, zero-out device", [_line(arm, found) for arm, found in held.found.items()])]
        ),
        axes=Axes("coverage", "precision"),
    )


def _line(arm: str, found: Found) -> Series | None:
    return trade_off(arm, found.everything, Mechanism.NON_PRIVATE if arm == EXACT else Mechanism.OURS)


STUDY = Study(
    NAME,
    "Bounds, levels and shrinkage for private statistics",
    OURS,
    "beside figure 7",
    tuple(claim for claim, *_ in CLAIMS),
    {Scale.TOY: 0.3, Scale.SMALL: 4.0, Scale.FULL: 90.0},
    SEEDS,
    run,
)
