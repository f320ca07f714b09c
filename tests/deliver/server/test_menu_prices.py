"""The server's menus: ranked and priced as blocks of auctions are, and around a floor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.deliver.auction.blocks import make_offers
from tacit.deliver.auction.market import make_impressions
from tacit.deliver.protocol.menu import NOTHING
from tacit.deliver.protocol.prices import BillingEvent, FirstPrice, PriceRule, Rules, SecondPrice
from tacit.deliver.server.candidates import price_menu
from tacit.errors import BadInput
from tacit.kernels.auctions import EMPTY
from tacit.schema.impressions import NO_BIDDER, OWN_BID, RESERVE_PRICE
from tests.support.auction_blocks import awkward_block
from tests.support.device_cases import node

PRICES = [price(charged) for price in (SecondPrice, FirstPrice) for charged in BillingEvent]
LIMITS: list[dict[str, Any]] = [
    {},
    {"reserve_micros": 20, "cutoff": 0.8},
    {"reserve_micros": 20, "cutoff": 0.0, "empty_worth_micros": 0.0},
    {"cutoff": 0.5, "empty_worth_micros": 50.0},
    {"reserve_micros": 100, "cutoff": 0.1, "empty_worth_micros": 100.0},
    {"reserve_micros": 50, "cutoff": 0.99, "empty_worth_micros": 20.0},
]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("price", PRICES, ids=str)
def test_a_menu_is_one_auction_of_a_block(price: PriceRule, limits: dict[str, Any]) -> None:
    """Order, scores, and every place's line on the bill, as `make_offers` and `make_impressions` have them."""
    rules, block = Rules(price, **limits), awkward_block(5)
    public = replace(block.public, campaign=np.arange(len(block.public.bid_micros)))
    block = replace(block, public=public)
    offers, found = make_offers(public, rules), 0
    for auction in range(public.count):
        own, listed = (slice(*offsets[auction : auction + 2]) for offsets in (public.offsets, offers.offsets))
        columns = (np.arange(own.start, own.stop), public.bid_micros[own], public.rates.click[own])
        if listed.start == listed.stop:
            with pytest.raises(BadInput, match="expected an ad that reaches the reserve, got none"):
                price_menu(node("Old"), *columns, rules)
            continue
        menu, rows = price_menu(node("Old"), *columns, rules), offers.rows[listed]
        assert menu.ads == tuple(np.where(rows == EMPTY, NOTHING, rows).tolist())
        assert menu.price_micros.tolist() == offers.price_micros[listed].tolist()
        assert menu.public_scores.tolist() == offers.score[listed].tolist()
        for rank in range(len(menu)):
            chosen = np.full(public.count, -1)
            chosen[auction] = rank
            ours, theirs = (
                menu.impressions(np.array([rank])),
                make_impressions(block, rules, offers.shown(chosen)),
            )
            for name in ("campaign", "price_micros", "most_micros", "rank", "setter", "due_on"):
                assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
            assert ours.rule == theirs.rule
            found += 1
    assert found > 60


def test_the_price_of_the_chosen_is_that_of_the_next_in_public_order() -> None:
    """Algorithm 2: per click, the next score over one's own rate; the last pays the reserve."""
    ads, bids, rates = [7, 8, 9], [1_000_000, 2_000_000, 500_000], [0.03, 0.02, 0.04]
    menu = price_menu(node("Old"), ads, bids, rates, Rules(reserve_micros=100))
    assert menu.ads == (8, 7, 9)
    assert menu.price_micros.tolist() == [1_500_000, 666_666, 2_500]
    assert menu.setter.tolist() == [7, 9, RESERVE_PRICE]
    first = price_menu(node("Old"), ads, bids, rates, Rules(FirstPrice()))
    assert (first.price_micros.tolist(), first.setter.tolist()) == (
        [2_000_000, 1_000_000, 500_000],
        [OWN_BID] * 3,
    )


BIDS = st.sampled_from([0, 1, 3, 1000, 2000, 123_457])
RATES = st.sampled_from([0.0, 0.01, 0.02, float(np.nextafter(0.02, 0)), 0.0625, 0.5, 1.0])


@given(
    st.lists(st.tuples(BIDS, RATES), min_size=1, max_size=6), st.sampled_from([0.02, 0.0625, 1.0]),
    st.sampled_from(PRICES),
)  # fmt: skip
def test_around_a_floor_nothing_is_just_below_what_reaches_it(
    ads: list[tuple[int, float]], floor: float, price: PriceRule
) -> None:
    bids, rates = ([one[at] for one in ads] for at in (0, 1))
    menu = price_menu(node("Old"), range(len(ads)), bids, rates, Rules(price), ctr_floor=floor)
    assert sorted(menu.ads) == [NOTHING, *range(len(ads))]
    at = menu.ads.index(NOTHING)
    assert set(menu.ads[:at]) == {ad for ad, (bid, rate) in enumerate(ads) if rate >= floor and bid > 0}
    assert (menu.price_micros[at], menu.setter[at]) == (0, NO_BIDDER)
    assert menu.nothing_micros == floor * min((bid for bid in bids if bid), default=0)
    if at and isinstance(price, SecondPrice):
        assert menu.setter[at - 1] == NO_BIDDER, "the worth of nothing prices the one just above it"
    assert (menu.price_micros <= menu.most_micros).all()


def test_a_floor_and_other_limits_are_not_mixed() -> None:
    for limits in LIMITS[1:]:
        with pytest.raises(
            BadInput, match="expected no reserve, cutoff and worth of an empty slot beside ctr_floor"
        ):
            price_menu(node("Old"), [1], [5], [0.1], Rules(**limits), ctr_floor=0.1)
