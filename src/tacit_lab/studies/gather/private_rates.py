"""Figure 7: what differentially private statistics cost in precision and coverage.

Three studies: over epsilon (a); noise for people who may leave theirs out, over the fraction t of them, and
noise by servers (b); and ours: what one level, a bound on each cell, more events and shrinkage are worth.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from fractions import Fraction

from tacit.deliver.server.moment_shrinkage import MomentShrinkage
from tacit.gather.estimate.plan import NoiseBy
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import (
    compare,
    coverage_at,
    falls,
    interval_line,
    make_panels,
    measure,
    rises,
    say,
    trade_off_line,
)
from tacit_lab.studies.contexts.contest import ArmTallies, run_contest
from tacit_lab.studies.contexts.setting import OF_VISITS, OURS, PAPER
from tacit_lab.studies.gather.setting import (
    NEARLY_ALL,
    ONE_LEVEL,
    PAPER_DELTA,
    PRECISE_ENOUGH,
    SEEDS,
    UNLESS,
    Gathering,
    OurNoise,
    PaperNoise,
    coverage_rows,
    coverage_words,
    data_words,
    difference_name,
    if_any_is_covered,
    kept_share,
    nearly_all_kept,
    share_name,
    shared_parameters,
    trial_sources,
    write_outcome,
)
from tacit_lab.studies.plotting import Mechanism, Series
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

EPSILON_NAME = "gather-epsilon"
PRECISE = 0.6  # where the paper reads its figure
PRECISIONS = (PRECISE_ENOUGH, 0.45, PRECISE)
PUBLISHED = {"exact": 0.3, "paper": 0.1}  # coverage at that precision

EXACT, PAPER_1, PAPER_HALF = "exact", "published noise, ε 1", "published noise, ε .5"
OURS_1, OURS_HALF, OURS_SMALL = "ours, ε 1, δ .01", "ours, ε .5, δ .01", "ours, ε 1, δ small"
EPSILON_ARMS = {
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


def run_epsilon(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    held = run_contest(asked, EPSILON_NAME, trial_sources(asked), EPSILON_ARMS)
    table, rows = [], []
    for arm, found in held.found.items():
        for part, tally in found.parts().items():
            figures = [measure(tally, coverage_at(precision)) for precision in PRECISIONS]
            for precision, figure in zip(PRECISIONS, figures, strict=True):
                table.append(bootstrap.figure_row(figure, statistics=arm, requests=part, precision=precision))
            if part == "all":
                rows.append((arm, *map(say, figures)))
    return write_outcome(
        EPSILON_NAME,
        asked,
        began=began,
        data=data_words(held),
        parameters={**shared_parameters(list(EPSILON_ARMS)), "published": PUBLISHED},
        table=[*table, *_epsilon_contrasts(held.found)],
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


def _epsilon_contrasts(arms: Mapping[str, ArmTallies]) -> Iterator[bootstrap.Row]:
    for one, other, precision in ((PAPER_1, EXACT, PRECISE), (OURS_1, PAPER_1, PRECISE_ENOUGH)):
        apart = compare(arms[one].everything, arms[other].everything, coverage_at(precision))
        yield bootstrap.contrast_row(difference_name(one, other, precision), apart)
    for half, whole in ((PAPER_HALF, PAPER_1), (OURS_HALF, OURS_1)):
        yield bootstrap.contrast_row(
            share_name(half, whole), kept_share(arms[half].everything, arms[whole].everything)
        )


def judge_epsilon(kept: ResultFiles) -> list[Finding]:
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


EPSILON_STUDY = Study(
    EPSILON_NAME,
    "Precision and coverage with private statistics",
    PAPER,
    "figure 7(a)",
    (M7, M8, T13),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 0.8, StudyScale.FULL: 60.0},
    SEEDS,
    run_epsilon,
    judge_epsilon,
    OF_VISITS,
)


AWAY_NAME = "gather-away"
AWAY = ("0", "0.25", "0.5", "0.75")
SERVERS = "ours, noise by servers"

M9 = Claim(
    "M9",
    "figure 7(b)",
    "up to three quarters of people may be away or malicious, with a mild effect",
)
T14 = Claim(
    "T14",
    "figure 7(b), noise by people",
    "where three quarters of people may leave noise out, noise by both servers covers more",
)


def paper_arm(away: str) -> str:
    return f"published noise, t {float(away):g}"


def our_arm(away: str) -> str:
    return f"ours, noise by users, t {float(away):g}"


AWAY_ARMS = {
    EXACT: Gathering(),
    **{paper_arm(away): Gathering(PaperNoise(epsilon=1, away=Fraction(away))) for away in AWAY},
    **{our_arm(away): Gathering(OurNoise(epsilon=1, away=Fraction(away))) for away in AWAY},
    SERVERS: Gathering(OurNoise(epsilon=1, by=NoiseBy.SERVERS)),
}


def run_away(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    held = run_contest(asked, AWAY_NAME, trial_sources(asked), AWAY_ARMS)
    table, rows = coverage_rows(held.found)
    return write_outcome(
        AWAY_NAME,
        asked,
        began=began,
        data=data_words(held),
        parameters={**shared_parameters(list(AWAY_ARMS)), "away": list(AWAY)},
        table=[*table, *_away_contrasts(held.found)],
        columns=("statistics", f"coverage at precision {PRECISE_ENOUGH:g}"),
        rows=rows,
        panels=make_panels([("Private statistics", _away_lines(held.found))]),
        axes=Axes("t, the fraction that may leave its noise out", f"coverage at precision {PRECISE_ENOUGH:g}"),
    )


def _away_lines(arms: Mapping[str, ArmTallies]) -> list[Series | None]:
    """Exact statistics, which cover far more, are in the table alone."""
    over_t = {
        "published noise": (map(paper_arm, AWAY), Mechanism.COUNT),
        "ours, noise by users": (map(our_arm, AWAY), Mechanism.OURS),
        SERVERS: ([SERVERS] * len(AWAY), Mechanism.OURS),
    }
    at = coverage_at(PRECISE_ENOUGH)
    return [
        interval_line(
            name, list(map(float, AWAY)), [measure(arms[arm].everything, at) for arm in several], look
        )
        for name, (several, look) in over_t.items()
    ]


def _away_contrasts(arms: Mapping[str, ArmTallies]) -> Iterator[bootstrap.Row]:
    for several in (paper_arm, our_arm):
        away, everybody = (arms[several(each)].everything for each in (AWAY[-1], AWAY[0]))
        yield bootstrap.contrast_row(
            share_name(several(AWAY[-1]), several(AWAY[0])), kept_share(away, everybody)
        )
    gained = compare(arms[SERVERS].everything, arms[our_arm(AWAY[-1])].everything, coverage_at(PRECISE_ENOUGH))
    yield bootstrap.contrast_row(difference_name(SERVERS, our_arm(AWAY[-1])), gained)


def judge_away(kept: ResultFiles) -> list[Finding]:
    return [_mild(kept), _servers(kept)]


def _mild(kept: ResultFiles) -> Finding:
    share, ours = (
        bootstrap.read_contrast(kept, share_name(arm(AWAY[-1]), arm(AWAY[0]))) for arm in (paper_arm, our_arm)
    )
    return Finding(
        M9,
        f"of the coverage at precision {PRECISE_ENOUGH:g} that t = 0 has, t = .75 keeps at least "
        f"{NEARLY_ALL:.0%}, whole interval over people; fails if the whole interval is below",
        f"keeps {say(share, otherwise='nothing to keep')} (with our noise {say(ours, otherwise='nothing')})",
        nearly_all_kept(share),
    )


def _servers(kept: ResultFiles) -> Finding:
    gained = bootstrap.read_contrast(kept, difference_name(SERVERS, our_arm(AWAY[-1])))
    found = Finding(
        T14,
        f"coverage at precision {PRECISE_ENOUGH:g} rises, whole interval over people{UNLESS}",
        f"{say(gained)}: from {coverage_words(kept, our_arm(AWAY[-1]))} to {coverage_words(kept, SERVERS)}",
        rises(gained),
    )
    return if_any_is_covered(kept, found, our_arm(AWAY[-1]), SERVERS)


AWAY_STUDY = Study(
    AWAY_NAME,
    "Statistics where people may be away or leave their noise out",
    PAPER,
    "figure 7(b)",
    (M9, T14),
    {StudyScale.TOY: 0.3, StudyScale.SMALL: 0.8, StudyScale.FULL: 90.0},
    SEEDS,
    run_away,
    judge_away,
    OF_VISITS,
)


BOUNDS_NAME = "gather-bounds"
TWO_LEVELS = ((4, 2, 2), *ONE_LEVEL)
USUAL = "m 4, r 1, one level"
EVENTS, MORE, LEVELS, SHRUNK = (
    "m 4, r 4, one level",
    "m 16, r 1, one level",
    "m 4, r 1, two levels",
    "shrinkage",
)
BOUNDS_ARMS = {
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


def run_bounds(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    held = run_contest(asked, BOUNDS_NAME, trial_sources(asked), BOUNDS_ARMS)
    table, rows = coverage_rows(held.found)
    return write_outcome(
        BOUNDS_NAME,
        asked,
        began=began,
        data=data_words(held),
        parameters=shared_parameters(list(BOUNDS_ARMS)),
        table=[*table, *_bounds_contrasts(held.found)],
        columns=("statistics at ε 1", f"coverage at precision {PRECISE_ENOUGH:g}"),
        rows=rows,
        panels=make_panels([("Statistics at ε 1, zero-out device", _bounds_lines(held.found))]),
        axes=Axes("coverage", "precision"),
    )


def _bounds_lines(arms: Mapping[str, ArmTallies]) -> list[Series | None]:
    looks = {EXACT: Mechanism.NON_PRIVATE}
    return [
        trade_off_line(arm, found.everything, looks.get(arm, Mechanism.OURS)) for arm, found in arms.items()
    ]


def _bounds_contrasts(arms: Mapping[str, ArmTallies]) -> Iterator[bootstrap.Row]:
    for better, worse in COMPARED.values():
        gained = compare(arms[better].everything, arms[worse].everything, coverage_at(PRECISE_ENOUGH))
        yield bootstrap.contrast_row(difference_name(better, worse), gained)


def judge_bounds(kept: ResultFiles) -> list[Finding]:
    return [_covers_more(kept, claim, *two) for claim, two in COMPARED.items()]


def _covers_more(kept: ResultFiles, claim: Claim, better: str, worse: str) -> Finding:
    gained = bootstrap.read_contrast(kept, difference_name(better, worse))
    found = Finding(
        claim,
        f"coverage at precision {PRECISE_ENOUGH:g} rises from '{worse}' to '{better}', whole interval over "
        f"people{UNLESS}",
        f"{say(gained)}: from {coverage_words(kept, worse)} to {coverage_words(kept, better)}",
        rises(gained),
    )
    return if_any_is_covered(kept, found, worse, better)


BOUNDS_STUDY = Study(
    BOUNDS_NAME,
    "Bounds, levels and shrinkage for private statistics",
    OURS,
    "beside figure 7",
    tuple(COMPARED),
    {StudyScale.TOY: 0.3, StudyScale.SMALL: 0.7, StudyScale.FULL: 90.0},
    SEEDS,
    run_bounds,
    judge_bounds,
    OF_VISITS,
)
