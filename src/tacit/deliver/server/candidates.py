"""The candidate server: ads for a disclosed context, as many finer rates as fit beside them, and their prices.

A menu is ranked and priced by public scores, before any device chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.protocol.menu import (
    NOTHING,
    Menu,
    check_ads,
    check_floor,
    check_micros,
    check_rates,
    least_bid,
)
from tacit.deliver.protocol.prices import Rules, setter_codes
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, ContextRatios, ScorePrior
from tacit.deliver.server.estimates import RateEstimator
from tacit.deliver.server.selection import (
    AdSelection,
    LevelSelection,
    Weighted,
    coarsest_level,
    select_ads,
    smallest_selection,
)
from tacit.deliver.server.values import Bid, ContextValues, Payments, expect_bids, most_specific_bid
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY, Pricing, RankedCandidates, rank_and_price
from tacit.schema.contexts.hierarchy import Levels, Node, is_coarser
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.counts import Counts

KEPT = 4096  # answers
DEVIATIONS = 4.0  # of the noise, that a total must pass to be believed
MOST = 0.8  # of a node's requests, that a level's believable nodes must hold


class CandidateAnswer(NamedTuple):
    """The menu for a disclosed node, and how its ads were selected."""

    menu: Menu
    selection: AdSelection


class _FinerRate(NamedTuple):
    """What a device below `node` would know better with this rate: expected micros it is now off by."""

    worth: float
    node: Node
    ad: int
    rate: float


@dataclass(frozen=True, eq=False)
class CandidateServer:
    """Answers from public data alone: statistics that were gathered, and what ads pay. Answers are kept.

    nodes            the contexts that are known, and their names
    counts           clicks and requests by node, exact or noisy
    estimator        from counts to rates
    bids             what ads pay for a click; a bid holds for requests that disclose its node or one below it,
                     the most specific first. One on something finer than was disclosed does not hold: its
                     price would tell the rest.
    ctr_floor        ads with a lower rate in a context are not shown there
    fewest_requests  a finer node is named in an answer only if at least this number of requests was counted
                     there (with noise: and four deviations more); an exact point where one person was once is
                     nobody's business
    rules            how menus are priced
    prior            what menus say of how far devices' scores are from the public ones: one for all, or by node

    Guarantee:  none of its own: whoever answers has learnt what was disclosed, and nothing else of the person.
    Neighbours: two contexts that disclose the same get the same answer.
    Assumes:    counts that are public, or released with differential privacy of their own; and nodes from a
                public list: that a context is known at all tells that somebody was there. `fewest_requests`
                keeps rare ones out of answers, and counts requests, not people.
    Source:     Hardt and Nath, CCS 2012, sections 2.1 and 3.2.
    """

    nodes: ContextNodes
    counts: Counts
    estimator: RateEstimator
    bids: Sequence[Bid]
    ctr_floor: float = 0.0
    fewest_requests: float = 10.0
    rules: Rules = field(default_factory=Rules)
    prior: ScorePrior | Callable[[Node], ScorePrior] = DEFAULT_PRIOR

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        expect.kind("counts", self.counts, Counts)
        expect.kind("nodes", self.nodes, ContextNodes)
        expect_bids(self.bids, range(self.counts.ads), self.nodes.hierarchy)
        expect.probability("ctr_floor", self.ctr_floor, zero=True, one=True)
        expect.at_least_zero("fewest_requests", self.fewest_requests)

    def answer(
        self,
        node: Node,
        k: int,
        price_per_ad: float = 0.0,
        most_finer_rates: int = 1000,
        without: tuple[Node, ...] = (),
        revenue_at_least: float | None = None,
    ) -> CandidateAnswer:
        """At most k ads for a node, by greedy choice over the contexts below it (see `select_ads`).

        With `revenue_at_least`, in micros per request, only as many as earn that (see `smallest_selection`);
        refused where k do not. `most_finer_rates` bounds what is sent beside the ads: of the rates below, those
        that matter most.
        `without` names children that would have been disclosed by themselves: the answer is for the rest.
        """
        return self._answers(node, k, price_per_ad, most_finer_rates, without, revenue_at_least)

    def coarsest(self, k: int, revenue_at_least: float) -> LevelSelection[Levels]:
        """The coarsest level at which k ads earn this many micros per request, if everybody discloses at it.

        Nodes count as often as they were counted; those that no ad wants earn nothing. Refused where no level
        earns so much.
        """
        return coarsest_level(tuple(reversed(self.counts.levels)), self._disclosing, k, revenue_at_least)

    def values(self, node: Node, without: tuple[Node, ...] = ()) -> ContextValues:
        """What ads are worth in the contexts below a node that were ever seen, as likely as they were.

        With noisy counts: at the finest level whose nodes above the noise hold most of the node's requests.
        """
        pays = self._pays(node)
        levels, contexts, chance = self._contexts(node, without)
        ads = np.array(sorted(pays), np.int64)
        rates = np.ascontiguousarray(self._rates(levels, contexts, ads))
        payments = Payments(np.array([pays[ad] for ad in ads.tolist()], np.int64), ads)
        return ContextValues.of(rates, chance, payments, self.ctr_floor)

    def send(
        self,
        node: Node,
        ads: Sequence[int],
        most_finer_rates: int = 1000,
        without: tuple[Node, ...] = (),
        public_rates: Floats | None = None,
    ) -> Menu:
        """The menu of these ads, ranked and priced, with what a device needs to know of them.

        They are ranked by the rates of the counts, or by `public_rates`, one for every ad by number: those of
        a model, say.
        """
        most = expect.whole("most_finer_rates", most_finer_rates, at_least=0)
        pays = self._pays(node)
        chosen = np.unique(np.asarray(ads, np.int64))
        for ad in chosen.tolist():
            if ad not in pays:
                raise BadInput(
                    f"node {node}: expected ads with statistics and a bid that holds there, got ad {ad}"
                )
        if public_rates is not None:
            public = np.asarray(public_rates, np.float64)[chosen]
        elif without:
            levels, contexts, chance = self._contexts(node, without)
            public = chance @ self._rates(levels, contexts, chosen)
        else:
            public = self._rates(node.levels, np.array([self.nodes.id(node)]), chosen)[0]
        micros = np.array([pays[ad] for ad in chosen.tolist()], np.int64)
        finer: dict[Node, dict[int, float]] = {}
        found = self._finer(node, without, chosen, public, micros) if most else ()
        for each in sorted(found, reverse=True)[:most]:
            finer.setdefault(each.node, {})[each.ad] = each.rate
        prior = self.prior(node) if callable(self.prior) else self.prior
        more: dict[str, Any] = {"finer": finer, "ctr_floor": self.ctr_floor, "prior": prior}
        return price_menu(node, chosen, micros, public, self.rules, **more)

    def plan_below(self, menu: Menu, without: tuple[Node, ...] = ()) -> Menu:
        """The same menu with the released rates of the contexts below its node as prior, in place of a guess.

        Contexts that are too rare to be named count as the node itself. What a device knows beyond its context
        (its own clicks) this prior does not know of: where that is much, mix it with another.
        """
        levels, contexts, chance = self._contexts(menu.node, without)
        level = self.counts.at(levels)
        common = level.total[contexts] >= self.fewest_requests + DEVIATIONS * level.noise_sd
        if levels == menu.node.levels or not common.any():
            raise BadInput(f"node {menu.node}: expected statistics of contexts below it to plan by, got none")
        ads = np.array([ad for ad in menu.ads if ad != NOTHING], np.int64)
        rates = self._rates(levels, contexts[common], ads)
        public = np.array([menu.rates[menu.place[ad]] for ad in ads.tolist()])
        ratios = np.where(public > 0, rates / np.where(public > 0, public, 1.0), 1.0)
        weights = chance[common]
        if not common.all():
            ratios, weights = np.vstack([ratios, np.ones(len(ads))]), np.r_[weights, 1 - weights.sum()]
        return replace(menu, prior=ContextRatios(tuple(map(tuple, ratios.tolist())), tuple(weights.tolist())))

    @cached_property
    def _answers(self) -> Callable[..., CandidateAnswer]:
        return lru_cache(KEPT)(self._answered)

    def _answered(
        self,
        node: Node,
        k: int,
        price_per_ad: float,
        most_finer_rates: int,
        without: tuple[Node, ...],
        revenue_at_least: float | None,
    ) -> CandidateAnswer:
        values = self.values(node, without)
        if revenue_at_least is None:
            selection = select_ads(values, k, price_per_ad)
        elif price_per_ad:
            raise BadInput("expected a price per ad or the revenue to reach, got both")
        else:
            selection = smallest_selection(values, revenue_at_least)
            if len(selection.ads) > expect.whole("k", k, at_least=1):
                needed = f"{len(selection.ads)} ads, which earn {revenue_at_least:.9g} micros per request"
                raise BadInput(f"node {node}: expected room for {needed}, got k = {k}")
        if not len(selection.ads):
            raise BadInput(f"node {node}: expected an ad that earns more than it costs to send, got none")
        return CandidateAnswer(self.send(node, selection.ads.tolist(), most_finer_rates, without), selection)

    def _disclosing(self, levels: Levels) -> Weighted:
        """The nodes of a level that ads want: how likely each is disclosed, and what ads are worth below it."""
        level = self.counts.at(levels)
        sure = np.flatnonzero((level.total > 0) & (level.total >= DEVIATIONS * level.noise_sd))
        chance = level.total[sure] / level.total[sure].sum()
        nodes = [self.nodes.name(levels, at) for at in sure.tolist()]
        wanted = (pair for pair in zip(chance.tolist(), nodes, strict=True) if self._bids_at(pair[1]))
        return [(likely, self.values(node)) for likely, node in wanted]

    def _rates(self, levels: Levels, nodes: Integers, ads: Integers) -> Floats:
        return self.estimator.rates(self.counts, levels, nodes, ads).rate

    def _contexts(self, node: Node, without: tuple[Node, ...]) -> tuple[Levels, Integers, Floats]:
        """Contexts below the node, all of one level, and how likely each is.

        Noise makes empty contexts look visited, and there are many: counted in, they would outweigh the others.
        So only nodes that pass the noise count, at a level where they still hold most of the requests.
        """
        for levels in (each for each in self.counts.levels if is_coarser(node.levels, each)):
            level = self.counts.at(levels)
            contexts = self._below(node, levels, without)
            total = level.total[contexts]
            sure = (total > 0) & (total >= DEVIATIONS * level.noise_sd)
            held, whole = total[sure].sum(), self.counts.at(node.levels).total[self.nodes.id(node)]
            if sure.any() and (not level.noise_sd or without or levels == node.levels or held >= MOST * whole):
                return levels, contexts[sure], total[sure] / held
        raise BadInput(f"node {node}: expected statistics of contexts below it, got none")

    def _pays(self, node: Node) -> dict[int, int]:
        """Micros per click of the ads that have a count and a bid at the node; some have."""
        pays = self._bids_at(node)
        if not pays:
            raise BadInput(f"node {node}: expected ads with statistics and a bid that holds there, got none")
        return pays

    def _bids_at(self, node: Node) -> dict[int, int]:
        """Micros per click of the ads that have a count and a bid at the node."""
        level, place = self.counts.at(node.levels), self.nodes.id(node)
        listed = set(level.ad[level.offsets[place] : level.offsets[place + 1]].tolist())
        found: dict[int, list[tuple[Node, int]]] = {}
        for bid in self.bids:
            if bid.ad in listed and is_coarser(bid.node.levels, node.levels):
                above = self.nodes.parent(node.levels, bid.node.levels)[place]
                if self.nodes.name(bid.node.levels, int(above)) == bid.node:
                    found.setdefault(bid.ad, []).append((bid.node, bid.micros))
        return {ad: micros for ad, bids in found.items() if (micros := most_specific_bid(bids))}

    def _finer(
        self, node: Node, without: tuple[Node, ...], ads: Integers, public: Floats, micros: Integers
    ) -> Iterator[_FinerRate]:
        """Rates below the node that differ from the one above them, by how much that matters."""
        above = {node.levels: {self.nodes.id(node): public}}
        for levels in reversed(self.counts.levels):
            if levels == node.levels or not is_coarser(node.levels, levels):
                continue
            parent_levels = next(each for each in self.counts.parents(levels) if each in above)
            parent = self.counts.parent[levels, parent_levels]
            level = self.counts.at(levels)
            below = self._below(node, levels, without)
            whole = np.maximum(level.total[below], 0.0).sum()
            below = below[level.total[below] >= self.fewest_requests + DEVIATIONS * level.noise_sd]
            below = below[level.total[below] > 0]
            rates = self._rates(levels, below, ads)
            above[levels] = dict(zip(below.tolist(), rates, strict=True))
            for at, own in zip(below.tolist(), rates, strict=True):
                known = above[parent_levels].get(int(parent[at]), public)
                worth = level.total[at] / whole * micros * np.abs(own - known)
                for ad in np.flatnonzero(worth > 0).tolist():
                    yield _FinerRate(
                        float(worth[ad]), self.nodes.name(levels, at), int(ads[ad]), float(own[ad])
                    )

    def _below(self, node: Node, levels: Levels, without: tuple[Node, ...]) -> Integers:
        """The nodes at finer levels that lie below this one, and not below those left out."""
        inside = self.nodes.parent(levels, node.levels) == self.nodes.id(node)
        for each in without:
            if each.levels == node.levels or not is_coarser(node.levels, each.levels):
                raise BadInput(f"node {node}: expected to leave out nodes below it, got {each}")
            if is_coarser(each.levels, levels):
                inside &= self.nodes.parent(levels, each.levels) != self.nodes.id(each)
        return np.flatnonzero(inside)


def price_menu(
    node: Node,
    ads: ArrayLike,
    bid_micros: ArrayLike,
    rates: ArrayLike,
    rules: Rules,
    *,
    finer: Mapping[Node, Mapping[int, float]] | None = None,
    ctr_floor: float = 0.0,
    prior: ScorePrior = DEFAULT_PRIOR,
) -> Menu:
    """The menu for a node: ads ranked by bid x public rate, ties in the order given, each priced by its rank.

    Prices are fixed before a device chooses, and whatever it chooses is charged at its own: so no price tells
    what only the device knows. With a floor, showing nothing is one more candidate, worth the floor times the
    least bid that pays at all: every ad that reaches the floor ranks before it, and all others after.

    Source: Algorithm 2 and appendix A.3 of Laro et al. 2023, where the server ranks and prices, the device
    chooses, and the server charges the price of the chosen.
    """
    numbers = check_ads(node, ads)
    bids, chances = check_micros(node, numbers, bid_micros), check_rates(node, numbers, rates)
    floor, worth, pricing = check_floor(ctr_floor), rules.empty_worth_micros, rules.pricing
    if floor:
        if rules.reserve_micros or rules.cutoff < 1 or worth is not None:
            raise BadInput("expected no reserve, cutoff and worth of an empty slot beside ctr_floor, got one")
        worth = floor * least_bid(bids)
        ranked = _rank_by_floor(bids, chances, floor, worth, pricing)
    else:
        ranked = _rank(np.arange(len(bids)), bids, chances, pricing)
    if not len(ranked.rows):
        raise BadInput(f"node {node}: expected an ad that reaches the reserve, got none")
    empty = ranked.rows == EMPTY
    campaign: Integers = np.array(numbers, np.int64)
    return Menu(
        node,
        np.where(empty, NOTHING, campaign[ranked.rows]),
        np.where(empty, 0, bids[ranked.rows]),
        np.where(empty, 0.0, chances[ranked.rows]),
        ranked.prices,
        setter_codes(ranked.rows, ranked.setters, campaign),
        price=rules.price,
        ctr_floor=floor,
        nothing_micros=worth,
        finer=finer,
        prior=prior,
    )


def _rank(rows: Integers, bids: Integers, rates: Floats, pricing: Pricing) -> RankedCandidates:
    """Some rows as one auction; the outcome names them by their numbers among all."""
    found = rank_and_price(np.array([0, len(rows)]), bids[rows], rates[rows], pricing)

    def named(places: Integers) -> Integers:
        own, numbers = places >= 0, places.copy()
        numbers[own] = rows[places[own]]
        return numbers

    return replace(found, rows=named(found.rows), setters=named(found.setters))


def _rank_by_floor(
    bids: Integers, rates: Floats, floor: float, worth: float, pricing: Pricing
) -> RankedCandidates:
    """What reaches the floor, then nothing, then the rest at no more than the least bid: two auctions, so that
    an ad whose score rounds to the worth of nothing still comes after it."""
    reaches = (rates >= floor) & (bids > 0)
    above = _rank(np.flatnonzero(reaches), bids, rates, replace(pricing, empty=worth))
    below = _rank(np.flatnonzero(~reaches), np.minimum(bids, least_bid(bids)), rates, pricing)
    columns = ("rows", "scores", "prices", "setters")
    joined = (np.concatenate([getattr(above, name), getattr(below, name)]) for name in columns)
    return RankedCandidates(np.array([0, len(above.rows) + len(below.rows)]), *joined)
