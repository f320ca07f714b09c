"""The traces, runs and arms of the studies of private statistics, and their coverage at a precision.

A run asks about one level by default, (3,2,1): a cell of about a kilometre and the kind of place that is
looked for. The paper limits its descent to "1" as well. Where it asks about several, the coarsest comes
first. Coverage is taken at a precision that noisy statistics still reach, and as the share that one arm
keeps of another's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Protocol

import numpy as np

from tacit import expect
from tacit.arrays import Floats
from tacit.data.generators.visits import VisitsWorld
from tacit.deliver.server.estimates import RateEstimator
from tacit.deliver.server.shrinkage import BackOff
from tacit.gather.estimate.plan import CountNoiseLaw, NoiseBy, RunPlan, paper_variance, plan_run
from tacit.gather.estimate.published_noise import AboveNoise
from tacit.gather.protocol.noise import UserNoise
from tacit.gather.protocol.promises import Contribution, Promise
from tacit.privacy.noise.shares import SkellamShares
from tacit.schema.contexts.hierarchy import Levels
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies import report
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import PeopleTally, compare, coverage_at, measure, say
from tacit_lab.studies.contexts.contest import (
    THRESHOLDS,
    ArmTallies,
    ContestResult,
    ServedTests,
    ServingArm,
    TrialSource,
)
from tacit_lab.studies.contexts.setting import VisitsCity, VisitsFile
from tacit_lab.studies.contexts.trial import LAST, VisitsTrial
from tacit_lab.studies.digests import spell_out
from tacit_lab.studies.gather.gathered_trial import PublicBids, count_devices, gather_trial
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import StudyRequest, StudyScale

PRECISE_ENOUGH = 0.3
NEARLY_ALL = 0.9  # what a minor or mild difference may leave


def kept_share(one: PeopleTally, other: PeopleTally) -> MeasuredValue:
    """Of what the other covers; people paired. Nothing where the other covers none."""
    return compare(one, other, coverage_at(PRECISE_ENOUGH), by=_ratio)


def coverage_rows(arms: Mapping[str, ArmTallies]) -> tuple[list[bootstrap.Row], list[tuple[str, str]]]:
    """A table of all arms and parts, and rows for people of all requests."""
    table: list[bootstrap.Row] = []
    rows = []
    for arm, found in arms.items():
        for part, tally in found.parts().items():
            figure = measure(tally, coverage_at(PRECISE_ENOUGH))
            table.append(bootstrap.figure_row(figure, statistics=arm, requests=part, precision=PRECISE_ENOUGH))
            if part == "all":
                rows.append((arm, say(figure)))
    return table, rows


def difference_name(one: str, other: str, precision: float = PRECISE_ENOUGH) -> str:
    """The contrast of two arms."""
    return f"coverage at precision {precision:g}, {one} less {other}"


def share_name(one: str, other: str) -> str:
    return f"coverage at precision {PRECISE_ENOUGH:g}, {one} as a share of {other}"


def coverage_words(kept: ResultFiles, arm: str, precision: float = PRECISE_ENOUGH) -> str:
    """An arm's figure in words."""
    return say(bootstrap.read_figure(kept, statistics=arm, requests="all", precision=precision))


def nearly_all_kept(share: MeasuredValue) -> bool | None:
    if math.isnan(share.value):
        return None
    if share.low >= NEARLY_ALL:
        return True
    return False if share.high < NEARLY_ALL else None


def _ratio(one: Floats, other: Floats) -> Floats:
    return np.divide(one, other, out=np.full_like(one, np.nan), where=other > 0)


SEEDS = {StudyScale.TOY: 1, StudyScale.SMALL: 1, StudyScale.FULL: 3}
VISITS = {StudyScale.TOY: 3_000, StudyScale.SMALL: 300_000, StudyScale.FULL: 1_000_000}
TESTS = {StudyScale.TOY: 100, StudyScale.SMALL: 3_000, StudyScale.FULL: 10_000}
MEDIAN_VISITS, VISITS_SPREAD = 5.0, 1.0  # many people with few visits each, as in the paper's trace

ONE_LEVEL: tuple[Levels, ...] = ((3, 2, 1),)
PAPER_EVENTS, PAPER_DELTA = 4, Fraction(1, 100)
NEEDED = 10  # standard deviations of noise that a total must have before it is divided by
FALSE_EXPANSIONS = 0.1
PACKAGES = ("gather", "privacy", "entropy", "expect", "tacit_lab/studies/gather/gathered_trial")

write_outcome = partial(report.write_outcome, unit="device", relation="zero-out")


class NoisePlan(Protocol):
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
        return plan_run(
            contribution=Contribution(self.events, self.each),
            levels=self.levels,
            parties=devices,
            epsilon=self.epsilon,
            delta=self.delta,
            by=self.by,
            law=CountNoiseLaw.SKELLAM if self.by is NoiseBy.USERS else CountNoiseLaw.DISCRETE_GAUSSIAN,
            silent=self.away,
            large_delta=True,
        )


@dataclass(frozen=True)
class Gathering:
    """An arm: how the counts are gathered, and the estimates made of them; without noise they are exact."""

    noise: NoisePlan | None = None
    levels: tuple[Levels, ...] = ONE_LEVEL
    estimator: RateEstimator | None = None  # None: back off where a total is not well above its noise

    @property
    def packages(self) -> tuple[str, ...]:
        return PACKAGES

    def on(self, trial: VisitsTrial) -> ServedTests:
        """What people are shown, with noise of the arm's own."""
        if self.noise is None:
            return ServingArm(LAST, estimator=BackOff()).on(trial)
        people = count_devices(trial)
        run = self.noise.plan(people)
        seed = f"{spell_out(self)} {spell_out(trial.tests)}"
        known = gather_trial(trial, _bids(trial), run, self.levels, AboveNoise(FALSE_EXPANSIONS), seed)
        back_off = BackOff(NEEDED * run.published_sd(people))
        return ServingArm(LAST, estimator=self.estimator or back_off).on(known)


@lru_cache(maxsize=1)  # for the other arms on the same trial
def _bids(trial: VisitsTrial) -> PublicBids:
    return PublicBids(trial)


def trial_sources(asked: StudyRequest) -> Sequence[TrialSource]:
    tests = TESTS[asked.scale]
    if asked.data is not None:
        return [VisitsFile.within(asked.data, tests * asked.seeds)]
    first = VisitsWorld(1, median_visits=MEDIAN_VISITS, visits_spread=VISITS_SPREAD)
    worlds = [replace(first, seed=seed) for seed in range(1, asked.seeds + 1)]
    return [VisitsCity(world, VISITS[asked.scale], tests) for world in worlds]


def data_words(held: ContestResult[str]) -> str:
    return f"{held.words}; {held.met['devices']:,} devices counted"


def shared_parameters(arms: Sequence[str]) -> dict[str, object]:
    return {
        "arms": list(arms),
        "thresholds": list(THRESHOLDS),
        "events": PAPER_EVENTS,
        "levels": [list(each) for each in ONE_LEVEL],
        "needed": NEEDED,
    }
