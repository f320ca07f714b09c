"""What the server sends to the device: candidates, best public score first, each with its price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.deliver.auction.candidates import AuctionNames, Floats, Integers, PublicCandidates
from tacit.deliver.auction.rules import Rules
from tacit.kernels.auctions import EMPTY, Ranked, Shown, rank_and_price, shown, take_scores


@dataclass(frozen=True)
class Offers:
    """Ragged like the block, in public order; a rank is a place in an auction's own list.

    rows     where the candidate is in the block; EMPTY for showing nothing
    score    public micros an impression
    price    whole micros, rounded down, for an impression or for the event, as the price rule says
    setter   the row whose score made the price: the next one's, RESERVE, EMPTY, or the row itself
    """

    offsets: Integers
    rows: Integers
    score: Floats
    price_micros: Integers
    setter: Integers
    rules: Rules
    names: AuctionNames

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Integers:
        """How many candidates each device is sent; 0 where none reached the reserve."""
        return np.diff(self.offsets)

    def taken(self, values: Floats, empty: float = 0.0) -> Floats:
        """A column of the block, in the order of the offers."""
        if self.rules.empty_worth_micros is None:
            return values[self.rows]
        return np.where(self.rows == EMPTY, empty, values[self.rows])  # EMPTY reads the last row, and drops it

    def scores(self, bid_micros: Integers, rate: Floats) -> Floats:
        """bid x rate, of the device, say, in the order of the offers. An empty slot's worth is public."""
        return take_scores(self.rows, bid_micros, rate, float(self.rules.empty_worth_micros or 0.0))

    def shown(self, chosen: Integers) -> Shown:
        """What the chosen places show, and at what price."""
        return shown(Ranked(self.offsets, self.rows, self.score, self.price_micros, self.setter), chosen)


def offer(public: PublicCandidates, rules: Rules) -> Offers:
    """Rank, price and cut each auction of a block. Nothing private comes in, so no price depends on it."""
    ranked = rank_and_price(public.offsets, public.bid_micros, public.event_rate, rules.pricing)
    return Offers(
        ranked.offsets, ranked.rows, ranked.scores, ranked.prices, ranked.setters, rules, public.names
    )
