"""The traces, runs and arms of the studies of private statistics, and their coverage at a precision.

A run asks about one level by default, (3,2,1): a cell of about a kilometre and the kind of place that is
looked for. The paper limits its descent to "1" as well. Where it asks about several, the coarsest comes
first. Coverage is taken at a precision that noisy statistics still reach, and as the share that one arm
keeps of another's.

A `GatheredTrial` is one whose server knows only what a private run released: noisy counts of a few levels.
Public are the map, the tree of kinds, which kind each place is of, and the contexts that may be asked about
(here all of the trace's; a list of all cells of the map would do as well, and be longer). Places bid on a
context by public facts: those of the kind that its query asks for, near enough. How likely a context is
follows from the noisy totals too: from that of the finest node above it with one above 0, shared equally
among the finest nodes below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, lru_cache, partial
from typing import Protocol

import numpy as np

from tacit import expect
from tacit.arrays import Flags, Floats, Integers
from tacit.data.generators.visits import VisitsWorld
from tacit.deliver.server.estimates import RateEstimator
from tacit.deliver.server.shrinkage import BackOff
from tacit.entropy import Simulation
from tacit.gather.estimate.plan import CountNoiseLaw, NoiseBy, RunPlan, paper_variance, plan_run
from tacit.gather.estimate.published_noise import AboveNoise, SupportRule
from tacit.gather.estimate.top_down import gather_counts
from tacit.gather.protocol.noise import UserNoise
from tacit.gather.protocol.promises import Contribution, Promise
from tacit.gather.simulate.runs import SimulatedCount
from tacit.privacy.noise.shares import SkellamShares
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.counts import Counts, LevelCounts
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
from tacit_lab.studies.contexts.trial import EXACT, LAST, LOCATION, QUERY, VisitsTrial, group_by_key
from tacit_lab.studies.digests import spell_out
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Finding, StudyRequest, StudyScale

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
    return say(coverage_figure(kept, arm, precision))


def coverage_figure(kept: ResultFiles, arm: str, precision: float = PRECISE_ENOUGH) -> MeasuredValue:
    return bootstrap.read_figure(kept, statistics=arm, requests="all", precision=precision)


UNLESS = "; where neither covers anything, there is nothing to compare"


def if_any_is_covered(kept: ResultFiles, found: Finding, *arms: str) -> Finding:
    """A finding about arms, open where none of them covers anything: the log has too few people for either."""
    if any(coverage_figure(kept, arm).high > 0 for arm in arms):
        return found
    return replace(
        found, holds=None, why="too few people: neither covers anything", decider="a log of more people"
    )


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
PACKAGES = ("gather", "privacy", "entropy", "expect")
REACH_KM = 5.0  # how far from a place people may be who are shown its ad
KM_PER_DEGREE = 111.2
DECIMALS = 5  # a location at level i keeps 5 - i decimals; all are kept at 0, none of it from level 6 on

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
        return [VisitsFile.within(asked.data, tests * asked.seeds, asked.city)]
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


class PublicBids:
    """Callable as `gather.estimate.top_down.Bids`: levels and a node, back come its ads.

    A node is somewhere within a cell of the map, so a place bids on it from within its reach and the cell's
    diagonal of some context in it.
    """

    def __init__(self, trial: VisitsTrial) -> None:
        self._trial = trial
        queries, query = np.unique(np.asarray(trial.trace.context["query"]), return_inverse=True)
        self._queries = queries.tolist()
        self._row = query
        # A place's query is its kind, whoever asks: any visit to it tells.
        self._place = np.zeros(trial.trace.places, np.int64)
        self._place[trial.trace.place] = query
        self._here = np.asarray(trial.trace.context["location"], np.float64)
        self._at = cache(self._make_kinds)

    def __call__(self, levels: Levels, node: int) -> Integers:
        kind, here, ads = self._at(levels)
        of_kind = ads[int(kind[node])]
        reach = _reach_km(levels)
        if math.isinf(reach):
            return of_kind
        apart = self._trial.trace.point[of_kind] - here[node]
        apart[:, 1] *= math.cos(math.radians(here[node, 0]))
        near: Integers = of_kind[np.hypot(*apart.T) * KM_PER_DEGREE <= reach]
        return near

    def _make_kinds(self, levels: Levels) -> tuple[Integers, Floats, list[Integers]]:
        """(nodes,) each node's kind by its query, and where a context of it is; by kind the places."""
        attribute = self._trial.trace.attributes[QUERY]
        told = [attribute.generalise(query, levels[QUERY]) for query in self._queries]
        kinds, kind_of_query = np.unique(told, return_inverse=True)
        nodes, node = self._trial.nodes.count(levels), self._trial.nodes.of_row(levels)
        kind, here = np.zeros(nodes, np.int64), np.zeros((nodes, 2))
        kind[node], here[node] = kind_of_query[self._row], self._here
        of_place = kind_of_query[self._place]
        return kind, here, [np.flatnonzero(of_place == each) for each in range(len(kinds))]


