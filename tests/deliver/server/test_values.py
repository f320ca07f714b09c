"""What ads are worth in contexts: payments, bids on nodes, the floor on click rates, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.deliver.server.selection import select_ads
from tacit.deliver.server.values import Bid, ContextValues, Payments, expect_bids, most_specific_bid
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Hierarchy, Lattice, Sequence, is_coarser
from tacit.schema.contexts.tree import Tree

PLACES = Steps("place", Tree.of_paths(["North>Oslo", "North>Bergen", "South>Rome"]))
THINGS = Steps("thing", Tree.of_paths(["Food>Tea", "Food>Coffee", "Sport>Golf"]))
CHAIN = Sequence((PLACES, THINGS), [(0, 0), (0, 1), (1, 1), (1, 2)])
LATTICE = Lattice((PLACES, THINGS))
CONTEXTS = list(itertools.product(("Oslo", "Bergen", "Rome"), ("Tea", "Coffee", "Golf")))
ADS = np.array([4, 9], np.int64)


def resolved(
    bids: Iterable[Bid], ads: Iterable[int], hierarchy: Hierarchy
) -> dict[int, dict[tuple[str, str], int]]:
    """What each ad pays in each context: the most specific bid above it, and 0 where there is none."""
    placed = tuple(bids)
    expect_bids(placed, tuple(ads), hierarchy)
    above = {
        (ad, context): [
            (bid.node, bid.micros)
            for bid in placed
            if bid.ad == ad and hierarchy.at(context, bid.node.levels) == bid.node
        ]
        for ad in ads
        for context in CONTEXTS
    }
    return {
        ad: {context: most_specific_bid(found) if (found := above[ad, context]) else 0 for context in CONTEXTS}
        for ad in ads
    }


def test_the_most_specific_bid_holds_and_none_means_nothing() -> None:
    def on(context: tuple[str, str], levels: tuple[int, int], ad: int, micros: int) -> Bid:
        return Bid(ad, CHAIN.at(context, levels), micros)

    bids = [
        on(("Oslo", "Tea"), (0, 0), 4, 900),
        on(("Oslo", "Tea"), (1, 1), 4, 300),  # food in the north
        on(("Oslo", "Tea"), (0, 1), 4, 0),  # food in Oslo: not wanted, though the rest of the north is
        on(("Rome", "Golf"), (2, 2), 9, 50),  # anywhere
        on(("Rome", "Golf"), (1, 2), 9, 70),
    ]
    expected = {
        4: {("Oslo", "Tea"): 900, ("Bergen", "Tea"): 300, ("Bergen", "Coffee"): 300},
        9: {context: 70 if context[0] == "Rome" else 50 for context in CONTEXTS},
    }
    for order in itertools.permutations(bids):
        pays = resolved(order, ADS.tolist(), CHAIN)
        assert {ad: {context: m for context, m in row.items() if m} for ad, row in pays.items()} == expected


def test_random_bids_resolve_as_a_search_along_the_path() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        nodes = {node for context in CONTEXTS for node in CHAIN.path(context) if rng.random() < 0.3}
        bids = {node: int(rng.integers(1, 1000)) for node in nodes}
        pays = resolved((Bid(4, n, m) for n, m in bids.items()), [4], CHAIN)
        along = [next((bids[n] for n in CHAIN.path(context) if n in bids), 0) for context in CONTEXTS]
        assert list(pays[4].values()) == along


def test_in_a_lattice_the_lower_of_two_that_are_equally_specific_holds() -> None:
    oslo, tea = LATTICE.at(("Oslo", "Tea"), (0, 2)), LATTICE.at(("Oslo", "Tea"), (2, 0))
    north, both = LATTICE.at(("Oslo", "Tea"), (1, 2)), LATTICE.at(("Oslo", "Tea"), (0, 0))
    assert not is_coarser(oslo.levels, tea.levels)
    bids = [Bid(4, oslo, 500), Bid(4, tea, 200), Bid(4, north, 10)]
    found = resolved(bids, [4], LATTICE)[4]
    assert found["Oslo", "Tea"] == 200
    assert found["Oslo", "Golf"] == 500
    assert found["Bergen", "Golf"] == 10
    assert found["Bergen", "Tea"] == 10  # the lower of tea and north
    assert found["Rome", "Golf"] == 0
    assert resolved([*bids, Bid(4, both, 900)], [4], LATTICE)[4]["Oslo", "Tea"] == 900


def test_bids_that_cannot_be_meant_name_ad_and_node() -> None:
    node = CHAIN.at(("Oslo", "Tea"), (1, 1))
    cases = [
        ([Bid(4, node, -5)], "ad 4 on place North · thing Food: expected whole micros in 0..2.53, got -5"),
        ([Bid(4, node, 1.5)], "ad 4 on place North · thing Food: expected whole micros"),  # type: ignore[arg-type]
        ([Bid(5, node, 1)], "got one for ad 5"),
        ([Bid(4, node, 1), Bid(4, node, 2)], "ad 4 on place North · thing Food: expected one bid, got two"),
        ([Bid(4, node, 1), Bid(4, node, 1)], "ad 4 on place North · thing Food: expected one bid, got two"),
        ([Bid(4, "Sport", 5)], "ad 4: expected a bid on a Node of the hierarchy, got str"),  # type: ignore[arg-type]
        (
            [Bid(4, LATTICE.at(("Oslo", "Tea"), (2, 0)), 1)],
            "ad 4 on thing Tea: expected levels of the hierarchy",
        ),
    ]
    for bids, message in cases:
        with pytest.raises(BadInput, match=message):
            expect_bids(bids, ADS.tolist(), CHAIN)
    with pytest.raises(BadInput, match=r"expected bids as Bid\(ad, node, micros\), got tuple"):
        expect_bids([(4, node, 5)], ADS.tolist(), CHAIN)  # type: ignore[list-item]


def everywhere(micros: Any, ads: NDArray[np.int64] | None = None) -> Payments:
    """One payment per ad, whatever the context."""
    return Payments(np.array(micros), np.arange(len(micros)) if ads is None else ads)


def test_payments_that_cannot_be_meant() -> None:
    with pytest.raises(BadInput, match=r"ad 9: expected a payment in .* micros, got -1"):
        everywhere([5, -1], ADS)
    with pytest.raises(BadInput, match="ad 4 in context 1: expected a payment"):
        Payments(np.array([[1, -3], [0, 0]]), ADS)
    with pytest.raises(BadInput, match="whole micros"):
        everywhere(np.array([1.0, 2.0]))
    with pytest.raises(BadInput, match="got ad 4 twice"):
        everywhere([1, 2], np.array([4, 4]))
    with pytest.raises(BadInput, match="expected ads as int64 of 2"):
        everywhere([1, 2], np.array([4]))


def test_values_are_payments_times_rates() -> None:
    rng = np.random.default_rng(2)
    rates, micros = rng.random((5, 3000)), rng.integers(0, 10**6, (3000, 5))
    ads = np.arange(3000, dtype=np.int64)
    by_context = ContextValues.of(rates, np.full(5, 0.2), Payments(micros, ads))
    np.testing.assert_array_equal(by_context.values, (micros * rates.T).astype(np.float32))
    same = ContextValues.of(rates, np.full(5, 0.2), everywhere(micros[:, 0]))
    np.testing.assert_array_equal(same.values, (micros[:, :1] * rates.T).astype(np.float32))


def test_below_the_floor_an_ad_is_worth_nothing() -> None:
    """Section 3.2.3's example: the dearer ad is less relevant. The floor itself is allowed."""
    rates = np.array([[0.1, 0.9], [0.2, 0.05]])
    payment = everywhere([100_000, 10_000])
    chance = np.array([0.5, 0.5])
    assert select_ads(ContextValues.of(rates, chance, payment), 1).ads.tolist() == [0]
    floored = ContextValues.of(rates, chance, payment, ctr_floor=0.2)
    assert isinstance(floored.values, np.ndarray)
    assert floored.values.tolist() == [[0, 20_000], [9_000, 0]]
    rng = np.random.default_rng(3)
    for floor in (0.0, 0.3, 0.999, 1.0):
        rates = rng.random((7, 40))
        values = ContextValues.of(rates, np.full(7, 1 / 7), everywhere(np.full(40, 10)), floor)
        assert isinstance(values.values, np.ndarray)
        assert ((values.values > 0) == (floor <= rates.T)).all()
    with pytest.raises(BadInput, match="ctr_floor"):
        ContextValues.of(rates, np.full(7, 1 / 7), everywhere(np.full(40, 10)), 1.5)


