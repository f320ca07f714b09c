"""The traces, runs and arms of the studies of private statistics.

A run asks about one level by default, (3,2,1): a cell of about a kilometre and the kind of place that is looked
for. The paper limits its descent to "1" as well. Where it asks about several, the coarsest comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from tacit import expect
from tacit.data.generators.visits import VisitsWorld
from tacit.data.logs.visits import with_contexts
from tacit.deliver.estimates.backing_off import BackOff
from tacit.deliver.estimates.estimate import Estimator
from tacit.gather.estimate.planning import NoiseBy, RunPlan, paper_variance, plan
from tacit.gather.estimate.support import AboveNoise
from tacit.gather.wire.contribution import Contribution
from tacit.gather.wire.noise import UserNoise
from tacit.gather.wire.promises import Promise
from tacit.privacy.noise.shares import SkellamShares
from tacit.schema.contexts.hierarchy import Levels
from tacit.studies import report
from tacit.studies.contexts.serving import Arm, serve
from tacit.studies.contexts.setting import THRESHOLDS, Contest, Found, Met, read, tallied
from tacit.studies.contexts.trace import trace_of
from tacit.studies.contexts.trial import LAST, Trial
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

outcome = partial(report.outcome, unit="device", relation="zero-out")

Planned = Callable[[int], RunPlan]  # by the number of devices


def paper_plan(devices: int, *, epsilon: expect.Number, away: expect.Number = 0) -> RunPlan:
    """The noise of corollary 4.3, by users, for one level; whole-numbered, where the paper rounds shares."""
    target = float(expect.exact("epsilon", epsilon))
    variance = paper_variance(levels=1, events=PAPER_EVENTS, epsilon=target, delta=float(PAPER_DELTA))
    noise = UserNoise(SkellamShares(Fraction(math.ceil(variance)), devices, expect.exact("away", away)))
    return RunPlan(Promise(PAPER_EVENTS, PAPER_EVENTS, 1, Fraction(epsilon), PAPER_DELTA), noise)


def our_plan(
    devices: int,
    *,
    epsilon: expect.Number,
    delta: Fraction | None = None,
    events: int = PAPER_EVENTS,
    each: int = 1,
    levels: int = 1,
    by: NoiseBy = NoiseBy.USERS,
    away: expect.Number = 0,
) -> RunPlan:
    """The least noise by exact accounting; by default devices are counted, and delta is far below 1 in them."""
    return plan(
        contribution=Contribution(events, each),
        levels=levels,
        parties=devices,
        epsilon=epsilon,
        delta=delta,
        by=by,
        silent=away,
        large_delta=True,
    )


@dataclass(frozen=True)
class Gathering:
    """An arm: how the counts are gathered, and the estimates made of them; without a plan they are exact."""

    plan: Planned | None = None
    levels: tuple[Levels, ...] = ONE_LEVEL
    estimator: Estimator | None = None  # None: back off where a total is not well above its noise

    def trial(self, exact: Trial, bids: PublicBids, seed: str) -> tuple[Trial, Estimator]:
        if self.plan is None:
            return exact, BackOff()
        people = devices(exact)
        run = self.plan(people)
        support = AboveNoise(FALSE_EXPANSIONS)
        back_off = BackOff(NEEDED * run.published_sd(people))
        return gathered(exact, bids, run, self.levels, support, seed), self.estimator or back_off


def contest(asked: Asked, name: str, arms: Mapping[str, Gathering]) -> Contest[str]:
    """All arms on each trace, with noise of their own."""
    found: dict[str, list[Found]] = {}
    met, people = Met(), 0
    for at, exact in enumerate(trials(asked)):
        met, people = met.beside(exact), people + devices(exact)
        bids = PublicBids(exact)
        for done, (arm, gathering) in enumerate(arms.items()):
            asked.track(f"{name}: trace {at + 1}", done, len(arms))
            trial, estimator = gathering.trial(exact, bids, f"{name} {at} {arm}")
            served = serve(trial, Arm(LAST, estimator=estimator), THRESHOLDS)
            found.setdefault(arm, []).append(tallied(trial, served))
    together = {arm: Found.together(each) for arm, each in found.items()}
    words = met.words(next(iter(together.values())))
    return Contest(together, f"{words}; {people:,} devices counted")


def trials(asked: Asked) -> Iterator[Trial]:
    tests = TESTS[asked.scale]
    if asked.data is not None:
        yield read(asked.data, tests * asked.seeds)
        return
    for seed in range(1, asked.seeds + 1):
        world = VisitsWorld(seed, median_visits=MEDIAN_VISITS, visits_spread=VISITS_SPREAD)
        drawn = world.batches(VISITS[asked.scale])
        yield Trial.of(trace_of(with_contexts(each.batch) for each in drawn), tests, seed)


def parameters(arms: Sequence[str]) -> dict[str, object]:
    return {
        "arms": list(arms),
        "thresholds": list(THRESHOLDS),
        "events": PAPER_EVENTS,
        "levels": [list(each) for each in ONE_LEVEL],
        "needed": NEEDED,
    }
