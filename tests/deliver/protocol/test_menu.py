"""What the server sends, and the device's own place in it: back-off, sizes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tacit.deliver.device.context import DeviceContext
from tacit.deliver.protocol.menu import Menu
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Node
from tacit.schema.contexts.tree import Tree
from tests.support.device_cases import EXACT, PLACES, QUARTER, ROOT, TOWN, here, node, old_quarter, whole_town


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
    few, more = (Menu(node("Old"), range(k), [1] * k, [0.1] * k) for k in (2, 5))
    assert more.size_bytes() - few.size_bytes() == 3 * 20
    assert more.size_bytes(1000) - more.size_bytes() == 5000
    finer = Menu(node("Old"), [0, 1], [1, 1], [0.1, 0.1], {node("Cafe"): {0: 0.1, 1: 0.2}})
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
        ({"micros": [1, -7, 3]}, r"node Old, ad 5: expected micros in 0..2\^53, got -7"),
        ({"micros": [1, 2, 2**60]}, "node Old, ad 6: expected micros in 0"),
        ({"micros": [0.5, 1.0, 1.0]}, "node Old: expected whole micros for each of 3 ads, got float64"),
        ({"micros": [1, 2]}, r"node Old: expected whole micros for each of 3 ads, got int64 \(2,\)"),
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
    good: dict[str, Any] = {"ads": [4, 5, 6], "micros": [10, 10, 10], "rates": [0.1, 0.1, 0.1]}
    Menu(node("Old"), **good)
    with pytest.raises(BadInput, match=said) as refused:
        Menu(node("Old"), **good | changes)
    assert "\n" not in str(refused.value)


def test_what_was_sent_does_not_change() -> None:
    sent = old_quarter()
    for column in (sent.micros, sent.rates):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0
