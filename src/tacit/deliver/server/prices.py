"""The server's prices: a menu ranked and priced by public scores, before any device chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

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
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY, Pricing, RankedCandidates, rank_and_price
from tacit.schema.contexts.hierarchy import Node


def price_menu(
    node: Node,
    ads: ArrayLike,
    bid_micros: ArrayLike,
    rates: ArrayLike,
    rules: Rules,
    *,
    finer: Mapping[Node, Mapping[int, float]] | None = None,
    ctr_floor: float = 0.0,
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
