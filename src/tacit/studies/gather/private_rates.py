"""Figure 7(a): what differentially private statistics cost in precision and coverage, over epsilon."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from tacit.studies.contexts.clustered import compared, coverage_at, measured
from tacit.studies.contexts.figures import cells, falls, panels, rises, said, trade_off
from tacit.studies.contexts.setting import PAPER, Found
from tacit.studies.gather.kept import NEARLY_ALL, kept_share, nearly_all_kept
from tacit.studies.gather.setting import (
    PAPER_DELTA,
    SEEDS,
    Gathering,
    contest,
    our_plan,
    outcome,
    paper_plan,
    parameters,
)
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "gather-epsilon"
PRECISE = 0.6  # where the paper reads its figure
PRECISIONS = (0.3, 0.45, PRECISE)
PUBLISHED = {"exact": 0.3, "paper": 0.1}  # coverage at that precision

EXACT, PAPER_1, PAPER_HALF = "exact", "published noise, ε 1", "published noise, ε .5"
OURS_1, OURS_HALF, OURS_SMALL = "ours, ε 1, δ .01", "ours, ε .5, δ .01", "ours, ε 1, δ small"
ARMS = {
    EXACT: Gathering(),
    PAPER_1: Gathering(partial(paper_plan, epsilon=1)),
    PAPER_HALF: Gathering(partial(paper_plan, epsilon="0.5")),
    OURS_1: Gathering(partial(our_plan, epsilon=1, delta=PAPER_DELTA)),
    OURS_HALF: Gathering(partial(our_plan, epsilon="0.5", delta=PAPER_DELTA)),
    OURS_SMALL: Gathering(partial(our_plan, epsilon=1)),
}
LOOKS = {
    EXACT: Mechanism.NON_PRIVATE,
    PAPER_1: Mechanism.COUNT,
    PAPER_HALF: Mechanism.COUNT,
    OURS_1: Mechanism.OURS,
    OURS_HALF: Mechanism.OURS,
    OURS_SMALL: Mechanism.OURS,
}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, ARMS)
    table, rows = [], []
    for arm, found in held.found.items():
        for part, tally in found.parts().items():
            figures = [measured(tally, coverage_at(precision)) for precision in PRECISIONS]
            for precision, figure in zip(PRECISIONS, figures, strict=True):
                table.append({"statistics": arm, "requests": part, "precision": precision, **cells(figure)})
            if part == "all":
                rows.append((arm, *map(said, figures)))
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={**parameters(list(ARMS)), "published": PUBLISHED},
        table=table,
        columns=("statistics", *(f"coverage at precision {precision:g}" for precision in PRECISIONS)),
        rows=rows,
        findings=[_costs(held.found), _minor(held.found), _less_noise(held.found)],
        panels=panels(
            [
                (
                    "Statistics under zero-out-device DP",
                    [trade_off(arm, found.everything, LOOKS[arm]) for arm, found in held.found.items()],
                )
            ]
        ),
        axes=Axes("coverage", "precision"),
    )


def _costs(arms: Mapping[str, Found]) -> Finding:
    lost = compared(arms[PAPER_1].everything, arms[EXACT].everything, coverage_at(PRECISE))
    values = [measured(arms[arm].everything, coverage_at(PRECISE)) for arm in (EXACT, PAPER_1)]
    return Finding(
        "M7",
        "private statistics cost coverage",
        f"coverage at precision {PRECISE:g} falls from exact statistics to published noise at ε 1, whole "
        "interval over people",
        f"{said(lost)}, from {said(values[0])} to {said(values[1])} (published .3 to .1)",
        falls(lost),
    )


def _minor(arms: Mapping[str, Found]) -> Finding:
    share = kept_share(arms[PAPER_HALF].everything, arms[PAPER_1].everything)
    ours = kept_share(arms[OURS_HALF].everything, arms[OURS_1].everything)
    return Finding(
        "M8",
        "ε 1 against .5 is a minor difference",
        f"of the coverage at precision {PRECISIONS[0]:g} that ε 1 has, ε .5 keeps at least {NEARLY_ALL:.0%}, "
        "whole interval over people; fails if the whole interval is below",
        f"keeps {said(share, otherwise='nothing to keep')} (with our noise {said(ours, otherwise='nothing')})",
        nearly_all_kept(share),
    )


def _less_noise(arms: Mapping[str, Found]) -> Finding:
    gained = compared(arms[OURS_1].everything, arms[PAPER_1].everything, coverage_at(PRECISIONS[0]))
    return Finding(
        "T13",
        "exact accounting and counting devices, not events, cover more than published noise, same ε and δ",
        f"coverage at precision {PRECISIONS[0]:g} rises, whole interval over people",
        said(gained),
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Precision and coverage with private statistics",
    PAPER,
    "figure 7(a)",
    ("M7", "M8", "T13"),
    {Scale.TOY: 0.2, Scale.SMALL: 3.0, Scale.FULL: 60.0},
    SEEDS,
    run,
)
