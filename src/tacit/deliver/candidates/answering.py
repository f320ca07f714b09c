"""The server's answer to a disclosed node: the ads to send, and as many finer rates as fit beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.deliver.candidates.payments import Bid, Payments, expect_bids, most_specific
from tacit.deliver.candidates.selection import Selection, select
from tacit.deliver.candidates.values import ContextValues
from tacit.deliver.estimates.estimate import Estimator
from tacit.deliver.sent import Sent
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels, Node, is_coarser
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.statistics import Counts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Answer(NamedTuple):
    sent: Sent
    selection: Selection


class _FinerRate(NamedTuple):
    """What a device below `node` would know better with this rate: expected micros it is now off by."""

    worth: float
    node: Node
    ad: int
    rate: float


@dataclass(frozen=True, eq=False)
class CandidateServer:
    """Answers from public data alone: statistics that were gathered, and what ads pay.

    nodes      the contexts that are known, and their names
    counts     clicks and requests by node, exact or noisy
    estimator  from counts to rates
    bids       what ads pay for a click; a bid holds for requests that disclose its node or one below it, the
               most specific first. One on something finer than was disclosed does not hold: its price would
               tell the rest.
    ctr_floor  ads with a lower rate in a context are not shown there

    Guarantee:  none of its own: whoever answers has learnt the disclosed node, and nothing else of the person.
    Neighbours: two contexts that disclose the same node get the same answer.
    Assumes:    counts that are public, or released with differential privacy of their own.
    Source:     Hardt and Nath, CCS 2012, sections 2.1 and 3.2.
    """

    nodes: ContextNodes
    counts: Counts
    estimator: Estimator
    bids: Sequence[Bid]
    ctr_floor: float = 0.0

    def __post_init__(self) -> None:
        expect_bids(self.bids, range(self.counts.ads), self.nodes.hierarchy)

    def answer(self, node: Node, k: int, price_per_ad: float = 0.0, most_finer_rates: int = 1000) -> Answer:
        """At most k ads for a node, by greedy choice over the contexts below it (see `select`).

        `most_finer_rates` bounds what is sent beside the ads: of the rates below, those that matter most.
        """
        most = expect.whole("most_finer_rates", most_finer_rates, at_least=0)
        place = self.nodes.id(node)
        pays = self._pays(node, place)
        values = self._values(node, pays)
        selection = select(values, k, price_per_ad)
        if not len(selection.ads):
            raise BadInput(f"node {node}: expected an ad that earns more than it costs to send, got none")
        sent = np.sort(selection.ads)
        public = self.estimator.rates(self.counts, node.levels, np.array([place]), sent).rate[0]
        micros = np.array([pays[ad] for ad in sent.tolist()], np.int64)
        finer: dict[Node, dict[int, float]] = {}
        for each in sorted(self._finer(node, place, sent, public, micros), reverse=True)[:most]:
            finer.setdefault(each.node, {})[each.ad] = each.rate
        return Answer(Sent(node, sent, micros, public, finer), selection)

    def _values(self, node: Node, pays: dict[int, int]) -> ContextValues:
        """What ads are worth in the contexts below the node that were ever seen, as likely as they were."""
        exact = self.counts.levels[0]
        contexts = self._below(node, exact)
        total = np.maximum(self.counts.at(exact).total[contexts], 0.0)
        contexts, total = contexts[total > 0], total[total > 0]
        if not len(contexts):
            raise BadInput(f"node {node}: expected statistics of contexts below it, got none")
        ads = np.array(sorted(pays), np.int64)
        rates = np.ascontiguousarray(self.estimator.rates(self.counts, exact, contexts, ads).rate)
        payments = Payments(np.array([pays[ad] for ad in ads.tolist()], np.int64), ads)
        return ContextValues.of(rates, total / total.sum(), payments, self.ctr_floor)

    def _pays(self, node: Node, place: int) -> dict[int, int]:
        """Micros a click of the ads that have a count and a bid at the node."""
        level = self.counts.at(node.levels)
        listed = set(level.ad[level.offsets[place] : level.offsets[place + 1]].tolist())
        found: dict[int, list[Bid]] = {}
        for bid in self.bids:
            if bid.ad in listed and is_coarser(bid.node.levels, node.levels):
                above = self.nodes.parent(node.levels, bid.node.levels)[place]
                if self.nodes.name(bid.node.levels, int(above)) == bid.node:
                    found.setdefault(bid.ad, []).append(bid)
        pays = {ad: most_specific([(bid.node, bid.micros) for bid in bids]) for ad, bids in found.items()}
        pays = {ad: micros for ad, micros in pays.items() if micros}
        if not pays:
            raise BadInput(f"node {node}: expected ads with statistics and a bid that holds there, got none")
        return pays

    def _finer(
        self, node: Node, place: int, ads: Integers, public: Floats, micros: Integers
    ) -> Iterator[_FinerRate]:
        """Rates below the node that differ from the one above them, by how much that matters."""
        above = {node.levels: {place: public}}
        for levels in reversed(self.counts.levels):
            if levels == node.levels or not is_coarser(node.levels, levels):
                continue
            parent_levels = next(each for each in self.counts.parents(levels) if each in above)
            parent = self.counts.parent[levels, parent_levels]
            below = self._below(node, levels)
            below = below[self.counts.at(levels).total[below] > 0]
            rates = self.estimator.rates(self.counts, levels, below, ads).rate
            share = self.counts.at(levels).total[below] / self.counts.at(node.levels).total[place]
            above[levels] = dict(zip(below.tolist(), rates, strict=True))
            for at, own in enumerate(rates):
                known = above[parent_levels].get(int(parent[below[at]]))
                worth = share[at] * micros * np.abs(own - (public if known is None else known))
                for ad in np.flatnonzero(worth > 0).tolist():
                    name = self.nodes.name(levels, int(below[at]))
                    yield _FinerRate(float(worth[ad]), name, int(ads[ad]), float(own[ad]))

    def _below(self, node: Node, levels: Levels) -> Integers:
        """The nodes at finer levels that lie below this one."""
        return np.flatnonzero(self.nodes.parent(levels, node.levels) == self.nodes.id(node))
