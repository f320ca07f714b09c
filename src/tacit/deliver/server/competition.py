"""Who competes where: the campaigns that take part in each context, with bid and public rate.

`MenuRules` says how menus are made; `Competition` applies what of it decides who takes part (`market` does the
rest): the most specific bid that holds, what is blocked or excluded, the floor and the reserve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.bill.protocol.menus import MOST_ENTRIES, MOST_PRICE_MICROS
from tacit.deliver.campaigns.campaign import AdCampaign, BidEvent, CampaignStatus
from tacit.deliver.protocol.packs import is_excluded
from tacit.deliver.protocol.plans import PlanMethod
from tacit.deliver.protocol.prices import BillingEvent, Rules, SecondPrice
from tacit.deliver.server.rate_book import ContextsBelow, RateBook
from tacit.deliver.server.values import most_specific_bid
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node, is_coarser
from tacit.schema.contexts.listed import ListedNodes

CELLS = 2**22
"""Contexts x campaigns whose rates are asked for at a time."""

MOST_BELOW = 16  # contexts below a node that ads are selected for: the likeliest


@dataclass(frozen=True)
class MenuRules:
    """How menus are made of campaigns.

    candidates       k: ads of a menu, at most
    price_per_ad     alpha, in micros per request: what an ad must add to be sent
    ctr_floor        campaigns with a lower click rate in a context take no part there
    cutoff           gamma: campaigns with a score below (1 - gamma) x the best are not sent
    reserve_micros   the least score that takes part
    finer_rates      rates at contexts below that a menu may hold beside its ads, those that matter most
    exclude          categories that are shown nowhere: "IAB8" stands for "IAB8-5" too
    exclude_in       categories that are not shown in some contexts
    epsilon, smallest_cohort, method   of the private choice: see `price_list`
    """

    epsilon: expect.Number
    smallest_cohort: int
    candidates: int = 8
    price_per_ad: float = 0.0
    ctr_floor: float = 0.0
    cutoff: float = 1.0
    reserve_micros: int = 0
    finer_rates: int = 32
    exclude: tuple[str, ...] = ()
    exclude_in: Mapping[Node, tuple[str, ...]] = field(default_factory=dict)
    method: PlanMethod = PlanMethod.TRUNC

    def __post_init__(self) -> None:
        if expect.whole("candidates", self.candidates, at_least=1) > MOST_ENTRIES:
            raise BadInput(f"candidates: expected at most {MOST_ENTRIES}, got {self.candidates}")
        expect.at_least_zero("price_per_ad", self.price_per_ad)
        expect.probability("ctr_floor", self.ctr_floor, zero=True, one=True)
        expect.whole("finer_rates", self.finer_rates, at_least=0)
        _ = self.auction

    @property
    def auction(self) -> Rules:
        return Rules(
            SecondPrice(BillingEvent.IMPRESSION), reserve_micros=self.reserve_micros, cutoff=self.cutoff
        )


class Competitors(NamedTuple):
    """Campaigns that compete in one context, by number; `below` has their rates in the contexts below it."""

    numbers: Integers  # (campaigns,)
    bids: Integers
    rates: Floats
    below: NDArray[np.float32]  # (campaigns, contexts below)

    @classmethod
    def none(cls, below: int) -> Competitors:
        whole: Integers = np.empty(0, np.int64)
        return cls(whole, whole, np.empty(0), np.empty((0, below), np.float32))

    def take(self, rows: Integers) -> Competitors:
        return Competitors(self.numbers[rows], self.bids[rows], self.rates[rows], self.below[rows])

    def replaced(self, known: Integers, new: Competitors) -> Competitors:
        """Without the rows at `known`, and with others instead; in place where these are the same campaigns."""
        if len(known) == len(new.numbers) and (self.numbers[known] == new.numbers).all():
            self.bids[known], self.rates[known], self.below[known] = new.bids, new.rates, new.below
            return self
        stay = np.ones(len(self.numbers), np.bool_)
        stay[known] = False
        numbers = np.concatenate([self.numbers[stay], new.numbers])
        order = np.argsort(numbers, kind="stable")
        return Competitors(
            numbers[order],
            np.concatenate([self.bids[stay], new.bids])[order],
            np.concatenate([self.rates[stay], new.rates])[order],
            np.concatenate([self.below[stay], new.below])[order],
        )

    def values(self, ctr_floor: float) -> NDArray[np.float32]:
        """(campaigns, contexts below) bid x rate, 0 where the rate is below the floor."""
        rates = np.where(self.below >= ctr_floor, self.below, np.float32(0)) if ctr_floor else self.below
        return np.asarray(self.bids[:, None] * rates, np.float32)


class Competition:
    """The contexts of a market at one book of rates: who takes part in each, and what below it is looked at."""

    def __init__(self, contexts: ListedNodes, rules: MenuRules, book: RateBook) -> None:
        expect.kind("contexts", contexts, ListedNodes)
        self.contexts, self.rules, self.book = contexts, rules, book
        self.below = [_likeliest(book.below(node)) for node in contexts.nodes]
        self._excluded = [(contexts.overlapping(node), out) for node, out in rules.exclude_in.items()]

    def takes_part(self, campaign: AdCampaign) -> bool:
        excluded = is_excluded(campaign.categories, self.rules.exclude)
        return campaign.status is CampaignStatus.ACTIVE and not excluded

    def competing(self, campaigns: Sequence[AdCampaign]) -> dict[int, Competitors]:
        """By context, those of the campaigns that take part there."""
        numbers: Integers = np.array([each.number for each in campaigns], np.int64)
        bids = np.stack([self._bids(each) for each in campaigns], axis=1)  # (contexts, campaigns)
        wanted = np.flatnonzero(bids.any(axis=1))
        nodes = [self.contexts.nodes[place] for place in wanted.tolist()]
        bids = bids[wanted]
        rates = self._rates(nodes, campaigns)
        scores = bids * rates
        takes = (scores > 0) & (scores >= self.rules.reserve_micros) & (scores <= MOST_PRICE_MICROS)
        if self.rules.ctr_floor:
            takes &= self.book.rates(nodes, numbers.tolist(), BidEvent.CLICK) >= self.rules.ctr_floor
        found = {}
        for at, below in self._rates_below(np.flatnonzero(takes.any(axis=1)), wanted, campaigns):
            chosen = np.flatnonzero(takes[at])
            finer = np.ascontiguousarray(below[:, chosen].T, np.float32)
            found[int(wanted[at])] = Competitors(numbers[chosen], bids[at, chosen], rates[at, chosen], finer)
        return found

    def _rates_below(
        self, touched: Integers, wanted: Integers, campaigns: Sequence[AdCampaign]
    ) -> Iterator[tuple[int, Floats]]:
        """(contexts below, campaigns) for each context that is touched, asked for in few large questions."""
        some: list[int] = []
        nodes: list[Node] = []

        def answered() -> Iterator[tuple[int, Floats]]:
            rates, first = self._rates(nodes, campaigns), 0
            for at in some:
                end = first + len(self.below[wanted[at]].nodes)
                yield at, rates[first:end]
                first = end

        for at in touched.tolist():
            some.append(at)
            nodes += self.below[wanted[at]].nodes
            if len(nodes) * len(campaigns) >= CELLS:
                yield from answered()
                some, nodes = [], []
        yield from answered()

    def _rates(self, nodes: Sequence[Node], campaigns: Sequence[AdCampaign]) -> Floats:
        """(nodes, campaigns) the public chance of what each bid is for."""
        found = np.ones((len(nodes), len(campaigns)))
        for event in BidEvent:
            columns = [place for place, each in enumerate(campaigns) if each.event is event]
            if columns and event is not BidEvent.IMPRESSION:
                numbers = [campaigns[place].number for place in columns]
                found[:, columns] = self.book.rates(nodes, numbers, event)
        return found

    def _bids(self, campaign: AdCampaign) -> Integers:
        """(contexts,) micros of the most specific bid that holds in each; 0 where it takes no part."""
        found: Integers = np.zeros(len(self.contexts), np.int64)
        levels = {bid.node.levels for bid in campaign.bids if bid.node is not None}
        of_same_length = len({len(each) for each in levels}) < 2
        nested = of_same_length and all(
            is_coarser(one, other) or is_coarser(other, one) for one, other in combinations(levels, 2)
        )
        general = [bid for bid in campaign.bids if bid.node is None]
        placed = [(bid.node, bid.micros) for bid in campaign.bids if bid.node is not None]
        for bid in general:
            found[:] = bid.micros
        if nested:  # one after another, the most specific last
            for node, micros in sorted(placed, key=lambda each: -sum(each[0].levels)):
                found[self.contexts.inside(node)] = micros
        else:
            holding: dict[int, list[tuple[Node, int]]] = {}
            for node, micros in placed:
                for place in np.flatnonzero(self.contexts.inside(node)).tolist():
                    holding.setdefault(place, []).append((node, micros))
            for place, several in holding.items():
                found[place] = most_specific_bid(several)
        for node in campaign.blocked:
            found[self.contexts.overlapping(node)] = 0
        for flags, out in self._excluded:
            if is_excluded(campaign.categories, out):
                found[flags] = 0
        return found


def _likeliest(below: ContextsBelow) -> ContextsBelow:
    """Few enough to be looked at; one alone is nothing to choose by."""
    if len(below.nodes) == 1:
        return ContextsBelow()
    if len(below.nodes) <= MOST_BELOW:
        return below
    kept = np.sort(np.argsort(-below.chance, kind="stable")[:MOST_BELOW])
    return ContextsBelow(tuple(below.nodes[each] for each in kept.tolist()), below.chance[kept])
