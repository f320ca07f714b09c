"""Figure 7(b): noise for people who may leave theirs out, over the fraction t of them, and noise by
servers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from fractions import Fraction

from tacit.gather.estimate.plan import NoiseBy
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import (
    compare,
    coverage_at,
    interval_line,
    make_panels,
    measure,
    rises,
    say,
)
from tacit_lab.studies.contexts.contest import ArmTallies, run_contest
from tacit_lab.studies.contexts.setting import PAPER
from tacit_lab.studies.gather.setting import (
    NEARLY_ALL,
    PRECISE_ENOUGH,
    SEEDS,
    Gathering,
    OurNoise,
    PaperNoise,
    coverage_rows,
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
from tacit_lab.studies.plotting import Mechanism, Series
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

NAME = "gather-away"
AWAY = ("0", "0.25", "0.5", "0.75")
EXACT, SERVERS = "exact", "ours, noise by servers"

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


ARMS = {
    EXACT: Gathering(),
    **{paper_arm(away): Gathering(PaperNoise(epsilon=1, away=Fraction(away))) for away in AWAY},
    **{our_arm(away): Gathering(OurNoise(epsilon=1, away=Fraction(away))) for away in AWAY},
    SERVERS: Gathering(OurNoise(epsilon=1, by=NoiseBy.SERVERS)),
}


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    held = run_contest(asked, NAME, trial_sources(asked), ARMS)
    table, rows = coverage_rows(held.found)
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=data_words(held),
        parameters={**shared_parameters(list(ARMS)), "away": list(AWAY)},
        table=[*table, *_contrasts(held.found)],
        columns=("statistics", f"coverage at precision {PRECISE_ENOUGH:g}"),
        rows=rows,
        panels=make_panels([("Private statistics", _lines(held.found))]),
        axes=Axes("t, the fraction that may leave its noise out", f"coverage at precision {PRECISE_ENOUGH:g}"),
    )


def _lines(arms: Mapping[str, ArmTallies]) -> list[Series | None]:
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


def _contrasts(arms: Mapping[str, ArmTallies]) -> Iterator[bootstrap.Row]:
    for several in (paper_arm, our_arm):
        away, everybody = (arms[several(each)].everything for each in (AWAY[-1], AWAY[0]))
        yield bootstrap.contrast_row(
            share_name(several(AWAY[-1]), several(AWAY[0])), kept_share(away, everybody)
        )
    gained = compare(arms[SERVERS].everything, arms[our_arm(AWAY[-1])].everything, coverage_at(PRECISE_ENOUGH))
    yield bootstrap.contrast_row(difference_name(SERVERS, our_arm(AWAY[-1])), gained)


def judge(kept: ResultFiles) -> list[Finding]:
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
    return Finding(
        T14,
        f"coverage at precision {PRECISE_ENOUGH:g} rises, whole interval over people",
        f"{say(gained)}: from {coverage_words(kept, our_arm(AWAY[-1]))} to {coverage_words(kept, SERVERS)}",
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Statistics where people may be away or leave their noise out",
    PAPER,
    "figure 7(b)",
    (M9, T14),
    {StudyScale.TOY: 0.3, StudyScale.SMALL: 0.8, StudyScale.FULL: 90.0},
    SEEDS,
    run,
    judge,
)
