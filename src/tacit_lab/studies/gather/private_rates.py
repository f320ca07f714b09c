"""Figure 7(a): what differentially private statistics cost in precision and coverage, over epsilon."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import (
    compare,
    coverage_at,
    falls,
    make_panels,
    measure,
    rises,
    say,
    trade_off_line,
)
from tacit_lab.studies.contexts.contest import ArmTallies, run_contest
from tacit_lab.studies.contexts.setting import PAPER
from tacit_lab.studies.gather.setting import (
    NEARLY_ALL,
    PAPER_DELTA,
    PRECISE_ENOUGH,
    SEEDS,
    Gathering,
    OurNoise,
    PaperNoise,
    coverage_words,
    data_words,
    difference_name,
    kept_share,
    nearly_all_kept,
    share_name,
    shared_parameters,
    trial_sources,
    write_outcome,
)
from tacit_lab.studies.plotting import Mechanism
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

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


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    held = run_contest(asked, NAME, trial_sources(asked), ARMS)
    table, rows = [], []
    for arm, found in held.found.items():
        for part, tally in found.parts().items():
            figures = [measure(tally, coverage_at(precision)) for precision in PRECISIONS]
            for precision, figure in zip(PRECISIONS, figures, strict=True):
                table.append(bootstrap.figure_row(figure, statistics=arm, requests=part, precision=precision))
            if part == "all":
                rows.append((arm, *map(say, figures)))
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=data_words(held),
        parameters={**shared_parameters(list(ARMS)), "published": PUBLISHED},
        table=[*table, *_contrasts(held.found)],
        columns=("statistics", *(f"coverage at precision {precision:g}" for precision in PRECISIONS)),
        rows=rows,
        panels=make_panels(
            [
                (
                    "Statistics under zero-out-device DP",
                    [trade_off_line(arm, found.everything, LOOKS[arm]) for arm, found in held.found.items()],
                )
            ]
        ),
        axes=Axes("coverage", "precision"),
    )


def _contrasts(arms: Mapping[str, ArmTallies]) -> Iterator[bootstrap.Row]:
    for one, other, precision in ((PAPER_1, EXACT, PRECISE), (OURS_1, PAPER_1, PRECISE_ENOUGH)):
        apart = compare(arms[one].everything, arms[other].everything, coverage_at(precision))
        yield bootstrap.contrast_row(difference_name(one, other, precision), apart)
    for half, whole in ((PAPER_HALF, PAPER_1), (OURS_HALF, OURS_1)):
        yield bootstrap.contrast_row(
            share_name(half, whole), kept_share(arms[half].everything, arms[whole].everything)
        )


def judge(kept: ResultFiles) -> list[Finding]:
    return [_costs(kept), _minor(kept), _less_noise(kept)]


def _costs(kept: ResultFiles) -> Finding:
    lost = bootstrap.read_contrast(kept, difference_name(PAPER_1, EXACT, PRECISE))
    before, after = (coverage_words(kept, arm, PRECISE) for arm in (EXACT, PAPER_1))
    return Finding(
        M7,
        f"coverage at precision {PRECISE:g} falls from exact statistics to published noise at ε 1, whole "
        "interval over people",
        f"{say(lost)}: from {before} to {after}",
        falls(lost),
    )


def _minor(kept: ResultFiles) -> Finding:
    share = bootstrap.read_contrast(kept, share_name(PAPER_HALF, PAPER_1))
    ours = bootstrap.read_contrast(kept, share_name(OURS_HALF, OURS_1))
    return Finding(
        M8,
        f"of the coverage at precision {PRECISE_ENOUGH:g} that ε 1 has, ε .5 keeps at least {NEARLY_ALL:.0%}, "
        "whole interval over people; fails if the whole interval is below",
        f"keeps {say(share, otherwise='nothing to keep')} (with our noise {say(ours, otherwise='nothing')})",
        nearly_all_kept(share),
    )


def _less_noise(kept: ResultFiles) -> Finding:
    gained = bootstrap.read_contrast(kept, difference_name(OURS_1, PAPER_1))
    return Finding(
        T13,
        f"coverage at precision {PRECISE_ENOUGH:g} rises, whole interval over people",
        f"{say(gained)}: from {coverage_words(kept, PAPER_1)} to {coverage_words(kept, OURS_1)}",
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Precision and coverage with private statistics",
    PAPER,
    "figure 7(a)",
    (M7, M8, T13),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 0.8, StudyScale.FULL: 60.0},
    SEEDS,
    run,
    judge,
)
