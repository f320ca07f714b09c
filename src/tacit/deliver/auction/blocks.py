"""Blocks of auctions: ragged candidates, public columns apart from the device's, and the ranked, priced offers.

Offers are what the server sends to each device, best public score first, each with its price. They are made
from public columns alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.protocol.prices import Rules
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.kernels.auctions import (
    EMPTY,
    MOST_MICROS,
    RankedCandidates,
    ShownCandidates,
    all_within,
    rank_and_price,
    shown,
    take_scores,
)
from tacit.kernels.checks import ANY, expect_array


class BidEvent(Choice):
    """What a bid is for."""

    IMPRESSION = "impression"
    CLICK = "click"
    CONVERSION = "conversion"


EVENT_CODES = {event: code for code, event in enumerate(BidEvent)}
"""How a column of events is written, one uint8 per candidate."""

BidEvents = BidEvent | NDArray[np.uint8]

PUBLIC = "public"


@dataclass(frozen=True)
class AuctionNames:
    """What auctions are called in messages: by an id each, or by their number in the stream."""

    ids: NDArray[Any] | None = None
    first: int = 0

    def of(self, auction: int) -> str:
        return str(self.first + auction if self.ids is None else self.ids[auction])

    def some(self, auctions: Integers) -> NDArray[Any]:
        """The ids, or the numbers in the stream, of some auctions."""
        return self.first + auctions if self.ids is None else self.ids[auctions]


@dataclass(frozen=True)
class Rates:
    """One probability per candidate: of a click on an impression and, if needed, of a conversion on a click."""

    click: Floats
    conversion: Floats | None = None

    __repr__ = brief_repr

    def of_event(self, bids_for: BidEvents) -> Floats:
        """How likely an impression leads to what the bid is for."""
        if isinstance(bids_for, BidEvent):
            if bids_for is BidEvent.CONVERSION:
                return self.click * self._conversion()
            return self.click if bids_for is BidEvent.CLICK else np.ones_like(self.click)
        rate = np.where(bids_for == EVENT_CODES[BidEvent.IMPRESSION], 1.0, self.click)
        converting = bids_for == EVENT_CODES[BidEvent.CONVERSION]
        return np.where(converting, rate * self._conversion(), rate) if converting.any() else rate

    def _conversion(self) -> Floats:
        if self.conversion is None:
            raise BadInput("expected conversion probabilities for bids per conversion, got none")
        return self.conversion


@dataclass(frozen=True)
class PublicCandidates:
    """What the server knows: all that ranking and pricing may read.

    offsets     auction i has the candidates offsets[i] to offsets[i + 1], in an order that breaks ties
    bid_micros  whole micros for one event
    rates       without anybody's private data
    bids_for    the event (or its word), for all, or one code per candidate
    campaign    a public number per candidate, for the bill
    """

    offsets: Integers
    bid_micros: Integers
    rates: Rates
    bids_for: BidEvents = BidEvent.CLICK
    campaign: Integers | None = None
    names: AuctionNames = AuctionNames()

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        if isinstance(self.bids_for, str):  # a word means an event, and others are refused by their list
            object.__setattr__(self, "bids_for", BidEvent(self.bids_for))
        expect_array("offsets", self.offsets, np.int64, (ANY,))
        expect_array("bid_micros", self.bid_micros, np.int64, (ANY,))
        if not len(self.offsets) or self.offsets[0] or self.offsets[-1] != len(self.bid_micros):
            raise BadInput("expected offsets from 0 to the number of candidates, got others")
        empty = self.offsets[1:] <= self.offsets[:-1]
        if empty.any():
            name = self.names.of(int(np.argmax(empty)))
            raise BadInput(f"auction {name}: expected at least one candidate, got none")
        unsigned = self.bid_micros.view(np.uint64)  # a negative number becomes a very large one
        if len(unsigned) and int(unsigned.max()) > MOST_MICROS:
            at = int(np.argmax(unsigned > MOST_MICROS))
            got = int(self.bid_micros[at])
            raise BadInput(f"auction {self.name_at(at)}: expected a bid in 0..2^53 micros, got {got}")
        if not isinstance(self.bids_for, BidEvent):
            expect_array("bids_for", self.bids_for, np.uint8, self.bid_micros.shape)
            if len(self.bids_for) and self.bids_for.max() >= len(EVENT_CODES):
                raise BadInput(f"expected codes of events in 0..{len(EVENT_CODES) - 1}, got one above")
        if self.campaign is not None:
            expect_array("campaign", self.campaign, np.int64, self.bid_micros.shape)
        expect_rates(self, self.rates, PUBLIC)

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def largest(self) -> int:
        """The most candidates that an auction has."""
        return int((self.offsets[1:] - self.offsets[:-1]).max(initial=0))

    @cached_property
    def event_rate(self) -> Floats:
        return self.rates.of_event(self.bids_for)

    def name_at(self, candidate: int) -> str:
        return self.names.of(int(np.searchsorted(self.offsets, candidate, side="right")) - 1)

    def names_of_shown(self, candidates: Integers) -> NDArray[Any]:
        """What the auctions of these candidates are called: rising, at most one per auction."""
        if len(candidates) == self.count:
            return self.names.some(np.arange(self.count))
        return self.names.some(np.searchsorted(self.offsets, candidates, side="right") - 1)


@dataclass(frozen=True)
class AuctionBlock:
    """Some auctions: the public half, what only devices know, and whose they are.

    private  rates with the person's own data; they decide nothing but the choice
    truth    what metrics are measured by: logged clicks as 0 and 1, say; by default `private`
    user     a number for whose device it was, for standard errors that allow for it
    """

    public: PublicCandidates
    private: Rates
    truth: Rates | None = None
    user: Integers | None = None

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        expect.kind("public", self.public, PublicCandidates)
        expect.kind("private", self.private, Rates)
        expect_rates(self.public, self.private, "private")
        if self.truth is not None:
            expect_rates(self.public, self.truth, "true")
        if self.user is not None:
            expect_array("user", self.user, np.int64, (self.public.count,))

    @cached_property
    def private_event_rate(self) -> Floats:
        return self.private.of_event(self.public.bids_for)


def take_auctions(block: AuctionBlock, auctions: Integers) -> AuctionBlock:
    """Some auctions of a block, by their places in it, rising."""
    public = block.public
    sizes = (public.offsets[1:] - public.offsets[:-1])[auctions]
    offsets = np.r_[0, np.cumsum(sizes)].astype(np.int64)
    rows = np.repeat(public.offsets[auctions] - offsets[:-1], sizes) + np.arange(offsets[-1])

    def of(rates: Rates) -> Rates:
        return Rates(rates.click[rows], None if rates.conversion is None else rates.conversion[rows])

    taken = PublicCandidates(
        offsets,
        public.bid_micros[rows],
        of(public.rates),
        public.bids_for if isinstance(public.bids_for, BidEvent) else public.bids_for[rows],
        None if public.campaign is None else public.campaign[rows],
        AuctionNames(public.names.some(auctions)),
    )
    truth, user = block.truth, block.user
    return AuctionBlock(
        taken, of(block.private), None if truth is None else of(truth), None if user is None else user[auctions]
    )


def expect_rates(public: PublicCandidates, rates: Rates, kind: str) -> None:
    """Probabilities, or refused by the auction's name. The value itself stays unsaid: it may be private."""
    for what, values in (("click", rates.click), ("conversion", rates.conversion)):
        if values is None:
            continue
        expect_array(f"{kind} {what}", values, np.float64, public.bid_micros.shape)
        if all_within(values, 0.0, 1.0):
            continue
        at = int(np.argmax(~((values >= 0) & (values <= 1))))
        got = "another"  # of a private value, not even in which way
        if kind == PUBLIC:
            got = "NaN" if np.isnan(values[at]) else "a value outside"
        raise BadInput(
            f"auction {public.name_at(at)}: expected a {kind} {what} probability in [0, 1], got {got}"
        )


@dataclass(frozen=True)
class Offers:
    """Ragged like the block, in public order; a rank is a place in an auction's own list.

    rows     where the candidate is in the block; EMPTY for showing nothing
    score    public micros per impression
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

    def shown(self, chosen: Integers) -> ShownCandidates:
        """What the chosen places show, and at what price."""
        return shown(
            RankedCandidates(self.offsets, self.rows, self.score, self.price_micros, self.setter), chosen
        )


def make_offers(public: PublicCandidates, rules: Rules) -> Offers:
    """Rank, price and cut each auction of a block. Nothing private comes in, so no price depends on it."""
    expect.kind("public", public, PublicCandidates)
    expect.kind("rules", rules, Rules)
    ranked = rank_and_price(public.offsets, public.bid_micros, public.event_rate, rules.pricing)
    return Offers(
        ranked.offsets, ranked.rows, ranked.scores, ranked.prices, ranked.setters, rules, public.names
    )
