"""Charges: whole, with their reason, and adding up to the micro."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.charges import LARGEST_TABLE, Charges, charge
from tacit.errors import BadInput
from tacit.schema.impressions import NO_BIDDER, RESERVE_PRICE, Impressions


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

    assert part(slice(cut)) + part(slice(cut, None)) == part(slice(None)).by_campaign


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


def test_what_else_is_refused() -> None:
    with pytest.raises(BadInput, match="campaigns >= 0"):
        charge(impressions([-1], [0]))
    with pytest.raises(BadInput, match="price_micros"):
        Impressions(*(np.zeros(1, np.int64),), np.zeros(1), *(np.zeros(1, np.int64),) * 3, "")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="below 2\\^63"):
        charge(impressions([1, 1], [2**62, 2**62]))
