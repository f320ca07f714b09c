"""How many phases a protocol needs until a query is answered, when people come and go: closed forms and
simulation.

A *phase* is one message from the server to all people or from all people to the server (Hardt and Nath, CCS
2012, section 5.5). In a phase each person is away with probability `away`, independently of the others. An
*attempt* begins with a phase in which a set of people joins: all who are there. In each later phase it is
seen who of them is still there. A protocol that tolerates no loss needs every one of the set in every
phase; one that tolerates a share `t` needs (1 - t) N people who stayed throughout. A failed attempt is
tried again.

    SHI, RASTOGI   secrets that add up to a constant are dealt once; a query takes one phase (SHI) or two
                   (RASTOGI: sums, then shares of the key; the server's message between them is not counted,
                   which is kind to it). A dealing is in place when a query comes; after a loss secrets are
                   dealt again.
    ACS            people announce themselves, then send: two phases with the same people.
    Count          Hardt and Nath's: people commit in two phases, which takes three messages; or one upload.
    DAP            one upload as well; the two servers then speak with each other, which no person waits for.
    SecAgg         four rounds; fewer than (1 - t) N people left after any of them ends the attempt.

In simulation only numbers of people are kept: those of the set who are still here, those here who are not
of the set, and those away. That is all the protocols see, so a million people cost as much as ten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from tacit import expect
from tacit.deliver.auction.metrics import REACH
from tacit.errors import BadInput


@dataclass(frozen=True)
class Churn:
    """How people come and go: a share `away` of phases, `stay_away` phases at a time on average.

    Two states, here and away, with chances to leave and to return that give these figures. With `stay_away` =
    1 / (1 - away) phases are independent of each other; None means that. Longer absences leave the share as it
    is: people leave less often.
    """

    away: float
    stay_away: float | None = None

    def __post_init__(self) -> None:
        expect.probability("away", self.away, zero=True)
        if self.stay_away is not None and not self.stay_away >= 1:
            raise BadInput(f"expected stay_away >= 1 phase, got {self.stay_away!r}")
        if self.leaving > 1:
            raise BadInput(f"expected stay_away >= {self.away / (1 - self.away):g}, got {self.stay_away!r}")

    @property
    def returning(self) -> float:
        """The chance that somebody who is away is back in the next phase."""
        return 1 - self.away if self.stay_away is None else 1 / self.stay_away

    @property
    def leaving(self) -> float:
        """The chance that somebody who is here is away in the next phase."""
        return self.away if self.stay_away is None else self.away / ((1 - self.away) * self.stay_away)


@dataclass(frozen=True)
class QueryProtocol:
    """An attempt: a phase in which people join, then `later` phases with the same people.

    `tolerated` is the share of all people who may be missing in the end; None: nobody who joined may.
    `in_place`: when a query comes, people have joined already. `at_each_phase`: too great a loss ends an
    attempt at once, else it is seen when the attempt is over. `between_servers` messages are no phases.
    """

    name: str
    later: int
    tolerated: float | None = None
    in_place: bool = False
    at_each_phase: bool = True
    between_servers: int = 0

    @property
    def optimum(self) -> int:
        """Phases a query takes when nobody is ever away."""
        return self.later + (0 if self.in_place else 1)

    def fewest(self, people: int) -> int:
        """How many must have stayed, where losses are tolerated: (1 - t) N, rounded up past rounding errors."""
        assert self.tolerated is not None
        return math.ceil(people * (1 - self.tolerated) - 1e-9)


TOLERATED = 0.25
"""The share of people whose absence Count, DAP and SecAgg survive here; the paper tries up to .75."""

SHI = QueryProtocol("SHI", later=1, in_place=True)
RASTOGI = QueryProtocol("RASTOGI", later=2, in_place=True)
ACS = QueryProtocol("ACS", later=1)
COUNT_COMMIT = QueryProtocol("Count, two-phase commit", 2, TOLERATED, at_each_phase=False)
COUNT = QueryProtocol("Count, one upload", 0, TOLERATED, at_each_phase=False, between_servers=2)
DAP = QueryProtocol("DAP-like", 0, TOLERATED, at_each_phase=False, between_servers=2)
SECAGG = QueryProtocol("SecAgg-like", 3, TOLERATED)
RIVALS = (SHI, RASTOGI, ACS)
PROTOCOLS = (*RIVALS, COUNT_COMMIT, COUNT, DAP, SECAGG)


def expected_phases(protocol: QueryProtocol, people: int, churn: Churn) -> float:
    """The mean number of phases until a query is answered; infinite where no attempt can succeed in floats.

    Let r_j be the chance that an attempt is alive j phases after people joined. Where a loss ends attempts at
    once they take r_0 + ... + r_(later-1) later phases on average, else all of them; they fail 1 / r_later - 1
    times on average, and each failure costs joining again. A person is away at first, or there and stays, with
    probability away + (1 - away) (1 - leaving)^j: where no loss is tolerated r_j is its N-th power (for a small
    share away nearly q^j, with q = (1 - away)^N the chance that all are there). Where losses are tolerated r_j
    is the chance that a binomial of N and (1 - away) (1 - leaving)^j reaches (1 - t) N.

    Exact for independent phases. For longer absences each attempt is taken as if people had settled in between,
    which leaves out that the state after a failure is not quite the usual one.
    """
    expect.whole("people", people, at_least=1)
    alive = _alive(protocol, people, churn)  # (later + 1,), after 0, 1, ... later phases
    if alive[-1] <= 0:
        return math.inf
    retries = 1 / alive[-1] - 1
    if protocol.in_place:
        return float((alive[:-1].sum() + (1 - alive[-1])) / alive[-1])
    if protocol.at_each_phase:
        return float((1 + alive[:-1].sum()) / alive[-1])
    return float((protocol.later + 1) * (1 + retries))


def _alive(protocol: QueryProtocol, people: int, churn: Churn) -> NDArray[np.float64]:
    steps = np.arange(protocol.later + 1)
    if protocol.tolerated is None:
        left = (1 - churn.away) * (1 - (1 - churn.leaving) ** steps)  # joined, and gone since
        return np.asarray(np.exp(people * np.log1p(-left)), dtype=np.float64)
    stays = (1 - churn.away) * (1 - churn.leaving) ** steps
    return np.asarray(binom.sf(protocol.fewest(people) - 1, people, stays), dtype=np.float64)


def people_until(protocol: QueryProtocol, churn: Churn, factor: float, most: int = 10**9) -> int | None:
    """The least number of people at which a query takes `factor` times as many phases as without churn."""
    bar = factor * protocol.optimum
    if expected_phases(protocol, most, churn) < bar:
        return None
    low, high = 0, most  # phases rise with people: where losses are not tolerated, always
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if expected_phases(protocol, middle, churn) >= bar else (middle, high)
    return high


Counts = NDArray[np.int64]  # one for each query


@dataclass(frozen=True, eq=False)
class SimulatedQueries:
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


def phases_words(mean: float, standard_error: float, unanswered: int) -> str:
    """Mean phases with their interval at 95%."""
    return f"more than {mean:,.0f}" if unanswered else f"{mean:,.2f} ± {REACH * standard_error:.2g}"


@dataclass(frozen=True, eq=False)
class _People:
    """Numbers of people for every query that is still open."""

    members: Counts  # of the attempt's set, here without a break since they joined
    idle: Counts  # here, not of the set
    away: Counts

    @classmethod
    def settle(cls, people: int, churn: Churn, queries: int, draws: np.random.Generator) -> _People:
        away = draws.binomial(people, churn.away, queries).astype(np.int64)
        return cls(np.zeros(queries, np.int64), people - away, away)

    def next_phase(self, churn: Churn, draws: np.random.Generator) -> _People:
        lost = draws.binomial(self.members, churn.leaving)
        gone = draws.binomial(self.idle, churn.leaving)
        back = draws.binomial(self.away, churn.returning)
        return _People(self.members - lost, self.idle - gone + back, self.away + lost + gone - back)

    def join(self, here: NDArray[np.bool_]) -> _People:
        """For queries where people join in this phase: all who are here."""
        members = np.where(here, self.members + self.idle, self.members)
        return _People(members, np.where(here, 0, self.idle), self.away)

    def only(self, kept: NDArray[np.bool_]) -> _People:
        return _People(self.members[kept], self.idle[kept], self.away[kept])


def simulate_queries(
    protocol: QueryProtocol,
    people: int,
    churn: Churn,
    *,
    queries: int,
    limit: int,
    draws: np.random.Generator,
) -> SimulatedQueries:
    """Answer `queries` queries, each from a settled state of its own; give up on one after `limit` phases."""
    expect.whole("people", people, at_least=1)
    expect.whole("queries", queries, at_least=1)
    state = _People.settle(people, churn, queries, draws)
    step = np.zeros(queries, np.int64)  # phases of the attempt so far; in the first of them people join
    if protocol.in_place:
        state = state.join(np.ones(queries, np.bool_))
        step += 1
    joined = state.members
    finished: list[Counts] = []
    for phase in range(1, limit + 1):
        if phase > 1 or protocol.in_place:
            state = state.next_phase(churn, draws)
        first = step == 0
        state = state.join(first)
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
    return SimulatedQueries(np.concatenate([*finished, np.full(left, limit, np.int64)]), limit, left)
