"""Second prices with noise on private data: for comparison only, never for an invoice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import AuctionBlock, Offers
from tacit.deliver.protocol.prices import BillingEvent, SecondPrice
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY, RESERVE
from tacit.kernels.checks import expect_array
from tacit.privacy.randomness import WordSource


@dataclass(frozen=True)
class NoisyPrice:
    """The second price per click by the device's own rates, each with Laplace noise.

    It is biased: a ratio of two noised numbers is too high on average (Jensen), and cutting it at the bid and
    at the range of rates bends it further. It is drawn in doubles, so it is not fit for release.

    Guarantee:  epsilon-DP for the price of one impression, beside what the choice itself spends: it reads two
                rates, each clipped to `highest_rate` and given Laplace noise of scale 2 highest_rate / epsilon.
    Neighbours: any two vectors of private rates of this request.
    Assumes:    real numbers; one price a request, that of the candidate shown; the range of rates is public.
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


@dataclass(frozen=True)
class NoisyPrices:
    """What noisy prices of the chosen candidates would be. Not offers, and nothing that a bill takes.

    auctions       which auctions show something, rising
    rows           the candidate that each of them shows
    noisy_micros   whole micros for a click on it
    """

    auctions: Integers
    rows: Integers
    noisy_micros: Integers
    rule: NoisyPrice


def noisy_prices(
    block: AuctionBlock, offers: Offers, chosen: Integers, rule: NoisyPrice, words: WordSource
) -> NoisyPrices:
    """A noisy price for what each auction chose, and for nothing else: the others' rates are not read.

    It costs rule.epsilon per impression, which the caller has to pay for.
    """
    if not isinstance(offers.rules.price, SecondPrice) or offers.rules.price.charged is not BillingEvent.CLICK:
        raise BadInput(f"expected offers at second price per click, got {offers.rules.price}")
    expect_array("chosen", chosen, np.int64, (offers.count,))
    if np.any(chosen >= offers.sizes):
        raise BadInput("expected chosen places among those offered, got one beyond")
    auctions = np.flatnonzero(chosen >= 0)
    places = offers.offsets[auctions] + chosen[auctions]
    shows = offers.rows[places] != EMPTY
    auctions, places = auctions[shows], places[shows]
    rows, setter = offers.rows[places], offers.setter[places]
    rate, bid = block.private_event_rate, block.public.bid_micros
    of_setter = np.where(setter >= 0, setter, rows)  # a row that is there; not used where nobody set the price
    noisy_own, noisy_next = _noisy(rate[rows], rule, words), _noisy(rate[of_setter], rule, words)
    due = np.where(setter >= 0, bid[of_setter] * noisy_next, _public_due(offers, setter))
    price = np.minimum(np.floor(due / noisy_own), bid[rows].astype(np.float64))
    return NoisyPrices(auctions, rows, price.astype(np.int64), rule)


def _public_due(offers: Offers, setter: Integers) -> Floats:
    """What is due where no bidder set the price: the reserve, or the worth of an empty slot."""
    empty = offers.rules.empty_worth_micros or 0.0
    return np.where(setter == RESERVE, float(offers.rules.reserve_micros), empty)


def _noisy(rates: Floats, rule: NoisyPrice, words: WordSource) -> Floats:
    scale = 2 * rule.highest_rate / rule.epsilon
    noised = np.minimum(rates, rule.highest_rate) + scale * _laplace(words(len(rates)))
    return np.clip(noised, rule.lowest_rate, rule.highest_rate)


def _laplace(words: NDArray[np.uint64]) -> Floats:
    """Laplace noise of scale 1: 63 bits for its size and one for its sign."""
    size = -np.log(((words >> np.uint64(1)).astype(np.float64) + 0.5) / 2.0**63)
    return np.where(words & np.uint64(1), size, -size)
