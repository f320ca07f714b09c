"""Prices that follow private data through noise: for comparison, never for an invoice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.deliver.auction.candidates import AuctionBlock, Floats
from tacit.deliver.auction.offers import Offers
from tacit.deliver.auction.rules import Charged, SecondPrice
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY, RESERVE
from tacit.privacy.randomness import Words


@dataclass(frozen=True)
class NoisyPrice:
    """The second price per click by the device's own rates, each with Laplace noise.

    It is biased: a ratio of two noised numbers is too high on average (Jensen), and cutting it at the bid and
    at the range of rates bends it further. It is drawn in doubles, so it is not fit for release.

    Guarantee:  epsilon-DP for the price of one impression, beside what the choice itself spends: it reads two
                rates, each clipped to `highest_rate` and given Laplace noise of scale 2 highest_rate / epsilon.
    Neighbours: any two vectors of private rates of this request.
    Assumes:    real numbers; one price a request; the range of rates is public.
    Source:     Laro et al. 2023, appendix A.2.
    """

    epsilon: float
    lowest_rate: float
    highest_rate: float

    def __post_init__(self) -> None:
        expect.positive("epsilon", self.epsilon)
        expect.probability("lowest_rate", self.lowest_rate)
        expect.probability("highest_rate", self.highest_rate, one=True)
        if self.lowest_rate >= self.highest_rate:
            raise BadInput(
                f"expected lowest_rate < highest_rate, got {self.lowest_rate} and {self.highest_rate}"
            )

    def __str__(self) -> str:
        return f"noisy second price per click, epsilon {self.epsilon:g}"


def noisy_prices(block: AuctionBlock, offers: Offers, rule: NoisyPrice, words: Words) -> Offers:
    """The same offers at noisy prices. It costs rule.epsilon an impression, which the caller has to pay for."""
    if not isinstance(offers.rules.price, SecondPrice) or offers.rules.price.charged is not Charged.CLICK:
        raise BadInput(f"expected offers at second price per click, got {offers.rules.price}")
    own, setter = offers.rows != EMPTY, offers.setter >= 0
    rate, bid = block.private_event_rate, block.public.bid_micros
    noisy_own = _noisy(rate[offers.rows], rule, words)
    noisy_next = _noisy(rate[offers.setter], rule, words)
    due = np.where(setter, bid[offers.setter] * noisy_next, _public_due(offers))
    price = np.minimum(np.floor(due / noisy_own), bid[offers.rows].astype(np.float64))
    return replace(offers, price_micros=np.where(own, price, 0).astype(np.int64))


def _public_due(offers: Offers) -> Floats:
    """What is due where no bidder set the price: the reserve, or the worth of an empty slot."""
    empty = offers.rules.empty_worth_micros or 0.0
    return np.where(offers.setter == RESERVE, float(offers.rules.reserve_micros), empty)


def _noisy(rates: Floats, rule: NoisyPrice, words: Words) -> Floats:
    scale = 2 * rule.highest_rate / rule.epsilon
    noised = np.minimum(rates, rule.highest_rate) + scale * _laplace(words(len(rates)))
    return np.clip(noised, rule.lowest_rate, rule.highest_rate)


def _laplace(words: NDArray[np.uint64]) -> Floats:
    """Laplace noise of scale 1: 63 bits for its size and one for its sign."""
    size = -np.log(((words >> np.uint64(1)).astype(np.float64) + 0.5) / 2.0**63)
    return np.where(words & np.uint64(1), size, -size)
