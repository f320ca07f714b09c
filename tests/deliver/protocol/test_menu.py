"""What the server sends, and the device's own place in it: back-off, sizes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.deliver.device.context import DeviceContext
from tacit.deliver.protocol.menu import NOTHING, Menu
from tacit.deliver.protocol.prices import BillingEvent, FirstPrice, SecondPrice
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Node
from tacit.schema.contexts.tree import Tree
from tacit.schema.impressions import NO_BIDDER, RESERVE_PRICE
from tests.support.device_cases import (
    EXACT,
    PLACES,
    QUARTER,
    ROOT,
    TOWN,
    here,
    menu_of,
    node,
    old_quarter,
    whole_town,
)


def test_an_ad_has_the_rate_of_the_finest_node_that_has_one() -> None:
    sent = whole_town()
    found = {place: sent.rates_along(here(place, ROOT).below).tolist() for place in PLACES}
    assert found == {
        "Cafe": [0.06, 0.10, 0.04],
        "Bakery": [0.06, 0.045, 0.04],
        "Gym": [0.01, 0.045, 0.07],
        "Pool": [0.01, 0.06, 0.02],
    }
    assert sent.rates.tolist() == [0.05, 0.045, 0.04]  # a copy was changed


def test_only_nodes_below_the_disclosed_one_are_looked_at() -> None:
    assert here("Gym", ROOT).below == (node("New"), node("Gym"))
    assert here("Gym", QUARTER).below == (node("Gym"),)
    assert here("Gym", EXACT).below == ()
    tree = Tree.of_paths(["a>b"])
    lattice = Lattice([Steps("one", tree), Steps("two", tree)])
    below = DeviceContext.of(lattice, ("b", "b"), (1, 2)).below
    assert [each.levels for each in below] == [(1, 1), (0, 2), (1, 0), (0, 1), (0, 0)]


def test_a_device_discloses_its_own_node_and_its_text_tells_no_more() -> None:
    mine = here("Cafe")
    assert mine.disclosed == node("Old")
    assert mine.at(EXACT) == node("Cafe")
    assert "Cafe" not in repr(mine)
    with pytest.raises(BadInput, match="a node of the device's own context"):
        DeviceContext(TOWN.path(("Cafe",)), node("New"))
    with pytest.raises(BadInput, match="levels of the device's hierarchy"):
        mine.at((7,))


def test_the_finest_of_some_nodes() -> None:
    mine = here("Cafe")
    assert mine.finest([node("*"), node("Old"), node("New"), node("Gym")]) == node("Old")
    assert mine.finest([node("Cafe"), node("*")]) == node("Cafe")
    assert mine.finest([node("New")]) is None


def test_size_grows_by_ads_and_by_finer_rates() -> None:
    few, more = (menu_of(node("Old"), range(k), [1] * k, [0.1] * k) for k in (2, 5))
    assert more.size_bytes() - few.size_bytes() == 3 * 30
    assert more.size_bytes(1000) - more.size_bytes() == 5000
    finer = menu_of(node("Old"), [0, 1], [1, 1], [0.1, 0.1], {node("Cafe"): {0: 0.1, 1: 0.2}})
    assert finer.size_bytes() - few.size_bytes() == 2 + len("Cafe") + 2 * 6


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ads": [4, 5, 4]}, "node Old: expected each ad once, got ad 4 twice"),
        ({"ads": []}, r"node Old: expected at least one ad, as whole numbers in 0..2\^63-1"),
        (
            {"ads": [1, -2, 3]},
            r"node Old: expected at least one ad, as whole numbers in 0..2\^63-1",
        ),
        ({"bid_micros": [1, -7, 3]}, r"node Old, ad 5: expected micros in 0..2\^53, got -7"),
        ({"bid_micros": [1, 2, 2**60]}, "node Old, ad 6: expected micros in 0"),
        ({"bid_micros": [0.5, 1.0, 1.0]}, "node Old: expected whole micros for each of 3 ads, got float64"),
        ({"bid_micros": [1, 2]}, r"node Old: expected whole micros for each of 3 ads, got int64 \(2,\)"),
        ({"rates": [0.1, float("nan"), 0.1]}, r"node Old, ad 5: expected a rate in \[0, 1\], got nan"),
        ({"rates": [0.1, 0.1, 1.1]}, r"node Old, ad 6: expected a rate in \[0, 1\], got 1.1"),
        ({"rates": [0.1, 0.1]}, "node Old: expected a rate for each of 3 ads"),
        ({"rates": ["a", "b", "c"]}, "node Old: rates: expected numbers"),
        ({"finer": {node("Cafe"): {4: float("nan")}}}, "finer rates, node Cafe: expected a rate in"),
        ({"finer": {node("Cafe"): {4: 0.1}, node("Bakery"): {5: -0.1}}}, "finer rates, node Bakery"),
        ({"finer": {node("Cafe"): {}, node("Bakery"): {9: 0.1}}}, "node Bakery: expected rates of ads"),
        ({"finer": {node("*"): {4: 0.1}}}, "finer rates: expected nodes below Old, got "),
        ({"finer": {node("New"): {4: 0.1}}}, "expected nodes below Old, got New beside it"),
        ({"finer": {Node((0, 0), ("a", "b")): {4: 0.1}}}, "expected nodes below Old, got a · b"),
        ({"charged": "view"}, "expected BillingEvent to be one of click, impression"),
    ],
)
def test_a_bad_answer_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    good: dict[str, Any] = {"ads": [4, 5, 6], "bid_micros": [10, 10, 10], "rates": [0.1, 0.1, 0.1]}
    menu_of(node("Old"), **good)
    with pytest.raises(BadInput, match=said) as refused:
        menu_of(node("Old"), **good | changes)
    assert "\n" not in str(refused.value)


def test_what_was_sent_does_not_change() -> None:
    sent = old_quarter()
    for column in (sent.bid_micros, sent.rates, sent.price_micros, sent.setter):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


PRICED: dict[str, Any] = {
    "ads": [4, NOTHING, 6],
    "bid_micros": [30, 0, 10],
    "rates": [0.5, 0.0, 0.1],
    "price_micros": [6, 0, 0],
    "setter": [NO_BIDDER, NO_BIDDER, RESERVE_PRICE],
    "price": SecondPrice(),
    "ctr_floor": 0.2,
    "nothing_micros": 3.0,
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"price_micros": [31, 0, 0]}, "node Old: expected prices up to the public worth, got ad 4 above"),
        ({"price_micros": [16, 0, 0], "price": SecondPrice(BillingEvent.IMPRESSION)}, "got ad 4 above"),
        ({"price_micros": [6, 1, 0]}, "expected no bid, rate and price for showing nothing, got one"),
        ({"rates": [0.5, 0.1, 0.1]}, "expected no bid, rate and price for showing nothing, got one"),
        ({"rates": [0.05, 0.0, 0.1]}, "node Old: expected the best public score first, got one that rises"),
        ({"nothing_micros": 0.5}, "expected the best public score first, got one that rises"),
        ({"nothing_micros": None}, "expected at least one ad, as whole numbers"),
        ({"ads": [4, 5, 6]}, "expected showing nothing among the candidates, got ads alone"),
        ({"ads": [4, 5, 6], "nothing_micros": None}, "expected what nothing is worth beside a floor, got None"),
        (
            {"setter": [-4, NO_BIDDER, RESERVE_PRICE]},
            "ad 4: expected who set its price, an ad or a code, got -4",
        ),
        (
            {"setter": np.array([0, 1, 2**63], np.uint64)},
            "ad 6: expected who set its price, an ad or a code, got 9223372036854775808",
        ),
        ({"setter": np.array([2**64 - 1, 1, 2], np.uint64)}, "ad 4: .* got 18446744073709551615"),
        ({"setter": [2**64, NO_BIDDER, RESERVE_PRICE]}, "expected who set each of 3 prices, an ad or a code"),
        ({"setter": [NO_BIDDER, NO_BIDDER]}, "expected who set each of 3 prices, an ad or a code"),
        ({"price": "second price"}, "expected a price rule of public data, got str"),
        ({"ctr_floor": float("nan")}, "ctr_floor"),
    ],
)
def test_a_menu_whose_order_or_prices_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    assert Menu(node("Old"), **PRICED).public_scores.tolist() == [15, 3, 1]
    with pytest.raises(BadInput, match=said) as refused:
        Menu(node("Old"), **PRICED | changes)
    assert "\n" not in str(refused.value)


def test_the_bill_is_told_the_menu_s_price_and_nothing_of_nothing() -> None:
    shown = Menu(node("Old"), **PRICED).impressions(np.array([2, 1, 0, 0]))
    assert shown.campaign.tolist() == [6, 4, 4]
    assert (shown.price_micros.tolist(), shown.most_micros.tolist()) == ([0, 6, 6], [10, 30, 30])
    assert (shown.rank.tolist(), shown.setter.tolist()) == ([2, 0, 0], [RESERVE_PRICE, NO_BIDDER, NO_BIDDER])
    assert (shown.rule, shown.due_on.tolist()) == ("second price per click", [1, 1, 1])
    assert shown.auction is not None
    assert shown.auction.tolist() == ["Old"] * 3, "all that a report says of its request"
    first = Menu(node("Old"), **PRICED | {"price": FirstPrice(BillingEvent.IMPRESSION)}).impressions(
        np.array([0])
    )
    assert (first.rule, first.most_micros.tolist(), first.due_on.tolist()) == (
        "first price per impression",
        [15],
        [0],
    )
