"""Figure 7(b): noise for people who may leave theirs out, over the fraction t of them, and noise by servers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from fractions import Fraction

from tacit.gather.estimate.planning import NoiseBy
from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import compared, coverage_at, measured
from tacit.studies.contexts.contest import Found, contest
from tacit.studies.contexts.figures import line, panels, rises, said
from tacit.studies.contexts.setting import PAPER
from tacit.studies.gather.covered import (
    NEARLY_ALL,
    PRECISE_ENOUGH,
    coverages,
    covered,
    kept_share,
    less,
    nearly_all_kept,
    share_of,
)
from tacit.studies.gather.setting import (
    SEEDS,
    Gathering,
    OurNoise,
    PaperNoise,
    outcome,
    parameters,
    sources,
    words,
)
from tacit.studies.plotting import Mechanism, Series
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study

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


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, sources(asked), ARMS)
    table, rows = coverages(held.found)
    return outcome(
        NAME,
        asked,
        began=began,
        data=words(held),
        parameters={**parameters(list(ARMS)), "away": list(AWAY)},
        table=[*table, *_contrasts(held.found)],
        columns=("statistics", f"coverage at precision {PRECISE_ENOUGH:g}"),
        rows=rows,
        panels=panels([("Private statistics", _lines(held.found))]),
        axes=Axes("t, the fraction that may leave its noise out", f"coverage at precision {PRECISE_ENOUGH:g}"),
    )


def _lines(arms: Mapping[str, Found]) -> list[Series | None]:
    """Exact statistics, which cover far more, are in the table alone."""
    over_t = {
        "published noise": (map(paper_arm, AWAY), Mechanism.COUNT),
        "ours, noise by users": (map(our_arm, AWAY), Mechanism.OURS),
        SERVERS: ([SERVERS] * len(AWAY), Mechanism.OURS),
    }
    at = coverage_at(PRECISE_ENOUGH)
    return [
        line(name, list(map(float, AWAY)), [measured(arms[arm].everything, at) for arm in several], look)
        for name, (several, look) in over_t.items()
    ]


def _contrasts(arms: Mapping[str, Found]) -> Iterator[tabled.Row]:
    for several in (paper_arm, our_arm):
        away, everybody = (arms[several(each)].everything for each in (AWAY[-1], AWAY[0]))
        yield tabled.contrast(share_of(several(AWAY[-1]), several(AWAY[0])), kept_share(away, everybody))
    gained = compared(arms[SERVERS].everything, arms[our_arm(AWAY[-1])].everything, coverage_at(PRECISE_ENOUGH))
    yield tabled.contrast(less(SERVERS, our_arm(AWAY[-1])), gained)


def judge(kept: Kept) -> list[Finding]:
    return [_mild(kept), _servers(kept)]


def _mild(kept: Kept) -> Finding:
    share, ours = (
        tabled.contrast_of(kept, share_of(arm(AWAY[-1]), arm(AWAY[0]))) for arm in (paper_arm, our_arm)
    )
    return Finding(
        M9,
        f"of the coverage at precision {PRECISE_ENOUGH:g} that t = 0 has, t = .75 keeps at least "
        f"{NEARLY_ALL:.0%}, whole interval over people; fails if the whole interval is below",
        f"keeps {said(share, otherwise='nothing to keep')} (with our noise {said(ours, otherwise='nothing')})",
        nearly_all_kept(share),
    )


def _servers(kept: Kept) -> Finding:
    gained = tabled.contrast_of(kept, less(SERVERS, our_arm(AWAY[-1])))
    return Finding(
        T14,
        f"coverage at precision {PRECISE_ENOUGH:g} rises, whole interval over people",
        f"{said(gained)}: from {covered(kept, our_arm(AWAY[-1]))} to {covered(kept, SERVERS)}",
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Statistics where people may be away or leave their noise out",
    PAPER,
    "figure 7(b)",
    (M9, T14),
    {Scale.TOY: 0.3, Scale.SMALL: 0.8, Scale.FULL: 90.0},
    SEEDS,
    run,
    judge,
)
