"""Public rates of conversions: what is expected of them, corrected by what rounds counted, context by context.

    book = ConversionRates(base, statistics, hierarchy, version="conversion-statistics 12")
    book.rates([node], [7], BidEvent.CONVERSION)

`base` says what is expected where nothing was counted: a model of conversions, or clicks in the proportion of
the market's defaults. `statistics` are impressions and conversions (in the place of clicks) that a round
released. Everything but conversions is the base's.

From the most general context down to the one that is asked for, what is expected of a cell is the base's rate,
times how far the context above it was from the base's; and its own counts correct that, by the formula by which
clicks correct a model (`correct_by_counts`). A campaign without counts has the base's rate, times how far all
campaigns together are from it. Conversions are rare, and the noise in a cell is often larger than its count:
the formula then leaves the cell where the context above it is, and a whole release of noise leaves the base.
Nothing is taken to be impossible: where the base says less than `least`, that is expected, so that counts have
something to correct.

    Guarantee:  none of its own.
    Neighbours: those of the base and of the statistics, whose statements stand with their versions.
    Assumes:    counts that were released, or are public.
    Source:     `correct_by_counts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.server.modelled_rates import STRENGTH, correct_by_counts
from tacit.deliver.server.rate_book import ContextsBelow, RateBook
from tacit.deliver.server.released_statistics import ReleasedStatistics
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser
from tacit.schema.contexts.listed import node_above

CONVERSION = BidEvent.CONVERSION


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Counts of a node, by campaign in rising order, and how many contexts they are sums of, at most."""

    campaign: Integers
    hits: Floats
    shown: Floats
    contexts: int


def _sum_up(counted: ReleasedStatistics, places: Sequence[int]) -> NodeSums:
    at = np.concatenate([np.arange(*counted.offsets[each : each + 2]) for each in places])
    campaign, entry = np.unique(counted.campaign[at], return_inverse=True)
    hits, shown = (np.bincount(entry, of[at], len(campaign)) for of in (counted.clicks, counted.shown))
    return NodeSums(campaign, hits.astype(np.float64), shown.astype(np.float64), len(places))


