"""The traces, runs and arms of the studies of private statistics.

A run asks about one level by default, (3,2,1): a cell of about a kilometre and the kind of place that is looked
for. The paper limits its descent to "1" as well. Where it asks about several, the coarsest comes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Protocol

from tacit import expect
from tacit.data.generators.visits import VisitsWorld
from tacit.deliver.estimates.backing_off import BackOff
from tacit.deliver.estimates.estimate import Estimator
from tacit.gather.estimate.planning import Law, NoiseBy, RunPlan, paper_variance, plan
from tacit.gather.estimate.support import AboveNoise
from tacit.gather.wire.contribution import Contribution
from tacit.gather.wire.noise import UserNoise
from tacit.gather.wire.promises import Promise
from tacit.privacy.noise.shares import SkellamShares
from tacit.schema.contexts.hierarchy import Levels
from tacit.studies import report
from tacit.studies.contexts.contest import Contest, Source
from tacit.studies.contexts.serving import THRESHOLDS, Arm, Served
from tacit.studies.contexts.setting import City, VisitsFile
from tacit.studies.contexts.trial import LAST, Trial
from tacit.studies.digests import spelled
from tacit.studies.gather.bids import PublicBids
from tacit.studies.gather.gathered import devices, gathered
from tacit.studies.study import Asked, Scale

SEEDS = {Scale.TOY: 1, Scale.SMALL: 1, Scale.FULL: 3}
VISITS = {Scale.TOY: 3_000, Scale.SMALL: 300_000, Scale.FULL: 1_000_000}
TESTS = {Scale.TOY: 100, Scale.SMALL: 3_000, Scale.FULL: 10_000}
MEDIAN_VISITS, VISITS_SPREAD = 5.0, 1.0  # many people with few visits each, as in the paper's trace

ONE_LEVEL: tuple[Levels, ...] = ((3, 2, 1),)
PAPER_EVENTS, PAPER_DELTA = 4, Fraction(1, 100)
NEEDED = 10  # standard deviations of noise that a total must have before it is divided by
FALSE_EXPANSIONS = 0.1
ROOMS = ("gather", "privacy", "entropy", "expect", "studies/gather/bids", "studies/gather/gathered")

outcome = partial(report.outcome, unit="device", relation="zero-out")


class Noise(Protocol):
    """How a run's noise is planned: a frozen value."""

    def plan(self, devices: int) -> RunPlan: ...


@dataclass(frozen=True)
class PaperNoise:
    """The noise of corollary 4.3, by users, for one level; whole-numbered, where the paper rounds shares."""

    epsilon: expect.Number
    away: Fraction = Fraction(0)

    def plan(self, devices: int) -> RunPlan:
        target = float(expect.exact("epsilon", self.epsilon))
        variance = paper_variance(levels=1, events=PAPER_EVENTS, epsilon=target, delta=float(PAPER_DELTA))
        shares = SkellamShares(Fraction(math.ceil(variance)), devices, self.away)
        promise = Promise(PAPER_EVENTS, PAPER_EVENTS, 1, Fraction(self.epsilon), PAPER_DELTA)
        return RunPlan(promise, UserNoise(shares))


@dataclass(frozen=True)
class OurNoise:
    """The least noise of a Gaussian shape by exact accounting; by default devices are counted, and delta is far
    below 1 in them. The law is named, so that arms differ in what they are about alone."""

    epsilon: expect.Number
    delta: Fraction | None = None
    events: int = PAPER_EVENTS
    each: int = 1
    levels: int = 1
    by: NoiseBy = NoiseBy.USERS
    away: Fraction = Fraction(0)

    def plan(self, devices: int) -> RunPlan:
        return plan(
            contribution=Contribution(self.events, self.each),
            levels=self.levels,
            parties=devices,
            epsilon=self.epsilon,
            delta=self.delta,
            by=self.by,
            law=Law.SKELLAM if self.by is NoiseBy.USERS else Law.DISCRETE_GAUSSIAN,
            silent=self.away,
            large_delta=True,
        )


@dataclass(frozen=True)
class Gathering:
    """An arm: how the counts are gathered, and the estimates made of them; without noise they are exact."""

    noise: Noise | None = None
    levels: tuple[Levels, ...] = ONE_LEVEL
    estimator: Estimator | None = None  # None: back off where a total is not well above its noise

    @property
    def rooms(self) -> tuple[str, ...]:
        return ROOMS

    def on(self, trial: Trial) -> Served:
        """What people are shown, with noise of the arm's own."""
        if self.noise is None:
            return Arm(LAST, estimator=BackOff()).on(trial)
        people = devices(trial)
        run = self.noise.plan(people)
        seed = f"{spelled(self)} {spelled(trial.tests)}"
        known = gathered(trial, _bids(trial), run, self.levels, AboveNoise(FALSE_EXPANSIONS), seed)
        back_off = BackOff(NEEDED * run.published_sd(people))
        return Arm(LAST, estimator=self.estimator or back_off).on(known)


@lru_cache(maxsize=1)  # for the other arms on the same trial
def _bids(trial: Trial) -> PublicBids:
    return PublicBids(trial)


def sources(asked: Asked) -> Sequence[Source]:
    tests = TESTS[asked.scale]
    if asked.data is not None:
        return [VisitsFile.within(asked.data, tests * asked.seeds)]
    first = VisitsWorld(1, median_visits=MEDIAN_VISITS, visits_spread=VISITS_SPREAD)
    worlds = [replace(first, seed=seed) for seed in range(1, asked.seeds + 1)]
    return [City(world, VISITS[asked.scale], tests) for world in worlds]


def words(held: Contest[str]) -> str:
    return f"{held.words}; {held.met['devices']:,} devices counted"


def parameters(arms: Sequence[str]) -> dict[str, object]:
    return {
        "arms": list(arms),
        "thresholds": list(THRESHOLDS),
        "events": PAPER_EVENTS,
        "levels": [list(each) for each in ONE_LEVEL],
        "needed": NEEDED,
    }
