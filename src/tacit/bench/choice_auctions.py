"""Auctions end to end (rank, price, cut, choose by randomized response, bill): ours, and in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.bill.charges import Charges, charge
from tacit.deliver.auction.candidates import AuctionBlock, PublicCandidates, Rates
from tacit.deliver.auction.choices import TopOf
from tacit.deliver.auction.market import Arm, show_block
from tacit.deliver.auction.rules import Rules
from tacit.entropy import Entropy

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EPSILON, CUTOFF, RESERVE = 5.0, 0.8, 100
CAMPAIGNS = 1000


@dataclass(frozen=True)
class Work:
    """Auctions of `size` candidates each; public and private columns as flat arrays."""

    offsets: Integers
    bid: Integers
    server: Floats
    device: Floats
    campaign: Integers

    @classmethod
    def made(cls, size: int, auctions: int) -> Work:
        """Lognormal bids around one currency unit, click rates around 5%, which devices know better."""
        draws = np.random.default_rng(size)
        total = size * auctions
        server = np.clip(0.05 * np.exp(0.5 * draws.standard_normal(total)), 0.0, 1.0)
        return cls(
            np.arange(auctions + 1, dtype=np.int64) * size,
            np.floor(1e6 * np.exp(0.8 * draws.standard_normal(total))).astype(np.int64),
            server,
            np.clip(server * np.exp(0.5 * draws.standard_normal(total)), 0.0, 1.0),
            draws.integers(CAMPAIGNS, size=total),
        )

    def parts(self, auctions: int) -> list[Work]:
        """The same in blocks of so many auctions."""
        cuts = range(0, len(self.offsets) - 1, auctions)
        return [self._part(first, min(first + auctions, len(self.offsets) - 1)) for first in cuts]

    def _part(self, first: int, end: int) -> Work:
        rows = slice(self.offsets[first], self.offsets[end])
        offsets = self.offsets[first : end + 1] - self.offsets[first]
        return Work(offsets, self.bid[rows], self.server[rows], self.device[rows], self.campaign[rows])


def ours(work: Work, entropy: Entropy) -> Charges:
    """Through the library, its checks and the cryptographic words included."""
    public = PublicCandidates(work.offsets, work.bid, Rates(work.server), campaign=work.campaign)
    block = AuctionBlock(public, Rates(work.device))
    arm = Arm(TopOf(EPSILON), Rules(reserve_micros=RESERVE, cutoff=CUTOFF))
    return charge(show_block(block, arm, entropy.words))


def in_numpy(work: Work, draws: np.random.Generator) -> Integers:
    """The same rules over whole arrays, without checks, reasons or exact odds; what each campaign owes."""
    sizes = np.diff(work.offsets)
    score = work.bid * work.server
    auction = np.repeat(np.arange(len(sizes)), sizes)
    eligible = np.flatnonzero(score >= RESERVE)
    order = eligible[np.lexsort((-score[eligible], auction[eligible]))]
    ranked, owner = score[order], auction[order]
    first = np.r_[True, owner[1:] != owner[:-1]]
    last = np.r_[first[1:], True]
    due = np.where(last, RESERVE, np.r_[ranked[1:], 0.0])
    price = np.minimum(np.floor(due / work.server[order]), work.bid[order]).astype(np.int64)
    best = ranked[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    stays = ranked >= best * (1 - CUTOFF)
    order, owner, price = order[stays], owner[stays], price[stays]
    first = np.r_[True, owner[1:] != owner[:-1]]
    starts = np.flatnonzero(first)
    count = np.diff(np.r_[starts, len(order)])
    private = work.bid[order] * work.device[order]
    top = np.repeat(np.maximum.reduceat(private, starts), count)
    winners = np.flatnonzero(private == top)
    winner = winners[np.searchsorted(winners, starts)]  # the first of equals
    lies = draws.random(len(starts)) * (count - 1 + np.exp(EPSILON)) < count - 1
    other = starts + (draws.random(len(starts)) * np.maximum(count - 1, 1)).astype(np.int64)
    other += other >= winner
    chosen = np.where(lies, other, winner)
    owed = np.zeros(CAMPAIGNS, np.int64)
    np.add.at(owed, work.campaign[order[chosen]], price[chosen])
    return owed
