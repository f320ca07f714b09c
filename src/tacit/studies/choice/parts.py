"""Parts and variants of a market: auctions of some sizes, and devices that know less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit.data.generators.markets import offsets_of
from tacit.deliver.auction.candidates import AuctionBlock, AuctionNames, Event, PublicCandidates, Rates
from tacit.errors import BadInput
from tacit.studies.choice.setting import StudyMarket

Kept = NDArray[np.bool_]  # one an auction


def of_sizes(market: StudyMarket, least: int, most: int) -> StudyMarket:
    """The auctions with least to most candidates."""

    def kept(block: AuctionBlock) -> Kept:
        sizes = np.diff(block.public.offsets)
        return (sizes >= least) & (sizes <= most)

    return _part(market, kept)


def every_other(market: StudyMarket, first: int) -> StudyMarket:
    """Half of the auctions: those at even places of their block (first = 0), or those at odd ones (1)."""
    return _part(market, lambda block: np.arange(block.public.count) % 2 == first)


def mixed(market: StudyMarket, alpha: float) -> StudyMarket:
    """Devices whose rates are alpha of their own and 1 - alpha of the server's: eq. 6 of the paper."""
    blocks = []
    for block in market.blocks:
        rates = alpha * block.private.click + (1 - alpha) * block.public.rates.click
        blocks.append(replace(block, private=Rates(rates)))
    return replace(market, blocks=tuple(blocks), spread=alpha * market.spread, whole=market.whole or market)


def _part(market: StudyMarket, kept: Callable[[AuctionBlock], Kept]) -> StudyMarket:
    blocks = tuple(_only(block, kept(block)) for block in market.blocks)
    return replace(market, blocks=blocks, whole=market.whole or market)


def _only(block: AuctionBlock, kept: Kept) -> AuctionBlock:
    public = block.public
    if not isinstance(public.bids_for, Event):
        raise BadInput("expected bids for one kind of event, got several kinds")
    sizes = np.diff(public.offsets)
    rows = np.repeat(kept, sizes)
    names = AuctionNames(np.flatnonzero(kept) + public.names.first)

    def of(rates: Rates) -> Rates:
        return Rates(np.ascontiguousarray(rates.click[rows]))

    half = PublicCandidates(
        offsets_of(sizes[kept]), public.bid_micros[rows], of(public.rates), public.bids_for, names=names
    )
    return AuctionBlock(half, of(block.private), None if block.truth is None else of(block.truth))
