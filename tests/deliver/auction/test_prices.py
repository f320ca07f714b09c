"""Ranks, prices, reserve, cutoff and abstaining: by hand, as properties, and blind to what is private."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.charges import charge
from tacit.deliver.auction.blocks import (
    EVENT_CODES,
    AuctionBlock,
    AuctionNames,
    BidEvent,
    Offers,
    PublicCandidates,
    Rates,
    make_offers,
)
from tacit.deliver.auction.choices import Greedy, NonPersonalised, TopChoiceRule
from tacit.deliver.auction.market import Arm, choose_block, make_impressions, show_block
from tacit.deliver.protocol import prices
from tacit.deliver.protocol.prices import BillingEvent, FirstPrice, PriceRule, Rules, SecondPrice
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY, RESERVE
from tests.support.auction_blocks import awkward_block, smooth_block

CLICK = "expected a public click probability in [0, 1]"
LN2 = math.log(2)
PRICES = [
    SecondPrice(),
    SecondPrice(BillingEvent.IMPRESSION),
    FirstPrice(),
    FirstPrice(BillingEvent.IMPRESSION),
]


def one(bids: list[int], clicks: list[float], bids_for: BidEvent = BidEvent.CLICK) -> PublicCandidates:
    return PublicCandidates(np.array([0, len(bids)]), np.array(bids), Rates(np.array(clicks)), bids_for)


def listed(offers: Offers) -> list[tuple[int, int, int]]:
    return list(zip(offers.rows.tolist(), offers.price_micros.tolist(), offers.setter.tolist(), strict=True))


def test_second_prices_by_hand() -> None:
    public = one([1000, 500, 900], [0.1, 0.3, 0.1])  # scores 100, 150, 90
    per_click = make_offers(public, Rules(reserve_micros=40))
    assert listed(per_click) == [(1, 333, 0), (0, 900, 2), (2, 400, RESERVE)]
    per_impression = make_offers(public, Rules(SecondPrice(BillingEvent.IMPRESSION), reserve_micros=40))
    assert listed(per_impression) == [(1, 100, 0), (0, 90, 2), (2, 40, RESERVE)]
    assert listed(make_offers(public, Rules(FirstPrice()))) == [(1, 500, 1), (0, 1000, 0), (2, 900, 2)]


def test_a_bid_below_the_reserve_takes_no_part_and_sets_no_price() -> None:
    public = one([1000, 500, 900], [0.1, 0.3, 0.1])
    assert listed(make_offers(public, Rules(reserve_micros=95))) == [(1, 333, 0), (0, 950, RESERVE)]
    assert listed(make_offers(public, Rules(reserve_micros=200))) == []


def test_the_cutoff_keeps_those_near_the_best_and_prices_by_those_it_drops() -> None:
    public = one([1000, 500, 900], [0.1, 0.3, 0.1])
    rules = Rules(SecondPrice(BillingEvent.IMPRESSION), cutoff=0.35)  # 97.5 and above
    assert listed(make_offers(public, rules)) == [(1, 100, 0), (0, 90, 2)]
    assert listed(make_offers(public, replace(rules, cutoff=0.0))) == [(1, 100, 0)]


def test_abstaining_is_a_candidate_at_price_0_that_is_never_dropped() -> None:
    public = one([1000, 500, 900], [0.1, 0.3, 0.1])
    rules = Rules(SecondPrice(BillingEvent.IMPRESSION), cutoff=0.2, empty_worth_micros=0)
    assert listed(make_offers(public, rules)) == [(1, 100, 0), (EMPTY, 0, EMPTY)]
    between = replace(rules, cutoff=1.0, empty_worth_micros=95)
    assert listed(make_offers(public, between)) == [
        (1, 100, 0),
        (0, 95, EMPTY),
        (EMPTY, 0, EMPTY),
        (2, 0, RESERVE),
    ]


def test_ties_go_to_the_one_that_was_named_first() -> None:
    assert make_offers(one([10, 10, 20], [0.2, 0.2, 0.1]), Rules()).rows.tolist() == [0, 1, 2]


def test_bids_for_impressions_clicks_and_conversions_meet_in_one_auction() -> None:
    codes = np.array(
        [EVENT_CODES[event] for event in (BidEvent.IMPRESSION, BidEvent.CLICK, BidEvent.CONVERSION)], np.uint8
    )
    rates = Rates(np.array([0.1, 0.1, 0.1]), np.array([0.0, 0.0, 0.2]))
    public = PublicCandidates(np.array([0, 3]), np.array([50, 700, 4000]), rates, codes)
    assert make_offers(public, Rules()).score.tolist() == pytest.approx([80.0, 70.0, 50.0])
    assert make_offers(public, Rules()).rows.tolist() == [2, 1, 0]
    assert listed(make_offers(public, Rules()))[0][1] == pytest.approx(3500, abs=1)  # 70 over 0.02 a conversion
    with pytest.raises(BadInput, match="conversion"):
        make_offers(one([1], [0.5], BidEvent.CONVERSION), Rules())


@given(st.integers(0, 10**6), st.sampled_from(PRICES), st.integers(0, 200), st.floats(0, 1), st.booleans())
def test_no_price_is_above_the_bid_or_the_public_score(
    seed: int, price: PriceRule, reserve: int, cutoff: float, abstaining: bool
) -> None:
    public = awkward_block(seed, 20).public
    offers = make_offers(public, Rules(price, reserve, cutoff, 30.0 if abstaining else None))
    ads = offers.rows != EMPTY
    rows, due = offers.rows[ads], offers.price_micros[ads]
    if price.charged is BillingEvent.CLICK:
        assert np.all(due <= public.bid_micros[rows])
        assert np.all(due * public.event_rate[rows] <= offers.score[ads] * (1 + 1e-15))
    else:
        assert np.all(due <= offers.score[ads])
    assert np.all(offers.score[ads] >= reserve)
    assert np.all(due >= 0)
    for start, end in zip(offers.offsets[:-1], offers.offsets[1:], strict=True):
        assert np.all(np.diff(offers.score[start:end]) <= 0)


@given(st.integers(0, 10**6), st.integers(1, 5000))
def test_a_higher_bid_never_ranks_lower(seed: int, more: int) -> None:
    public = awkward_block(seed, 1).public
    bids = public.bid_micros.copy()
    bids[-1] += more
    before, after = (
        make_offers(each, Rules()).rows.tolist().index(len(bids) - 1)
        for each in (public, replace(public, bid_micros=bids))
    )
    assert after <= before


@pytest.mark.parametrize("price", PRICES, ids=str)
def test_prices_are_blind_to_what_is_private(price: PriceRule) -> None:
    assert list(inspect.signature(make_offers).parameters) == ["public", "rules"]
    block = smooth_block(1, 50)
    other = AuctionBlock(block.public, Rates(block.private.click[::-1].copy()))
    arm, words = Arm(TopChoiceRule(2.0), Rules(price)), Simulation("blind").words
    lists = [choose_block(each, arm, words) for each in (block, other)]
    np.testing.assert_array_equal(lists[0][0].price_micros, lists[1][0].price_micros)
    assert not np.array_equal(lists[0][1], lists[1][1])  # the choice does depend on it


@pytest.mark.parametrize("price", PRICES, ids=str)
@pytest.mark.parametrize("empty", [None, 40_000.0])
def test_one_pass_bills_what_the_steps_bill(price: PriceRule, empty: float | None) -> None:
    block = smooth_block(2, 200)
    arm = Arm(TopChoiceRule(2.0), Rules(price, 10_000, 0.8, empty))
    offers, chosen = choose_block(block, arm, Simulation("pass").words)
    by_steps = make_impressions(block, arm.rules, offers.shown(chosen))
    at_once = show_block(block, arm, Simulation("pass").words)
    for column in ("campaign", "price_micros", "most_micros", "rank", "setter"):
        np.testing.assert_array_equal(getattr(by_steps, column), getattr(at_once, column))
    assert by_steps.rule == at_once.rule == str(price)


def test_the_two_ends() -> None:
    block = smooth_block(3, 100)
    offers, best = choose_block(block, Arm(Greedy()), Simulation("ends").words)
    private = (block.public.bid_micros * block.private.click)[offers.rows]
    for i in range(offers.count):
        own = private[offers.offsets[i] : offers.offsets[i + 1]]
        assert best[i] == np.argmax(own)
    _, public = choose_block(block, Arm(NonPersonalised()), Simulation("ends").words)
    assert not public.any()


def test_no_bill_takes_prices_of_what_was_not_shown() -> None:
    block = smooth_block(3, 20)
    offers = make_offers(block.public, Rules())
    with pytest.raises(BadInput, match="shown at public prices, got Offers"):
        make_impressions(block, Rules(), offers)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="impressions at public prices, got Offers"):
        charge(offers)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="public data alone"):
        Rules("second price")  # type: ignore[arg-type]


def refused(bids: list[int], clicks: list[float], offsets: list[int]) -> PublicCandidates:
    names = AuctionNames(np.array(["first", "second"]))
    return PublicCandidates(np.array(offsets), np.array(bids), Rates(np.array(clicks)), names=names)


@pytest.mark.parametrize(
    ("bids", "clicks", "offsets", "message"),
    [
        ([1, 2], [0.1, 0.1], [0, 2, 2], "auction second: expected at least one candidate, got none"),
        ([1, -2], [0.1, 0.1], [0, 1, 2], "auction second: expected a bid in 0..2^53 micros, got -2"),
        ([1, 2], [float("nan"), 0.1], [0, 1, 2], f"auction first: {CLICK}, got NaN"),
        ([1, 2], [0.1, 1.5], [0, 1, 2], f"auction second: {CLICK}, got a value outside"),
        ([1, 2], [0.1, 0.1], [0, 1, 3], "expected offsets from 0 to the number of candidates, got others"),
    ],
)  # fmt: skip
def test_bad_auctions_are_refused_by_name(
    bids: list[int], clicks: list[float], offsets: list[int], message: str
) -> None:
    with pytest.raises(BadInput) as problem:
        refused(bids, clicks, offsets)
    assert str(problem.value) == message


def test_a_private_value_is_never_said() -> None:
    """Nor whether it is NaN, below or above."""
    public = refused([1, 2], [0.1, 0.1], [0, 1, 2])
    good = Rates(np.array([0.1, 0.1]))
    for value in (1.2345, float("nan"), -0.5, float("inf"), -5e-324):
        bad = Rates(np.array([0.1, value]))
        for kind, private, truth in (("private", bad, None), ("true", good, bad)):
            with pytest.raises(BadInput) as problem:
                AuctionBlock(public, private, truth)
            expected = f"auction second: expected a {kind} click probability in [0, 1], got another"
            assert str(problem.value) == expected


def test_a_price_rule_that_the_kernels_do_not_know_prices_nothing(monkeypatch: Any) -> None:
    """Taken into the union and no further, it would else be billed at another rule's price."""

    @dataclass(frozen=True)
    class Halfway:
        charged: BillingEvent = BillingEvent.CLICK

        def __str__(self) -> str:
            return f"halfway price per {self.charged}"

    assert {type(price) for price in PRICES} == set(get_args(PriceRule)), "tests go over all rules"
    monkeypatch.setattr(prices, "PriceRule", PriceRule | Halfway)
    added = Rules(Halfway())  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="Halfway"):
        make_offers(one([1000], [0.1]), added)


@pytest.mark.parametrize(
    "wrong", [{"reserve_micros": -1}, {"cutoff": 1.5}, {"cutoff": float("nan")}, {"empty_worth_micros": -1.0}]
)
def test_rules_that_cannot_be_meant(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        Rules(**wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="BillingEvent"):
        SecondPrice("conversion")  # type: ignore[arg-type]
