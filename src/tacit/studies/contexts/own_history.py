"""What the client knows by itself: own visits raise or lower the server's rates, and visited places are kept.

Ads of visited places that were not sent may be shown only where nothing about the request is reported: this
study counts what people see, not what is billed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tacit.deliver.client.here import Here
from tacit.deliver.client.history import History
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.hierarchy import Sequence as Steps
from tacit.schema.contexts.nodes import ContextNodes
from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import compared, measured, precision_at
from tacit.studies.contexts.contest import contest
from tacit.studies.contexts.figures import panels, rises, said, trade_off
from tacit.studies.contexts.serving import THRESHOLDS, Arm
from tacit.studies.contexts.setting import OURS, SEEDS, outcome, sources
from tacit.studies.contexts.trace import Integers
from tacit.studies.contexts.trial import EXACT, LAST, Floats, Trial
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study

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
class Remembered:
    """What each test's device knew when it asked, as an arm's own rates."""

    known: dict[int, tuple[History, Here, tuple[int, ...]]]
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

    def __call__(self, trial: Trial) -> Remembered:
        return Remembered(remembered(trial), self.cached)


@lru_cache(maxsize=1)  # for the other arm on the same trial
def remembered(trial: Trial) -> dict[int, tuple[History, Here, tuple[int, ...]]]:
    """Of every test: the person's history before it, where they are, and the places they had visited."""
    trace = trial.trace
    here = _everywhere(trial)
    test_at = {int(row): test for test, row in enumerate(trial.tests)}
    people = set(trace.user[trial.tests].tolist())
    histories: dict[int, History] = {}
    visited: dict[int, dict[int, None]] = {}
    found = {}
    for row, (person, place) in enumerate(zip(trace.user.tolist(), trace.place.tolist(), strict=True)):
        if person not in people:
            continue
        history = histories.get(person, History(KEPT))
        if row in test_at:
            found[test_at[row]] = (history, here[row], tuple(visited.get(person, ())))
        histories[person] = history.with_click(place, here[row])
        visited.setdefault(person, {})[place] = None
    return found


def _everywhere(trial: Trial) -> list[Here]:
    """(rows,) where each was, at the levels that a history keeps: the finest of them tells the others."""
    steps = Steps(trial.trace.attributes, [EXACT, *reversed(KEPT)])
    nodes = ContextNodes.of(steps, trial.trace.context, steps.levels()[1:])
    finest = nodes.levels[0]
    above = {levels: nodes.parent(finest, levels).tolist() for levels in nodes.levels}
    places = []
    for at in range(nodes.count(finest)):
        path = tuple(nodes.name(levels, each[at]) for levels, each in above.items())
        places.append(Here(path, path[-1]))
    return [places[node] for node in nodes.of_row(finest).tolist()]


ARMS = {
    SENT: Arm(LAST),
    OWN: Arm(LAST, own=OwnHistory(cached=False)),
    CACHED: Arm(LAST, own=OwnHistory(cached=True)),
}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, sources(asked), ARMS)
    arms = held.found
    at = precision_at(COVERED)
    table, rows = [], []
    for name, arm in arms.items():
        for part, tally in arm.parts().items():
            figure = measured(tally, at)
            table.append(tabled.figure(figure, client=name, requests=part, metric=METRIC))
            rows.append((name, part, said(figure, otherwise="not reached")))
    gained = compared(arms[CACHED].everything, arms[SENT].everything, at)
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={
            "levels": list(LAST),
            "kept": [list(each) for each in KEPT],
            "thresholds": list(THRESHOLDS),
        },
        table=[*table, tabled.contrast(GAINED, gained)],
        columns=("client", "requests", METRIC),
        rows=rows,
        panels=panels(
            (title, [trade_off(name, getattr(arm, part), LOOKS[name]) for name, arm in arms.items()])
            for part, title in (("everything", "All requests"), ("discovery", "First visits"))
        ),
        axes=Axes("coverage", "precision", share_y=True),
    )


def judge(kept: Kept) -> list[Finding]:
    gained = tabled.contrast_of(kept, GAINED)
    before, after = (
        said(tabled.figure_of(kept, client=name, requests="all", metric=METRIC), otherwise="not reached")
        for name in (SENT, CACHED)
    )
    return [
        Finding(
            T8,
            f"at (4,2,2), {METRIC} rises, whole interval over people",
            f"{said(gained)}: from {before} to {after}",
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
    {Scale.TOY: 0.1, Scale.SMALL: 0.6, Scale.FULL: 60.0},
    SEEDS,
    run,
    judge,
)
