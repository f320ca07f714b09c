"""The same protocols as walks through phases: people join, leave and return until a query is answered.

Of people only their numbers are kept: those of the set who are still here, those here who are not of the set,
and those away. That is all the protocols see, so a million people cost as much as ten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.studies.gather.phases import Churn, Protocol

Counts = NDArray[np.int64]  # one for each query


@dataclass(frozen=True, eq=False)
class Walked:
    """Phases taken by each query, in no order; queries that were not answered within `limit` have `limit`."""

    phases: Counts
    limit: int
    unanswered: int

    @property
    def mean(self) -> float:
        """Of all queries; a lower bound where some were not answered."""
        return float(self.phases.mean())

    @property
    def standard_error(self) -> float:
        return float(self.phases.std(ddof=1) / np.sqrt(len(self.phases))) if len(self.phases) > 1 else np.inf


def words(mean: float, standard_error: float, unanswered: int) -> str:
    """Mean phases with their interval at 95%."""
    return f"more than {mean:,.0f}" if unanswered else f"{mean:,.2f} ± {1.96 * standard_error:.2g}"


@dataclass(frozen=True, eq=False)
class _People:
    """Numbers of people for every query that is still open."""

    members: Counts  # of the attempt's set, here without a break since they joined
    idle: Counts  # here, not of the set
    away: Counts

    @classmethod
    def settled(cls, people: int, churn: Churn, queries: int, draws: np.random.Generator) -> _People:
        away = draws.binomial(people, churn.away, queries).astype(np.int64)
        return cls(np.zeros(queries, np.int64), people - away, away)

    def next_phase(self, churn: Churn, draws: np.random.Generator) -> _People:
        lost = draws.binomial(self.members, churn.leaving)
        gone = draws.binomial(self.idle, churn.leaving)
        back = draws.binomial(self.away, churn.returning)
        return _People(self.members - lost, self.idle - gone + back, self.away + lost + gone - back)

    def joined(self, here: NDArray[np.bool_]) -> _People:
        """For queries where people join in this phase: all who are here."""
        members = np.where(here, self.members + self.idle, self.members)
        return _People(members, np.where(here, 0, self.idle), self.away)

    def only(self, kept: NDArray[np.bool_]) -> _People:
        return _People(self.members[kept], self.idle[kept], self.away[kept])


def walk(
    protocol: Protocol,
    people: int,
    churn: Churn,
    *,
    queries: int,
    limit: int,
    draws: np.random.Generator,
) -> Walked:
    """Answer so many queries, each from a settled state of its own; give up on those beyond `limit` phases."""
    expect.whole("people", people, at_least=1)
    expect.whole("queries", queries, at_least=1)
    state = _People.settled(people, churn, queries, draws)
    step = np.zeros(queries, np.int64)  # phases of the attempt so far; in the first of them people join
    if protocol.in_place:
        state = state.joined(np.ones(queries, np.bool_))
        step += 1
    joined = state.members
    finished: list[Counts] = []
    for phase in range(1, limit + 1):
        if phase > 1 or protocol.in_place:
            state = state.next_phase(churn, draws)
        first = step == 0
        state = state.joined(first)
        joined = np.where(first, state.members, joined)
        step = step + 1
        enough = (
            state.members == joined if protocol.tolerated is None else state.members >= protocol.fewest(people)
        )
        over = step == protocol.later + 1
        answered = over & enough
        failed = ~enough & (over | protocol.at_each_phase)
        step = np.where(failed, 0, step)
        if answered.any():
            finished.append(np.full(np.count_nonzero(answered), phase, np.int64))
            state, step, joined = state.only(~answered), step[~answered], joined[~answered]
        if not len(step):
            break
    left = len(step)
    return Walked(np.concatenate([*finished, np.full(left, limit, np.int64)]), limit, left)
