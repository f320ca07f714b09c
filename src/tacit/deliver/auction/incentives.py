"""Incentives: what a bidder gains by bidding less than its value, under each price rule and choice.

Each bidder of each auction in turn bids its value times a factor while the others stay truthful. The auction
is offered, priced and chosen anew, by the same public rules; surplus is what the impression is truly worth to
the bidder less what it pays, an exact expectation over the choice by its law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import AuctionBlock, BidEvent, PublicCandidates, Rates, make_offers
from tacit.deliver.auction.market import Arm, private_scores
from tacit.deliver.protocol.prices import BillingEvent
from tacit.errors import BadInput

FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)


@dataclass(frozen=True, eq=False)
class BidShading:
    """Mean surplus per bidder and auction, in micros, at each factor; errors are over auctions.

    gain            surplus over that of the truthful bid; 0 at factor 1
    standard_error  of the gain
    """

    factors: tuple[float, ...]
    surplus: Floats
    gain: Floats
    standard_error: Floats
    bidders: int

    @property
    def best_factor(self) -> float:
        """The one factor that would serve an average bidder best; of equals, the one nearest the truth."""
        near = sorted(range(len(self.factors)), key=lambda place: abs(self.factors[place] - 1))
        return self.factors[max(near, key=lambda place: self.surplus[place])]

    @property
    def regret(self) -> float:
        """What truth costs an average bidder, as a share of its truthful surplus; 0 where truth is best."""
        truthful = float(self.surplus[self.factors.index(1.0)])
        return float(self.gain.max()) / truthful if truthful > 0 else math.nan


def measure_shading(block: AuctionBlock, arm: Arm, factors: Sequence[float] = FACTORS) -> BidShading:
    """Exact expected surplus of every bidder at every factor (1 is added), the others truthful.

    An auction of a candidates is run a times for each factor, so keep blocks small where a is large.
    """
    expect.kind("block", block, AuctionBlock)
    expect.kind("arm", arm, Arm)
    factors = expect.several("factors", factors)
    asked = {float(expect.positive("every factor", factor)) for factor in factors}
    tried = tuple(sorted(asked | {1.0}))
    copies = _one_bidder_each(block)
    # (bidders, factors)
    surplus = np.stack([_surplus(copies, arm, factor) for factor in tried], axis=1)
    gain = surplus - surplus[:, [tried.index(1.0)]]
    by_auction = np.stack(
        [np.bincount(copies.auction, column, block.public.count) for column in gain.T], axis=1
    )
    bidders, auctions = len(surplus), block.public.count
    mean = gain.mean(axis=0)
    sizes = np.diff(block.public.offsets)[:, None]
    residual = by_auction - sizes * mean  # of a ratio of sums over auctions
    error = np.sqrt((residual**2).sum(axis=0) * auctions / max(auctions - 1, 1)) / bidders
    return BidShading(tried, surplus.mean(axis=0), mean, error, bidders)


@dataclass(frozen=True, eq=False)
class _Copies:
    """One auction for every bidder: `own` is where that bidder's row is, `auction` which auction it was."""

    offsets: Integers
    rows: Integers
    own: Integers
    auction: Integers
    block: AuctionBlock


def _one_bidder_each(block: AuctionBlock) -> _Copies:
    if not block.public.count:
        raise BadInput("expected at least one auction, got none")
    starts, sizes = block.public.offsets[:-1], np.diff(block.public.offsets)
    auction = np.repeat(np.arange(len(sizes)), sizes)  # of each bidder
    width = sizes[auction]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(width)])
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], width)
    rows = np.repeat(starts[auction], width) + place
    own = offsets[:-1] + np.arange(len(auction)) - starts[auction]
    return _Copies(offsets, rows, own, auction, block)


def _surplus(copies: _Copies, arm: Arm, factor: float) -> Floats:
    """Each bidder's expected surplus in its own copy of the auction, where it bids factor x value."""
    public, rows = copies.block.public, copies.rows
    bids = public.bid_micros[rows]
    value = bids[copies.own]
    bids[copies.own] = np.floor(value * factor).astype(np.int64)
    events = public.bids_for if isinstance(public.bids_for, BidEvent) else public.bids_for[rows]
    tried = AuctionBlock(
        PublicCandidates(copies.offsets, bids, _taken(public.rates, rows), events, names=public.names),
        _taken(copies.block.private, rows),
    )
    offers = make_offers(tried.public, arm.rules)
    chance = np.zeros(len(bids))
    price = np.zeros(len(bids), np.int64)
    shown = offers.rows >= 0  # an empty slot is nobody's
    chance[offers.rows[shown]] = arm.choice.pmf(offers, private_scores(tried, offers))[shown]
    price[offers.rows[shown]] = offers.price_micros[shown]
    truth = copies.block.private if copies.block.truth is None else copies.block.truth
    rate = truth.of_event(public.bids_for)[rows][copies.own]
    paid = price[copies.own] * (rate if arm.rules.price.charged is BillingEvent.CLICK else 1.0)
    surplus: Floats = chance[copies.own] * (value * rate - paid)
    return surplus


def _taken(rates: Rates, rows: NDArray[np.int64]) -> Rates:
    return Rates(rates.click[rows], None if rates.conversion is None else rates.conversion[rows])