class ConversionRates:
    """A `RateBook` whose conversions are corrected by counts along the hierarchy.

    strength  impressions that what is expected of a cell is worth beside its counts
    least     the smallest rate that is expected before counts are looked at
    """

    def __init__(
        self,
        base: RateBook,
        statistics: ReleasedStatistics,
        hierarchy: Hierarchy,
        *,
        version: str,
        strength: float = STRENGTH,
        least: float = 0.0,
    ) -> None:
        expect.kind("statistics", statistics, ReleasedStatistics)
        if statistics.levels not in hierarchy.levels():
            raise BadInput(f"statistics: expected contexts at levels of the hierarchy, got {statistics.levels}")
        self.version, self._base, self._statistics = version, base, statistics
        self._hierarchy, self._strength = hierarchy, float(expect.positive("strength", strength))
        self._least = float(expect.probability("least", least, zero=True))
        self._summed: dict[Levels, dict[Node, NodeSums]] = {}

    def __repr__(self) -> str:
        return brief(self, version=self.version, base=self._base)

    def below(self, node: Node) -> ContextsBelow:
        return self._base.below(node)

    def rates(self, nodes: Sequence[Node], campaigns: Sequence[int], event: BidEvent) -> Floats:
        if event is not CONVERSION or not len(nodes):
            return self._base.rates(nodes, campaigns, event)
        found = np.empty((len(nodes), len(campaigns)))
        by_levels: dict[Levels, list[int]] = {}
        for row, node in enumerate(nodes):
            by_levels.setdefault(node.levels, []).append(row)
        for levels, rows in by_levels.items():
            found[rows] = self._at([nodes[row] for row in rows], levels, campaigns)
        return found

    def _at(self, nodes: Sequence[Node], levels: Levels, campaigns: Sequence[int]) -> Floats:
        """Nodes of one level, from the top down: what is expected, and what the counts of each step make of
        it."""
        factor = np.full((len(nodes), len(campaigns)), self._of_all)
        for coarser in self._steps(levels):
            above = [node_above(self._hierarchy, node, coarser) for node in nodes]
            known = [row for row, node in enumerate(above) if node is not None]
            distinct = list(dict.fromkeys(node for node in above if node is not None))
            if not distinct:
                continue
            place = {node: at for at, node in enumerate(distinct)}
            at = np.array([place[node] for node in above if node is not None], np.int64)
            expected = self._expected(distinct, campaigns)
            hits, shown, noise = self._cells(coarser, distinct, campaigns)
            base = expected[at]
            before = np.clip(base * factor[known], 0.0, 1.0)
            after = correct_by_counts(before, hits[at], shown[at], noise[at], self._strength)
            factor[known] = np.divide(after, base, out=np.ones_like(after), where=base > 0)
        rates: Floats = np.clip(self._expected(nodes, campaigns) * factor, 0.0, 1.0)
        return rates

    def _expected(self, nodes: Sequence[Node], campaigns: Sequence[int]) -> Floats:
        rates: Floats = np.maximum(self._base.rates(nodes, campaigns, CONVERSION), self._least)
        return rates

    def _steps(self, levels: Levels) -> list[Levels]:
        """Levels that were counted, from the most general down to these: of several ways the first."""
        found: list[Levels] = []
        for each in reversed(self._hierarchy.levels()):
            counted = is_coarser(each, self._statistics.levels) and is_coarser(each, levels)
            if counted and (not found or is_coarser(found[-1], each)):
                found.append(each)
        return found

    def _cells(
        self, levels: Levels, nodes: Sequence[Node], campaigns: Sequence[int]
    ) -> tuple[Floats, Floats, Floats]:
        """(nodes, campaigns) conversions and impressions, 0 of 0 where none were counted; (nodes, 1) the
        variance of the noise in each."""
        hits, shown = np.zeros((len(nodes), len(campaigns))), np.zeros((len(nodes), len(campaigns)))
        noise, wanted = np.zeros((len(nodes), 1)), np.array(campaigns, np.int64)
        sums = self._sums(levels)
        for row, node in enumerate(nodes):
            if node in sums:
                each = sums[node]
                at = np.minimum(np.searchsorted(each.campaign, wanted), len(each.campaign) - 1)
                there = np.flatnonzero(each.campaign[at] == wanted)
                hits[row, there], shown[row, there] = each.hits[at[there]], each.shown[at[there]]
                noise[row] = self._statistics.noise_sd**2 * each.contexts
        return hits, shown, noise

    def _sums(self, levels: Levels) -> dict[Node, NodeSums]:
        """What was counted in each node of a level, summed once."""
        if levels not in self._summed:
            counted, lying = self._statistics, dict[Node, list[int]]()
            for place, node in enumerate(counted.nodes):
                above = node_above(self._hierarchy, node, levels)
                if above is not None and counted.offsets[place] < counted.offsets[place + 1]:
                    lying.setdefault(above, []).append(place)
            self._summed[levels] = {node: _sum_up(counted, places) for node, places in lying.items()}
        return self._summed[levels]

    @cached_property
    def _of_all(self) -> float:
        """All conversions that were counted over those that were expected, corrected likewise; 1 where nothing
        was counted."""
        counted = self._statistics
        where = np.repeat(np.arange(len(counted.nodes)), np.diff(counted.offsets))
        column = np.searchsorted(np.array(counted.campaigns, np.int64), counted.campaign)
        if not len(column):
            return 1.0
        rates = self._expected(counted.nodes, counted.campaigns)[where, column]
        weight = np.maximum(counted.shown, 0).astype(np.float64)
        if not weight.any():
            return 1.0
        mean = float((rates * weight).sum() / weight.sum())
        hits, shown = (np.array([float(each.sum())]) for each in (counted.clicks, counted.shown))
        noise = counted.noise_sd**2 * len(column)
        corrected = correct_by_counts(np.array([mean]), hits, shown, noise, self._strength)
        return float(corrected[0]) / mean if mean > 0 else 1.0
