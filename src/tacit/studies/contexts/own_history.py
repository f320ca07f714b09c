"""What the client knows by itself: own visits raise or lower the server's rates, and visited places are kept.

Ads of visited places that were not sent may be shown only where nothing about the request is reported: this
study counts what people see, not what is billed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from tacit.deliver.client.here import Here
from tacit.deliver.client.history import History
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.hierarchy import Sequence as Steps
from tacit.studies.contexts.clustered import compared, measured, precision_at
from tacit.studies.contexts.figures import cells, panels, rises, said, trade_off
from tacit.studies.contexts.serving import Arm
from tacit.studies.contexts.setting import (
    OURS,
    SEEDS,
    THRESHOLDS,
    contest,
    outcome,
)
from tacit.studies.contexts.trace import Integers
from tacit.studies.contexts.trial import EXACT, LAST, Floats, Trial
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "contexts-history"
KEPT: tuple[Levels, ...] = ((6, 2, 1), (3, 2, 1))  # the kind of place asked for, then near here
COVERED = 0.5
SENT, OWN, CACHED = "rates as sent", "own history", "own history and visited places"
LOOKS = {SENT: Mechanism.DISCLOSURE, OWN: Mechanism.OURS, CACHED: Mechanism.OURS}


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


def remembered(trial: Trial) -> dict[int, tuple[History, Here, tuple[int, ...]]]:
    """Of every test: the person's history before it, where they are, and the places they had visited."""
    trace = trial.trace
    steps = Steps(trace.attributes, [EXACT, *reversed(KEPT)])
    test_at = {int(row): test for test, row in enumerate(trial.tests)}
    people = set(trace.user[trial.tests].tolist())
    histories: dict[int, History] = {}
    visited: dict[int, dict[int, None]] = {}
    found = {}
    for row, (person, place) in enumerate(zip(trace.user.tolist(), trace.place.tolist(), strict=True)):
        if person not in people:
            continue
        path = steps.path([trace.context[each.name][row] for each in trace.attributes])
        here = Here(path, path[-1])
        history = histories.get(person, History(KEPT))
        if row in test_at:
            found[test_at[row]] = (history, here, tuple(visited.get(person, ())))
        histories[person] = history.with_click(place, here)
        visited.setdefault(person, {})[place] = None
    return found


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, _arms)
    arms = held.found
    at = precision_at(COVERED)
    table, rows = [], []
    for name, arm in arms.items():
        for part, tally in arm.parts().items():
            figure = measured(tally, at)
            label = {"client": name, "requests": part, "metric": f"precision at {COVERED:g}"}
            table.append({**label, **cells(figure)})
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
        table=table,
        columns=("client", "requests", f"precision at coverage {COVERED:g}"),
        rows=rows,
        findings=[
            Finding(
                "T8",
                "own history and the ads of visited places make a client more precise, and disclose nothing",
                f"at (4,2,2), precision at coverage {COVERED:g} rises, whole interval over people",
                said(gained),
                rises(gained),
            )
        ],
        panels=panels(
            (title, [trade_off(name, getattr(arm, part), LOOKS[name]) for name, arm in arms.items()])
            for part, title in (("everything", "All requests"), ("discovery", "First visits"))
        ),
        axes=Axes("coverage", "precision", share_y=True),
    )


def _arms(trial: Trial) -> dict[str, Arm]:
    known = remembered(trial)
    own = {SENT: None, OWN: Remembered(known, cached=False), CACHED: Remembered(known, cached=True)}
    return {name: Arm(LAST, own=rescore) for name, rescore in own.items()}


STUDY = Study(
    NAME,
    "What a client gains from its own history",
    OURS,
    "beside figure 6",
    ("T8",),
    {Scale.TOY: 0.1, Scale.SMALL: 2.0, Scale.FULL: 60.0},
    SEEDS,
    run,
)