def test_what_is_left_out_earns_nothing_and_more_than_all_is_refused() -> None:
    rates, payment = np.full((2, 1), 0.5), everywhere([1000])
    assert select_ads(ContextValues.of(rates, np.array([0.5, 0.5]), payment), 1).revenue == 500
    assert select_ads(ContextValues.of(rates, np.array([0.5, 0.1]), payment), 1).revenue == pytest.approx(300)
    thirds = np.full(3, 1 / 3)
    ContextValues.of(np.full((3, 1), 0.5), np.nextafter(thirds, 1), payment)  # rounding is no reason to refuse
    for chance in ([0.6, 0.6], [1.1, 0.0]):
        with pytest.raises(BadInput, match="probabilities of contexts"):
            ContextValues.of(rates, np.array(chance), payment)
    for chance in ([-0.1, 0.5], [np.nan, 0.5]):
        with pytest.raises(BadInput, match=r"probabilities of contexts in 0\.\.1"):
            ContextValues.of(rates, np.array(chance), payment)


def test_rates_that_cannot_be_meant_name_context_and_ad() -> None:
    payment, chance = everywhere([10, 20], ADS), np.array([0.5, 0.5])
    names = [str(CHAIN.at(context, (0, 0))) for context in CONTEXTS[:2]]
    for bad in (np.nan, -0.1, 1.1, np.inf):
        rates = np.array([[0.1, 0.1], [0.1, bad]])
        with pytest.raises(
            BadInput, match=r"context place Oslo · thing Coffee: expected the rate of ad 9 in 0\.\.1"
        ):
            ContextValues.of(rates, chance, payment, contexts=names)
    without = np.array([[0.1, 0.1], [np.nan, np.nan]])
    with pytest.raises(BadInput, match="context place Oslo · thing Coffee: expected statistics, got none"):
        ContextValues.of(without, chance, payment, contexts=names)
    with pytest.raises(BadInput, match="context 1: expected statistics, got none"):
        ContextValues.of(without, chance, payment)
    with pytest.raises(BadInput, match="expected rates as"):
        ContextValues.of(without.T[:1], chance, payment)
    with pytest.raises(BadInput, match="payments for 2 contexts, got 1"):
        ContextValues.of(np.ones((2, 2)), chance, Payments(np.ones((2, 1), np.int64), ADS))
    with pytest.raises(BadInput, match="at least one context"):
        ContextValues(np.empty(0), np.empty((2, 0), np.float32), ADS)
    with pytest.raises(BadInput, match="ad 9: expected values that are finite and >= 0, got -4"):
        ContextValues(chance, np.array([[1, 2], [3, -4]], np.float32), ADS)
