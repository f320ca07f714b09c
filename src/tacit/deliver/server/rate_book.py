"""Public rates by context and campaign, as menus are made of them: fixed ones, and those of gathered counts.

    book = CountedRates(nodes, {BidEvent.CLICK: counts}, campaigns=(7, 9), version="round 12")
    book.rates([node], [7, 9, 11], BidEvent.CLICK)         # (1, 3); 11 has no counts: the rate of all ads

A score is bid x rate, whatever the bid is for: the rate is the public chance that an impression in a context
leads to the campaign's event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels, Node, is_coarser
from tacit.schema.contexts.listed import node_above
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.counts import Counts

if TYPE_CHECKING:  # it imports SciPy, which servers without counts do without
    from tacit.deliver.server.estimates import RateEstimator

DEVIATIONS = 4.0  # of the noise, that a total must pass to be believed
MOST_HELD = 0.8  # of a node's requests, that a level's believable nodes must hold


@dataclass(frozen=True, eq=False)
class ContextsBelow:
    """Contexts below a node, all of one level, and the chance of each given the node; none where there are no
    statistics of any."""

    nodes: tuple[Node, ...] = ()
    chance: Floats = field(default_factory=lambda: np.empty(0))


class RateBook(Protocol):
    """Rates at one version of statistics or of a model. Asked from any thread, again and again."""

    @property
    def version(self) -> str:
        """Another one wherever any rate may have changed; books of the same version say the same."""

    def rates(self, nodes: Sequence[Node], campaigns: Sequence[int], event: BidEvent) -> Floats:
        """(nodes, campaigns) the public chance of the event of an impression there, in 0..1; of an impression
        1. A cell is the same whatever else is asked beside it."""

    def below(self, node: Node) -> ContextsBelow:
        """What is known of where requests of a node come from: candidates are selected to suit all of them."""


@dataclass(frozen=True)
class FixedRates:
    """The same rates everywhere, before anything is known: of a click, and of a conversion."""

    click: float = 0.01
    conversion: float = 0.001

    def __post_init__(self) -> None:
        for name in ("click", "conversion"):
            expect.probability(name, getattr(self, name), zero=True, one=True)

    @property
    def version(self) -> str:
        return f"fixed {self.click!r} {self.conversion!r}"

    def rate(self, event: BidEvent) -> float:
        known = {BidEvent.CLICK: self.click, BidEvent.CONVERSION: self.conversion}
        return known.get(event, 1.0)

    def rates(self, nodes: Sequence[Node], campaigns: Sequence[int], event: BidEvent) -> Floats:
        return np.full((len(nodes), len(campaigns)), self.rate(event))

    def below(self, node: Node) -> ContextsBelow:  # noqa: ARG002 (nothing is known of any)
        return ContextsBelow()


NOTHING_COUNTED = FixedRates()


class CountedRates:
    """Rates of counts along a hierarchy, each cell drawn towards its parents' (by moment shrinkage, unless
    another estimator is given).

    nodes            the contexts that were counted, and their names; counts' nodes are numbered as there
    counts           clicks among impressions (or requests), and conversions where they were counted too
    campaigns        which campaign each of the counts' ads is
    default          what holds where nothing was counted
    fewest_requests  a context below a node is named only if at least so many requests were counted there (with
                     noise: and four deviations more)

    A context that was not counted has the rates of the finest one above it that was. A campaign that was not
    has the rate of all ads together. Conversions that were not counted follow clicks, in the proportion of the
    defaults.

    Guarantee:  none of its own.
    Neighbours: those of the counts.
    Assumes:    counts that are public, or released with differential privacy of their own.
    Source:     Hardt and Nath, CCS 2012, section 4.
    """

    def __init__(
        self,
        nodes: ContextNodes,
        counts: Mapping[BidEvent, Counts],
        campaigns: Sequence[int],
        *,
        version: str,
        default: FixedRates = NOTHING_COUNTED,
        estimator: RateEstimator | None = None,
        fewest_requests: float = 10.0,
    ) -> None:
        from tacit.deliver.server.estimates import has_statistics, overall_rate
        from tacit.deliver.server.moment_shrinkage import MomentShrinkage

        expect.kind("nodes", nodes, ContextNodes)
        if BidEvent.CLICK not in counts or BidEvent.IMPRESSION in counts:
            raise BadInput("expected counts of clicks, and of conversions or not, got others")
        numbers = np.array(campaigns, np.int64)
        if len(np.unique(numbers)) < len(numbers):
            raise BadInput("expected different campaigns, got one twice")
        for event, each in counts.items():
            if each.ads != len(numbers):
                raise BadInput(
                    f"counts of {event}: expected {len(numbers)} ads, one per campaign, got {each.ads}"
                )
        self._nodes, self._counts, self.version, self.default = nodes, dict(counts), version, default
        self._estimate = MomentShrinkage().only_rates if estimator is None else _rates_of(estimator)
        self._fewest = expect.at_least_zero("fewest_requests", fewest_requests)
        self._ad = {number: ad for ad, number in enumerate(numbers.tolist())}
        self._known = {
            event: {levels: has_statistics(each, levels) for levels in each.levels}
            for event, each in counts.items()
        }
        tops = {event: overall_rate(each, each.levels[-1]) for event, each in counts.items()}
        self._places: dict[tuple[BidEvent, Node], tuple[Levels, int]] = {}
        self._unseen = {event: top or default.rate(event) for event, top in tops.items()}

    def __repr__(self) -> str:
        return brief(self, version=self.version, campaigns=len(self._ad), contexts=self._nodes.rows)

    def rates(self, nodes: Sequence[Node], campaigns: Sequence[int], event: BidEvent) -> Floats:
        if event is BidEvent.IMPRESSION:
            return np.ones((len(nodes), len(campaigns)))
        counts = self._counts.get(event)
        if counts is None:
            return np.minimum(self.rates(nodes, campaigns, BidEvent.CLICK) * self._conversions_per_click, 1.0)
        found = np.full((len(nodes), len(campaigns)), self._unseen[event])
        ads = np.array([self._ad.get(each, -1) for each in campaigns], np.int64)
        seen = np.flatnonzero(ads >= 0)
        by_level: dict[Levels, list[tuple[int, int]]] = {}
        for row, node in enumerate(nodes):
            levels, place = self._place(event, node)
            if place >= 0 and self._known[event][levels][place]:
                by_level.setdefault(levels, []).append((row, place))
        for levels, pairs in by_level.items() if len(seen) else ():
            rows, places = np.array(pairs, np.int64).T
            found[np.ix_(rows, seen)] = self._estimate(counts, levels, places, ads[seen])
        return found

    def below(self, node: Node) -> ContextsBelow:
        counts = self._counts[BidEvent.CLICK]
        here, place = self._place(BidEvent.CLICK, node)
        if place < 0 or here != node.levels:
            return ContextsBelow()
        whole = counts.at(here).total[place]
        for levels in (each for each in counts.levels if each != here and is_coarser(here, each)):
            level = counts.at(levels)
            inside: Integers = np.flatnonzero(self._nodes.parent(levels, here) == place)
            total = level.total[inside]
            sure = (total > 0) & (total >= float(self._fewest) + DEVIATIONS * level.noise_sd)
            held = float(total[sure].sum())
            if sure.any() and held >= MOST_HELD * whole:
                names = tuple(self._nodes.name(levels, each) for each in inside[sure].tolist())
                return ContextsBelow(names, total[sure] / held)
        return ContextsBelow()

    @cached_property
    def _conversions_per_click(self) -> float:
        return self.default.conversion / self.default.click if self.default.click else 0.0

    def _place(self, event: BidEvent, node: Node) -> tuple[Levels, int]:
        """The finest level with counts at which the node, or what it lies in, was counted; -1: none."""
        known = self._places.get((event, node))
        if known is None:
            known = self._places[event, node] = self._find(self._counts[event], node)
        return known

    def _find(self, counts: Counts, node: Node) -> tuple[Levels, int]:
        for levels in counts.levels:
            above = node_above(self._nodes.hierarchy, node, levels)
            if above is not None:
                try:
                    return levels, self._nodes.id(above)
                except BadInput:
                    continue  # it was not counted
        return node.levels, -1


def _rates_of(estimator: RateEstimator) -> Callable[[Counts, Levels, Integers, Integers], Floats]:
    def rates(counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> Floats:
        return estimator.rates(counts, levels, nodes, ads).rate

    return rates