def _reach_km(levels: Levels) -> float:
    decimals = DECIMALS - levels[LOCATION]
    if decimals < 0:
        return math.inf
    return REACH_KM + math.sqrt(2) * KM_PER_DEGREE * float(10) ** -decimals


@dataclass(frozen=True, eq=False)
class GatheredTrial(VisitsTrial):
    """`known_fully` has the same trace and tests, and exact counts."""

    known_fully: VisitsTrial
    gathered: Counts
    bids: PublicBids

    @cached_property
    def nodes(self) -> ContextNodes:
        return self.known_fully.nodes

    @cached_property
    def counts(self) -> Counts:
        return self.gathered

    def disclosed(self, levels: Levels) -> Integers:
        return self.known_fully.disclosed(levels)

    def known(self, levels: Levels) -> Mapping[int, tuple[Integers, Integers]]:
        """One context for each of the finest nodes that were asked about: those below it are all alike."""
        disclosed, contexts = self.disclosed(levels), np.flatnonzero(self._stands_for_node)
        at = np.asarray(self.nodes.parent(EXACT, levels), np.int64)
        return {
            node: (here, self.bids(levels, int(at[here[0]])))
            for node, here in group_by_key(disclosed, contexts).items()
        }

    @cached_property
    def weight(self) -> Floats:
        nodes = self.nodes.count(self._finest)
        found = np.zeros(nodes)
        for levels in self.gathered.levels[self.gathered.levels.index(self._finest) :]:  # the finest first
            above = np.asarray(self.nodes.parent(self._finest, levels), np.int64)
            share = self.gathered.by_level[levels].total / np.bincount(above)
            found = np.where(found > 0, found, np.maximum(share[above], 0.0))
        return np.where(self._stands_for_node, found[self.nodes.parent(EXACT, self._finest)], 0.0)

    @cached_property
    def _finest(self) -> Levels:
        return next(each for each in self.gathered.levels if len(self.gathered.by_level[each].ad))

    @cached_property
    def _stands_for_node(self) -> Flags:
        """(exact contexts,) the first of each of the finest nodes."""
        stands = np.zeros(self.nodes.count(EXACT), bool)
        stands[np.unique(self.nodes.parent(EXACT, self._finest), return_index=True)[1]] = True
        return stands


def count_devices(trial: VisitsTrial) -> int:
    """People with at least a visit in the part that is learnt from."""
    return len(np.unique(trial.trace.user[trial.learnt]))


def gather_trial(
    trial: VisitsTrial,
    bids: PublicBids,
    plan: RunPlan,
    levels: tuple[Levels, ...],
    support: SupportRule,
    seed: str,
) -> GatheredTrial:
    """The trial after a run over the learnt part, at these levels, the coarsest first."""
    rows = np.flatnonzero(trial.learnt)
    people, device = np.unique(trial.trace.user[rows], return_inverse=True)
    context = {name: [column[row] for row in rows.tolist()] for name, column in trial.trace.context.items()}
    nodes = trial.nodes.only(levels)
    count = SimulatedCount.of(
        nodes,
        context,
        device,
        trial.trace.place[rows],
        np.ones(len(rows), bool),  # a visit is a click
        devices=len(people),
        plan=plan,
        entropy=Simulation(seed),
    )
    run = gather_counts(nodes, trial.trace.places, plan, count, support=support, bids=bids)
    return GatheredTrial(trial.trace, trial.tests, trial, _on_all_levels(trial, run.counts), bids)


def _on_all_levels(trial: VisitsTrial, released: Counts) -> Counts:
    """Levels that were not asked about say nothing. Every request was an impression of every ad: the counts of
    impressions without a click, all zero but for noise, are of no use."""
    sd = max(level.noise_sd for level in released.by_level.values())
    by_level = {}
    for levels in trial.counts.levels:
        known = released.by_level.get(levels)
        by_level[levels] = _nothing(trial, levels, sd) if known is None else replace(known, shown=None)
    top = trial.counts.levels[-1]
    if top not in released.by_level:
        # That there is anybody at all is public; without it an estimator has nowhere to end.
        by_level[top] = replace(by_level[top], total=np.ones(trial.nodes.count(top)))
    return replace(trial.counts, by_level=by_level)


def _nothing(trial: VisitsTrial, levels: Levels, sd: float) -> LevelCounts:
    nodes, none = trial.nodes.count(levels), np.zeros(0)
    offsets, ad = np.zeros(nodes + 1, np.int64), np.zeros(0, np.int64)
    return LevelCounts(levels, nodes, trial.trace.places, np.zeros(nodes), offsets, ad, none, noise_sd=sd)
