"""Figure 7(b): noise for people who may leave theirs out, over the fraction t of them, and noise by servers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from tacit.gather.estimate.planning import NoiseBy
from tacit.studies.contexts.clustered import compared, coverage_at, measured
from tacit.studies.contexts.figures import line, panels, rises, said
from tacit.studies.contexts.setting import PAPER, Found
from tacit.studies.gather.kept import NEARLY_ALL, PRECISE_ENOUGH, coverages, kept_share, nearly_all_kept
from tacit.studies.gather.setting import (
    SEEDS,
    Gathering,
    contest,
    our_plan,
    outcome,
    paper_plan,
    parameters,
)
from tacit.studies.plotting import Mechanism, Series
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "gather-away"
AWAY = ("0", "0.25", "0.5", "0.75")
EXACT, SERVERS = "exact", "ours, noise by servers"


def paper_arm(away: str) -> str:
    return f"published noise, t {float(away):g}"


def our_arm(away: str) -> str:
    return f"ours, noise by users, t {float(away):g}"


ARMS = {
    EXACT: Gathering(),
    **{paper_arm(away): Gathering(partial(paper_plan, epsilon=1, away=away)) for away in AWAY},
    **{our_arm(away): Gathering(partial(our_plan, epsilon=1, away=away)) for away in AWAY},
    SERVERS: Gathering(partial(our_plan, epsilon=1, by=NoiseBy.SERVERS)),
}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, ARMS)
    table, rows = coverages(held.found)
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={**parameters(list(ARMS)), "away": list(AWAY)},
        table=table,
        columns=("statistics", f"coverage at precision {PRECISE_ENOUGH:g}"),
        rows=rows,
        findings=[_mild(held.found), _servers(held.found)],
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


def _mild(arms: Mapping[str, Found]) -> Finding:
    share, ours = (
        kept_share(arms[arm(AWAY[-1])].everything, arms[arm(AWAY[0])].everything)
        for arm in (paper_arm, our_arm)
    )
    return Finding(
        "M9",
        "up to three quarters of people may be away or malicious, with a mild effect",
        f"of the coverage at precision {PRECISE_ENOUGH:g} that t = 0 has, t = .75 keeps at least "
        f"{NEARLY_ALL:.0%}, whole interval over people; fails if the whole interval is below",
        f"keeps {said(share, otherwise='nothing to keep')} (with our noise {said(ours, otherwise='nothing')})",
        nearly_all_kept(share),
    )


def _servers(arms: Mapping[str, Found]) -> Finding:
    gained = compared(arms[SERVERS].everything, arms[our_arm(AWAY[-1])].everything, coverage_at(PRECISE_ENOUGH))
    return Finding(
        "T14",
        "where three quarters of people may leave noise out, noise by both servers covers more",
        f"coverage at precision {PRECISE_ENOUGH:g} rises, whole interval over people",
        said(gained),
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Statistics where people may be away or leave their noise out",
    PAPER,
    "figure 7(b)",
    ("M9", "T14"),
    {Scale.TOY: 0.3, Scale.SMALL: 4.0, Scale.FULL: 90.0},
    SEEDS,
    run,
)
