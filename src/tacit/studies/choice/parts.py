"""Parts and variants of a market: auctions of some sizes, and devices that know less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit.data.generators.markets import offsets_of
from tacit.deliver.auction.candidates import AuctionBlock, AuctionNames, Event, Floats, PublicCandidates, Rates
from tacit.studies.choice.setting import StudyMarket

Which = NDArray[np.bool_]  # one an auction


def of_sizes(market: StudyMarket, least: int, most: int) -> StudyMarket:
    """The auctions with least to most candidates."""

    def kept(block: AuctionBlock) -> Which:
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
        own, server = block.private, block.public.rates
        conversion = own.conversion
        if conversion is not None and server.conversion is not None:
            conversion = _between(conversion, server.conversion, alpha)
        blocks.append(replace(block, private=Rates(_between(own.click, server.click, alpha), conversion)))
    return replace(market, blocks=tuple(blocks), spread=alpha * market.spread, whole=market.whole or market)


def _between(own: Floats, server: Floats, alpha: float) -> Floats:
    return alpha * own + (1 - alpha) * server


def _part(market: StudyMarket, kept: Callable[[AuctionBlock], Which]) -> StudyMarket:
    blocks = tuple(_only(block, kept(block)) for block in market.blocks)
    return replace(market, blocks=blocks, whole=market.whole or market)


def _only(block: AuctionBlock, kept: Which) -> AuctionBlock:
    """Some auctions of a block, with all that is known of them."""
    public, sizes = block.public, np.diff(block.public.offsets)
    rows = np.repeat(kept, sizes)

    def of(rates: Rates) -> Rates:
        return Rates(rates.click[rows], None if rates.conversion is None else rates.conversion[rows])

    half = PublicCandidates(
        offsets_of(sizes[kept]),
        public.bid_micros[rows],
        of(public.rates),
        public.bids_for if isinstance(public.bids_for, Event) else public.bids_for[rows],
        None if public.campaign is None else public.campaign[rows],
        AuctionNames(public.names.some(np.flatnonzero(kept))),
    )
    return AuctionBlock(
        half,
        of(block.private),
        None if block.truth is None else of(block.truth),
        None if block.user is None else block.user[kept],
    )
