"""What the client knows by itself: own visits raise or lower the server's rates, and visited places are
kept.

Ads of visited places that were not sent may be shown only where nothing about the request is reported: this
study counts what people see, not what is billed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tacit.arrays import Floats, Integers
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.hierarchy import Sequence as Steps
from tacit.schema.contexts.nodes import ContextNodes
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import (
    compare,
    make_panels,
    measure,
    precision_at,
    rises,
    say,
    trade_off_line,
)
from tacit_lab.studies.contexts.contest import THRESHOLDS, ServingArm, run_contest
from tacit_lab.studies.contexts.setting import OF_VISITS, OURS, SEEDS, trial_sources, write_outcome
from tacit_lab.studies.contexts.trial import EXACT, LAST, VisitsTrial
from tacit_lab.studies.plotting import Mechanism
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

NAME = "contexts-history"
KEPT: tuple[Levels, ...] = ((6, 2, 1), (3, 2, 1))  # the kind of place asked for, then near here
COVERED = 0.5
SENT, OWN, CACHED = "rates as sent", "own history", "own history and visited places"
LOOKS = {SENT: Mechanism.DISCLOSURE, OWN: Mechanism.OURS, CACHED: Mechanism.OURS}
METRIC = f"precision at coverage {COVERED:g}"
GAINED = f"{METRIC}, {CACHED} less {SENT}"

T8 = Claim(
    "T8",
    "figure 6, rates as sent",
    "own history and the ads of visited places make a client more precise, and disclose nothing",
)


@dataclass(frozen=True)
class RememberedVisits:
    """What each test's device knew when it asked, as an arm's own rates."""

    known: dict[int, tuple[ClickHistory, DeviceContext, tuple[int, ...]]]
    cached: bool  # ads of visited places as well

    def __call__(self, test: int, ads: Integers, rates: Floats) -> tuple[Integers, Floats]:
        history, here, visited = self.known[test]
        if self.cached:
            more = np.setdiff1d(np.array(visited, np.int64), ads)
            ads, rates = np.concatenate([ads, more]), np.concatenate([rates, np.zeros(len(more))])
        return ads, history.rates(ads.tolist(), here, rates)


@dataclass(frozen=True)
class OwnHistory:
    """A client that remembers its visits; with ads of the places that it visited, if they are cached."""

    cached: bool

    def __call__(self, trial: VisitsTrial) -> RememberedVisits:
        return RememberedVisits(remember_visits(trial), self.cached)


@lru_cache(maxsize=1)  # for the other arm on the same trial
def remember_visits(trial: VisitsTrial) -> dict[int, tuple[ClickHistory, DeviceContext, tuple[int, ...]]]:
    """Of every test: the person's history before it, where they are, and the places they had visited."""
    trace = trial.trace
    here = _everywhere(trial)
    test_at = {int(row): test for test, row in enumerate(trial.tests)}
    people = set(trace.user[trial.tests].tolist())
    histories: dict[int, ClickHistory] = {}
    visited: dict[int, dict[int, None]] = {}
    found = {}
    for row, (person, place) in enumerate(zip(trace.user.tolist(), trace.place.tolist(), strict=True)):
        if person not in people:
            continue
        history = histories.get(person, ClickHistory(KEPT))
        if row in test_at:
            found[test_at[row]] = (history, here[row], tuple(visited.get(person, ())))
        histories[person] = history.with_click(place, here[row])
        visited.setdefault(person, {})[place] = None
    return found


def _everywhere(trial: VisitsTrial) -> list[DeviceContext]:
    """(rows,) where each was, at the levels that a history keeps: the finest of them tells the others."""
    steps = Steps(trial.trace.attributes, [EXACT, *reversed(KEPT)])
    nodes = ContextNodes.of(steps, trial.trace.context, steps.levels()[1:])
    finest = nodes.levels[0]
    above = {levels: nodes.parent(finest, levels).tolist() for levels in nodes.levels}
    places = []
    for at in range(nodes.count(finest)):
        path = tuple(nodes.name(levels, each[at]) for levels, each in above.items())
        places.append(DeviceContext(path, path[-1]))
    return [places[node] for node in nodes.of_row(finest).tolist()]


ARMS = {
    SENT: ServingArm(LAST),
    OWN: ServingArm(LAST, own=OwnHistory(cached=False)),
    CACHED: ServingArm(LAST, own=OwnHistory(cached=True)),
}


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    held = run_contest(asked, NAME, trial_sources(asked), ARMS)
    arms = held.found
    at = precision_at(COVERED)
    table, rows = [], []
    for name, arm in arms.items():
        for part, tally in arm.parts().items():
            figure = measure(tally, at)
            table.append(bootstrap.figure_row(figure, client=name, requests=part, metric=METRIC))
            rows.append((name, part, say(figure, otherwise="not reached")))
    gained = compare(arms[CACHED].everything, arms[SENT].everything, at)
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={
            "levels": list(LAST),
            "kept": [list(each) for each in KEPT],
            "thresholds": list(THRESHOLDS),
        },
        table=[*table, bootstrap.contrast_row(GAINED, gained)],
        columns=("client", "requests", METRIC),
        rows=rows,
        panels=make_panels(
            (title, [trade_off_line(name, getattr(arm, part), LOOKS[name]) for name, arm in arms.items()])
            for part, title in (("everything", "All requests"), ("discovery", "First visits"))
        ),
        axes=Axes("coverage", "precision", share_y=True),
    )


def judge(kept: ResultFiles) -> list[Finding]:
    gained = bootstrap.read_contrast(kept, GAINED)
    before, after = (
        say(bootstrap.read_figure(kept, client=name, requests="all", metric=METRIC), otherwise="not reached")
        for name in (SENT, CACHED)
    )
    return [
        Finding(
            T8,
            f"at (4,2,2), {METRIC} rises, whole interval over people",
            f"{say(gained)}: from {before} to {after}",
            rises(gained),
            why="nothing more is disclosed by construction",
        )
    ]


STUDY = Study(
    NAME,
    "What a client gains from its own history",
    OURS,
    "beside figure 6",
    (T8,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.6, StudyScale.FULL: 60.0},
    SEEDS,
    run,
    judge,
    OF_VISITS,
)
