"""Charges: whole, with their reason, and adding up to the micro."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.charges import LARGEST_TABLE, Charges, charge
from tacit.deliver.auction.blocks import (
    EVENT_CODES,
    AuctionBlock,
    AuctionNames,
    BidEvent,
    PublicCandidates,
    Rates,
)
from tacit.deliver.auction.choices import Greedy, NonPersonalised
from tacit.deliver.auction.market import Arm, show_block
from tacit.deliver.auction.market import make_impressions as delivered
from tacit.deliver.protocol.prices import FirstPrice, Rules, SecondPrice
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.kernels.auctions import ShownCandidates
from tacit.schema.impressions import DUE_ON, NO_BIDDER, RESERVE_PRICE, Impressions


def impressions(campaigns: list[int], prices: list[int], most: int = 2**62) -> Impressions:
    count = len(campaigns)
    return Impressions(
        np.array(campaigns, np.int64),
        np.array(prices, np.int64),
        np.full(count, most),
        np.zeros(count, np.int64),
        np.full(count, RESERVE_PRICE),
        "second price per click",
    )


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 77, LARGEST_TABLE + 5]), st.integers(0, 2**53)), max_size=40)
)
def test_totals_are_the_sums_of_their_lines(lines: list[tuple[int, int]]) -> None:
    billed = charge(impressions([campaign for campaign, _ in lines], [price for _, price in lines]))
    sums: dict[int, int] = defaultdict(int)
    for line in billed.lines():
        sums[line.campaign] += line.amount_micros
    assert billed.by_campaign == dict(sums)
    assert billed.total_micros == sum(price for _, price in lines)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 30))
def test_bills_of_parts_add_up_to_the_bill(campaigns: list[int], cut: int) -> None:
    prices = [3 * campaign + place for place, campaign in enumerate(campaigns)]

    def part(rows: slice) -> Charges:
        return charge(impressions(campaigns[rows], prices[rows]))

    owed = Counter(part(slice(cut)).by_campaign) + Counter(part(slice(cut, None)).by_campaign)
    assert owed == Counter(part(slice(None)).by_campaign)


def test_a_line_says_why() -> None:
    shown = Impressions(
        np.array([4, 5, 6]),
        np.array([10, 20, 30]),
        np.array([10, 25, 30]),
        np.array([0, 1, 2]),
        np.array([9, RESERVE_PRICE, NO_BIDDER]),
        "second price per impression",
    )
    assert [str(line.reason) for line in charge(shown).lines()] == [
        "second price per impression, public rank 1, price set by campaign 9",
        "second price per impression, public rank 2, price set by the reserve",
        "second price per impression, public rank 3, price set by the worth of an empty slot",
    ]


@pytest.mark.parametrize(("price", "most"), [(-1, 5), (6, 5)])
def test_no_price_below_nothing_or_above_the_bid(price: int, most: int) -> None:
    with pytest.raises(
        BadInput, match=rf"impression 1 of campaign 3: expected a price in 0..5 micros, got {price}"
    ):
        charge(impressions([2, 3], [0, price], most))


def test_only_what_happened_is_charged() -> None:
    shown = impressions([4, 5, 4, 6], [10, 20, 30, 40])
    billed = charge(shown, happened=np.array([True, False, True, False]))
    assert billed.by_campaign == {4: 40}
    assert [(line.campaign, line.amount_micros) for line in billed.lines()] == [(4, 10), (4, 30)]
    assert not charge(shown, happened=np.zeros(4, np.bool_)).total_micros
    with pytest.raises(BadInput, match="a flag for each of 4 impressions"):
        charge(shown, happened=np.ones(3, np.bool_))
    with pytest.raises(BadInput, match="a flag for each of 4 impressions"):
        charge(shown, happened=np.ones(4, np.int64))


@pytest.mark.parametrize("price", [SecondPrice, FirstPrice])
def test_what_falls_due_on_the_impression_is_charged_whatever_happened(price: Any) -> None:
    """A bid for an impression is due on it under both rules; other bids only where impressions are charged."""
    kinds = np.array(
        [EVENT_CODES[event] for event in (BidEvent.IMPRESSION, BidEvent.CLICK, BidEvent.CONVERSION)], np.uint8
    )
    public = PublicCandidates(
        np.arange(4), np.full(3, 1000), Rates(np.full(3, 0.5), np.full(3, 0.5)), kinds, np.array([4, 5, 6]),
        AuctionNames(np.array(["x", "y", "z"])),
    )  # fmt: skip
    block = AuctionBlock(public, Rates(np.full(3, 0.5), np.full(3, 0.5)))
    none, all_three = np.zeros(3, np.bool_), {4, 5, 6}

    def shown(charged: str) -> Impressions:
        return show_block(block, Arm(Greedy(), Rules(price(charged), reserve_micros=10)), Simulation(1).words)

    per_event = shown("click")
    assert {line.campaign for line in charge(per_event, none).lines()} == {4}
    clicked = charge(per_event, np.array([False, True, False]))
    assert [(line.auction, line.due_on) for line in clicked.lines()] == [("x", "impression"), ("y", "click")]
    assert {line.campaign for line in charge(shown("impression"), none).lines()} == all_three
    assert {line.due_on for line in charge(shown("impression")).lines()} == {"impression"}
    owed = {"click": (1000, 1000, 1000), "impression": (1000, 500, 250)}  # own bid, or bid x public rate
    reserve = {"click": (10, 20, 40), "impression": (10, 10, 10)}  # of an impression, for each event
    for charged in ("click", "impression"):
        due = (owed if price is FirstPrice else reserve)[charged]
        assert charge(shown(charged)).by_campaign == dict(zip((4, 5, 6), due, strict=True))
    by = ("first", "its own bid") if price is FirstPrice else ("second", "the reserve")
    reasons = [str(line.reason) for line in charge(per_event).lines()]
    assert reasons == [f"{by[0]} price per {event}, public rank 1, price set by {by[1]}" for event in BidEvent]


def test_one_campaign_twice_does_not_set_its_price_by_its_own_bid() -> None:
    public = PublicCandidates(
        np.array([0, 2]), np.array([1000, 900]), Rates(np.full(2, 0.5)), campaign=np.array([4, 4])
    )
    block = AuctionBlock(public, Rates(np.array([0.5, 0.4])))
    (line,) = charge(show_block(block, Arm(Greedy()), Simulation(1).words)).lines()
    assert (line.amount_micros, line.reason.setter) == (900, 4)


def test_a_price_is_named_after_who_made_it() -> None:
    """From the auction to the words of the bill: another campaign, in the first row too, reserve, or nobody."""
    public = PublicCandidates(
        np.array([0, 2, 3, 4]),
        np.array([900, 1000, 1000, 1000]),
        Rates(np.array([0.5, 0.5, 0.5, 0.1])),
        campaign=np.array([30, 31, 32, 33]),
    )
    block = AuctionBlock(public, public.rates)

    def setters(reserve: int, empty: float | None) -> list[str]:
        rules = Rules(reserve_micros=reserve, empty_worth_micros=empty)
        shown = show_block(block, Arm(NonPersonalised(), rules), Simulation(1).words)
        return [str(line.reason).rpartition(" set by ")[2] for line in charge(shown).lines()]

    assert setters(100, None) == ["campaign 30", "the reserve", "the reserve"]
    assert setters(0, 50.0) == ["campaign 30", "the worth of an empty slot", "the worth of an empty slot"]
    assert setters(60, 50.0) == ["campaign 30", "the reserve", "the reserve"]


def test_a_setter_that_the_bill_has_no_word_for_is_refused() -> None:
    public = PublicCandidates(np.array([0, 1]), np.array([9]), Rates(np.array([0.5])), campaign=np.array([4]))
    nothing = np.zeros(1, np.int64)
    with pytest.raises(BadInput, match="set by a row, the reserve or an empty slot"):
        delivered(
            AuctionBlock(public, public.rates), Rules(), ShownCandidates(nothing, nothing, nothing, nothing - 3)
        )


def test_what_an_impression_may_cost_is_rounded_down() -> None:
    public = PublicCandidates(np.array([0, 1]), np.array([999]), Rates(np.array([0.5])), campaign=np.array([4]))
    block = AuctionBlock(public, public.rates)
    for price, most in ((FirstPrice("impression"), 499), (FirstPrice("click"), 999)):  # type: ignore[arg-type]
        shown = show_block(block, Arm(NonPersonalised(), Rules(price)), Simulation(1).words)
        assert shown.most_micros.tolist() == shown.price_micros.tolist() == [most]


def test_lines_keep_their_own_reason_when_others_did_not_happen() -> None:
    shown = Impressions(
        campaign=np.array([4, 5, 6, 7]),
        price_micros=np.array([40, 30, 20, 10]),
        most_micros=np.array([41, 32, 23, 14]),
        rank=np.array([3, 1, 2, 0]),
        setter=np.array([9, RESERVE_PRICE, 8, NO_BIDDER]),
        rule="second price per click",
        due_on=np.array([1, 1, 0, 2], np.uint8),
        auction=np.array(["a", "b", "c", "d"]),
    )
    whole = list(charge(shown).lines())
    assert (
        list(charge(shown, np.array([True, True, False, False])).lines()) == whole[:3]
    )  # the third is due anyway
    assert list(charge(shown, np.array([True, False, False, True])).lines()) == [whole[0], whole[2], whole[3]]
    kept = shown.those(np.array([True, False, False, True]))
    assert kept.most_micros.tolist() == [41, 14]


def test_codes_of_events_are_those_of_the_bill() -> None:
    assert tuple(EVENT_CODES) == DUE_ON
    assert list(EVENT_CODES.values()) == [0, 1, 2]
    with pytest.raises(BadInput, match="a rule that ends in impression, click, conversion"):
        replace(impressions([1], [1]), due_on=None, rule="as agreed")  # type: ignore[arg-type]


def test_what_else_is_refused() -> None:
    with pytest.raises(BadInput, match="campaigns >= 0"):
        charge(impressions([-1], [0]))
    with pytest.raises(BadInput, match="price_micros"):
        Impressions(*(np.zeros(1, np.int64),), np.zeros(1), *(np.zeros(1, np.int64),) * 3, "")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="below 2\\^63"):
        charge(impressions([1, 1], [2**62, 2**62]))
