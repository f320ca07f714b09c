"""Small ragged auctions full of ties, zeros and equal scores, for the tests of auctions."""

from __future__ import annotations

import numpy as np

from tacit.deliver.auction.blocks import AuctionBlock, AuctionNames, PublicCandidates, Rates

RATES = np.array([0.0, 0.01, 0.02, 0.02, 0.05, 0.1, 0.5, 1.0])


def awkward_block(seed: int, auctions: int = 60, largest: int = 12, user: bool = False) -> AuctionBlock:
    """Few different bids and rates, so that scores tie often; some bids and rates are 0."""
    draws = np.random.default_rng(seed)
    sizes = draws.integers(1, largest + 1, size=auctions)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    total = int(offsets[-1])
    public = PublicCandidates(
        offsets,
        draws.choice(np.array([0, 1, 999, 1000, 2000, 5000, 123_457]), size=total),
        Rates(draws.choice(RATES, size=total)),
        campaign=draws.integers(7, size=total),
        names=AuctionNames(first=100),
    )
    users = draws.integers(9, size=auctions) if user else None
    return AuctionBlock(public, Rates(draws.choice(RATES, size=total)), user=users)


def smooth_block(seed: int, auctions: int, largest: int = 8) -> AuctionBlock:
    """Lognormal bids, and device rates around the server's: no ties."""
    draws = np.random.default_rng(seed)
    sizes = draws.integers(1, largest + 1, size=auctions)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    total = int(offsets[-1])
    server = 0.05 * np.exp(0.4 * draws.standard_normal(total))
    device = np.minimum(server * np.exp(0.8 * draws.standard_normal(total)), 1.0)
    bids = np.floor(1e6 * np.exp(0.5 * draws.standard_normal(total))).astype(np.int64)
    public = PublicCandidates(offsets, bids, Rates(np.minimum(server, 1.0)), campaign=np.arange(total) % 50)
    return AuctionBlock(public, Rates(device))
