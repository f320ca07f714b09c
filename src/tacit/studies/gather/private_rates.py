"""Figure 7(a): what differentially private statistics cost in precision and coverage, over epsilon."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import compared, coverage_at, measured
from tacit.studies.contexts.contest import Found, contest
from tacit.studies.contexts.figures import falls, panels, rises, said, trade_off
from tacit.studies.contexts.setting import PAPER
from tacit.studies.gather.covered import (
    NEARLY_ALL,
    PRECISE_ENOUGH,
    covered,
    kept_share,
    less,
    nearly_all_kept,
    share_of,
)
from tacit.studies.gather.setting import (
    PAPER_DELTA,
    SEEDS,
    Gathering,
    OurNoise,
    PaperNoise,
    outcome,
    parameters,
    sources,
    words,
)
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study

NAME = "gather-epsilon"
PRECISE = 0.6  # where the paper reads its figure
PRECISIONS = (PRECISE_ENOUGH, 0.45, PRECISE)
PUBLISHED = {"exact": 0.3, "paper": 0.1}  # coverage at that precision

EXACT, PAPER_1, PAPER_HALF = "exact", "published noise, ε 1", "published noise, ε .5"
OURS_1, OURS_HALF, OURS_SMALL = "ours, ε 1, δ .01", "ours, ε .5, δ .01", "ours, ε 1, δ small"
ARMS = {
    EXACT: Gathering(),
    PAPER_1: Gathering(PaperNoise(epsilon=1)),
    PAPER_HALF: Gathering(PaperNoise(epsilon="0.5")),
    OURS_1: Gathering(OurNoise(epsilon=1, delta=PAPER_DELTA)),
    OURS_HALF: Gathering(OurNoise(epsilon="0.5", delta=PAPER_DELTA)),
    OURS_SMALL: Gathering(OurNoise(epsilon=1)),
}
LOOKS = {
    EXACT: Mechanism.NON_PRIVATE,
    PAPER_1: Mechanism.COUNT,
    PAPER_HALF: Mechanism.COUNT,
    OURS_1: Mechanism.OURS,
    OURS_HALF: Mechanism.OURS,
    OURS_SMALL: Mechanism.OURS,
}

M7 = Claim(
    "M7",
    "figure 7(a)",
    "private statistics cost coverage",
    "coverage .3 to .1 at precision .6; the rule tests the direction",
)
M8 = Claim("M8", "figure 7(a)", "whether epsilon is 1 or .5 makes a minor difference")
T13 = Claim(
    "T13",
    "figure 7(a), published noise",
    "exact accounting and counting devices, not events, cover more than the published noise at equal budget",
)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, sources(asked), ARMS)
    table, rows = [], []
    for arm, found in held.found.items():
        for part, tally in found.parts().items():
            figures = [measured(tally, coverage_at(precision)) for precision in PRECISIONS]
            for precision, figure in zip(PRECISIONS, figures, strict=True):
                table.append(tabled.figure(figure, statistics=arm, requests=part, precision=precision))
            if part == "all":
                rows.append((arm, *map(said, figures)))
    return outcome(
        NAME,
        asked,
        began=began,
        data=words(held),
        parameters={**parameters(list(ARMS)), "published": PUBLISHED},
        table=[*table, *_contrasts(held.found)],
        columns=("statistics", *(f"coverage at precision {precision:g}" for precision in PRECISIONS)),
        rows=rows,
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


def _contrasts(arms: Mapping[str, Found]) -> Iterator[tabled.Row]:
    for one, other, precision in ((PAPER_1, EXACT, PRECISE), (OURS_1, PAPER_1, PRECISE_ENOUGH)):
        apart = compared(arms[one].everything, arms[other].everything, coverage_at(precision))
        yield tabled.contrast(less(one, other, precision), apart)
    for half, whole in ((PAPER_HALF, PAPER_1), (OURS_HALF, OURS_1)):
        yield tabled.contrast(share_of(half, whole), kept_share(arms[half].everything, arms[whole].everything))


def judge(kept: Kept) -> list[Finding]:
    return [_costs(kept), _minor(kept), _less_noise(kept)]


def _costs(kept: Kept) -> Finding:
    lost = tabled.contrast_of(kept, less(PAPER_1, EXACT, PRECISE))
    before, after = (covered(kept, arm, PRECISE) for arm in (EXACT, PAPER_1))
    return Finding(
        M7,
        f"coverage at precision {PRECISE:g} falls from exact statistics to published noise at ε 1, whole "
        "interval over people",
        f"{said(lost)}: from {before} to {after}",
        falls(lost),
    )


def _minor(kept: Kept) -> Finding:
    share = tabled.contrast_of(kept, share_of(PAPER_HALF, PAPER_1))
    ours = tabled.contrast_of(kept, share_of(OURS_HALF, OURS_1))
    return Finding(
        M8,
        f"of the coverage at precision {PRECISE_ENOUGH:g} that ε 1 has, ε .5 keeps at least {NEARLY_ALL:.0%}, "
        "whole interval over people; fails if the whole interval is below",
        f"keeps {said(share, otherwise='nothing to keep')} (with our noise {said(ours, otherwise='nothing')})",
        nearly_all_kept(share),
    )


def _less_noise(kept: Kept) -> Finding:
    gained = tabled.contrast_of(kept, less(OURS_1, PAPER_1))
    return Finding(
        T13,
        f"coverage at precision {PRECISE_ENOUGH:g} rises, whole interval over people",
        f"{said(gained)}: from {covered(kept, PAPER_1)} to {covered(kept, OURS_1)}",
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Precision and coverage with private statistics",
    PAPER,
    "figure 7(a)",
    (M7, M8, T13),
    {Scale.TOY: 0.2, Scale.SMALL: 0.8, Scale.FULL: 60.0},
    SEEDS,
    run,
    judge,
)
