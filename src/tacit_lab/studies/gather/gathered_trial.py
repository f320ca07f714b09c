"""A trial whose server knows only what a private run released: noisy counts of a few levels.

Public are the map, the tree of kinds, which kind each place is of, and the contexts that may be asked about
(here all of the trace's; a list of all cells of the map would do as well, and be longer). Places bid on a
context by public facts: those of the kind that its query asks for, near enough. How likely a context is
follows from the noisy totals too: from that of the finest node above it with one above 0, shared equally
among the finest nodes below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from tacit.arrays import Flags, Floats, Integers
from tacit.entropy import Simulation
from tacit.gather.estimate.plan import RunPlan
from tacit.gather.estimate.published_noise import SupportRule
from tacit.gather.estimate.top_down import gather_counts
from tacit.gather.simulate.runs import SimulatedCount
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.counts import Counts, LevelCounts
from tacit_lab.studies.contexts.trial import EXACT, LOCATION, QUERY, VisitsTrial, group_by_key

REACH_KM = 5.0  # how far from a place people may be who are shown its ad
KM_PER_DEGREE = 111.2
DECIMALS = 5  # a location at level i keeps 5 - i decimals; all are kept at 0, none of it from level 6 on


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
