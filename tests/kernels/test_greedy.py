"""Compiled greedy choice against its NumPy twin, bit for bit, and against the definition of its gains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.kernels import greedy
from tacit.kernels.greedy import GreedySelection, SparseValues, first_gains, gains_beside, lazy_greedy
from tests.support.greedy_ways import WAYS, revenue, served, sparse_of

Values = NDArray[Any]
CLOSE = 1e-12
"""Sums of at most some hundred positive doubles in another order."""


@st.composite
def instances(draw: st.DrawFn) -> tuple[Values, NDArray[np.float64]]:
    """Ties, duplicates, zeros, weights of 0, heavy tails, tiny and huge values, one ad or one context."""
    ads, contexts = draw(st.integers(1, 70)), draw(st.sampled_from([1, 2, 15, 16, 17, 40, 300, 1100]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["ties", "uniform", "heavy", "sparse", "alike", "spread"]))
    if kind == "ties":
        values = rng.integers(0, 4, (ads, contexts)).astype(np.float64)
    elif kind == "heavy":
        values = np.exp(3 * rng.standard_normal((ads, 1)) + rng.standard_normal((ads, contexts)))
    elif kind == "sparse":
        values = rng.random((ads, contexts)) * (rng.random((ads, contexts)) < 0.1)
    elif kind == "alike":
        values = np.repeat(rng.random((1, contexts)), ads, axis=0)
        values[rng.integers(ads)] *= 1 + 1e-7
    elif kind == "spread":  # beyond what a byte tells apart, and beyond what a float32's inverse can say
        values = 10.0 ** rng.uniform(-44, 30, (ads, contexts))
    else:
        values = rng.random((ads, contexts))
    weight = rng.random(contexts) ** draw(st.sampled_from([0.0, 1.0, 8.0]))
    weight[rng.random(contexts) < draw(st.sampled_from([0.0, 0.5]))] = 0.0
    weight *= draw(st.sampled_from([1.0, 1.0, 1e-250]))
    return values.astype(draw(st.sampled_from([np.float32, np.float64]))), weight


def same(one: GreedySelection, other: GreedySelection) -> None:
    np.testing.assert_array_equal(one.ads, other.ads)
    np.testing.assert_array_equal(one.gains, other.gains)
    assert one.bound == other.bound


@settings(max_examples=60, deadline=None)
@given(instances(), st.integers(1, 80), st.sampled_from([0.0, 0.05]), st.booleans(), st.booleans())
def test_every_way_chooses_alike(
    instance: tuple[Values, NDArray[np.float64]], k: int, share: float, certify: bool, sparse: bool
) -> None:
    table, weight = instance
    values = sparse_of(table) if sparse else table
    with served("twin"):
        alone = first_gains(values, weight)
        middle = np.median(table, axis=0).astype(np.float64)
        beside = gains_beside(values, weight, middle)
        at_least = share * float(alone.max())
        expected = lazy_greedy(values, weight, k, at_least, certify=certify)
        half = float(expected.gains.sum()) / 2
        expected_half = lazy_greedy(values, weight, k, at_least, enough=half, certify=certify)
    for way in WAYS:
        with served(way):
            np.testing.assert_array_equal(first_gains(values, weight), alone)
            np.testing.assert_array_equal(gains_beside(values, weight, middle), beside)
            same(lazy_greedy(values, weight, k, at_least, certify=certify), expected)
            loose = alone * 1.5 + 1e-3
            same(lazy_greedy(values, weight, k, at_least, loose, certify=certify), expected)
            same(lazy_greedy(values, weight, k, at_least, enough=half, certify=certify), expected_half)


@settings(max_examples=30, deadline=None)
@given(instances(), st.integers(1, 80))
def test_gains_are_those_of_the_definition(instance: tuple[Values, NDArray[np.float64]], k: int) -> None:
    values, weight = instance
    picked = lazy_greedy(values, weight, k)
    whole = revenue(values, weight, range(len(values)))
    for size in range(len(picked.ads) + 1):
        reached = revenue(values, weight, picked.ads[:size])
        assert abs(picked.gains[:size].sum() - reached) <= CLOSE * whole
        if size < min(k, len(values)):
            others = [revenue(values, weight, [*picked.ads[:size], ad]) - reached for ad in range(len(values))]
            gained = picked.gains[size] if size < len(picked.ads) else 0.0
            assert max(others) <= gained + CLOSE * whole
    assert (np.diff(picked.gains) <= 0).all()
    assert len(set(picked.ads.tolist())) == len(picked.ads) <= min(k, len(values))
    assert (picked.gains > 0).all()


def test_of_equals_the_first_is_chosen_and_a_copy_never() -> None:
    values = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]], np.float32)
    for way in WAYS:
        with served(way):
            picked = lazy_greedy(values, np.ones(3), 5)
            assert picked.ads.tolist() == [0, 1, 3]
            assert picked.gains.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("way", WAYS)
def test_of_equals_in_blocks_apart_the_first_is_chosen(way: str) -> None:
    """Ads share bounds in blocks of 64: a block whose bound equals the best so far must still be looked at."""
    values = np.zeros((140, 4))
    values[0, 3], values[70, 1], values[130, 0], values[135, 0], values[135, 2] = 2.5, 1, 4, 2, 1
    with served(way):
        assert lazy_greedy(values, np.ones(4), 3).ads.tolist() == [130, 0, 70]
    draws = np.random.default_rng(4)
    for _ in range(20):
        many = draws.integers(0, 3, (300, 6)).astype(np.float64)  # full of ties
        with served("twin"):
            plain = lazy_greedy(many, np.ones(6), 8)
        with served(way):
            assert lazy_greedy(many, np.ones(6), 8).ads.tolist() == plain.ads.tolist()


def test_bounds_spare_most_of_the_work() -> None:
    """Otherwise the fast way would be no faster, and no other test would notice."""
    rng = np.random.default_rng(1)
    ads, k = 3000, 20
    values = np.exp(rng.standard_normal((ads, 1)) + 0.5 * rng.standard_normal((ads, 100))).astype(np.float32)
    with served("sketched"):
        assert lazy_greedy(values, np.full(100, 0.01), k).evaluations < 0.05 * ads * k
    with served("wide"):
        assert lazy_greedy(values, np.full(100, 0.01), k).evaluations < 0.3 * ads * k
    with served("twin"):
        assert lazy_greedy(values, np.full(100, 0.01), k).evaluations >= ads * k


@pytest.mark.parametrize(("way", "k"), [("wide", 1), ("narrow", 1), ("sketched", 2), ("narrow sketched", 2)])
def test_ads_that_come_in_rising_order_are_not_each_looked_at(way: str, k: int) -> None:
    """All share context 0, and have a little more than the ad before, in one of two contexts of their own.

    Beside the first choice only a sketch tells them apart: what they gained alone is more than any gains now.
    """
    values = np.zeros((1000, 3), np.float32)
    values[:, 0] = 1
    values[np.arange(1000), 1 + np.arange(1000) % 2] = np.arange(1, 1001) / 1000
    with served(way):
        picked = lazy_greedy(values, np.ones(3), k)
    assert picked.ads.tolist() == [999, 998][:k]
    assert picked.evaluations < 100


def test_rows_of_a_sketch_lie_one_after_another() -> None:
    """Memory is cleared where it is first touched, in large pages: scattered rows would touch all of it."""
    kernel = pytest.importorskip("tacit.kernels._greedy")
    rng = np.random.default_rng(6)
    values = np.exp(rng.standard_normal((2000, 1)) + 0.5 * rng.standard_normal((2000, 64))).astype(np.float32)
    k, rules = 20, (0.0, np.inf, False)
    left = {}
    for filled in (0, 255):  # a byte that stays what it was, whatever it was, was not written
        room = np.full(values.size, filled, np.uint8)
        picked, gains = np.empty(k, np.int64), np.empty(k)
        kernel.dense_greedy(values, np.full(64, 1 / 64), np.empty(2000), True, k, *rules, room, picked, gains)
        left[filled] = (room == filled).reshape(values.shape).all(axis=1)
    drawn = ~(left[0] & left[255])
    assert 0 < drawn.sum() < 1000
    assert drawn[: drawn.sum()].all()


def beyond_the_sample() -> Values:
    """Most of the worth is in ads that the scales of a sketch are not taken from, far above these scales."""
    rng = np.random.default_rng(4)
    values = 0.01 * rng.random((1200, 40))
    values[1::4] += (rng.random((300, 40)) < 0.1) * rng.random((300, 40))
    return values.astype(np.float32)


def within_one_step() -> Values:
    """All differ by less than one step of a sketch, whose scales come from ads that are good in one context."""
    values = 1 - 0.004 * (0.4 + 0.55 * np.random.default_rng(5).random((600, 64)))
    values[:128:2] = np.eye(64)
    return values.astype(np.float32)


@pytest.mark.parametrize("values", [beyond_the_sample(), within_one_step()], ids=["beyond", "within"])
@pytest.mark.parametrize("known", [False, True])
def test_sketches_round_against_themselves(values: Values, known: bool) -> None:
    """Where a bound that is a little too low would lose the ad to choose."""
    weight = np.full(values.shape[1], 1 / values.shape[1])
    with served("twin"):
        expected = lazy_greedy(values, weight, 30, certify=True)
        first = first_gains(values, weight) if known else None
    for way in WAYS:
        with served(way):
            same(lazy_greedy(values, weight, 30, 0.0, first, certify=True), expected)


def test_a_wrong_bound_shows() -> None:
    """The power of the tests above: bounds below the gains do change the choice."""
    values = np.random.default_rng(2).random((50, 20)).astype(np.float32)
    weight = np.full(20, 0.05)
    truth = lazy_greedy(values, weight, 5)
    low = first_gains(values, weight)
    low[truth.ads[0]] = 0.0
    assert lazy_greedy(values, weight, 5, 0.0, low).ads.tolist() != truth.ads.tolist()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, -np.inf])
@pytest.mark.parametrize("sparse", [False, True])
def test_values_that_cannot_be_meant_name_their_ad(way: str, bad: float, sparse: bool) -> None:
    values = np.random.default_rng(3).random((9, 21)).astype(np.float32)
    values[4, 20] = values[7, 0] = bad
    weight = np.ones(21)
    weight[20] = 0.0
    given_values = sparse_of(values) if sparse else values
    with served(way):
        with pytest.raises(BadInput, match="ad 4: expected values that are finite"):
            first_gains(given_values, weight)
        with pytest.raises(BadInput, match="ad 4: expected values that are finite"):
            lazy_greedy(given_values, weight, 2)


def test_arguments_that_cannot_be_meant() -> None:
    values, weight = np.ones((3, 2), np.float32), np.ones(2)
    for k in (0, -1, True):
        with pytest.raises(BadInput, match="k to be a whole number >= 1"):
            lazy_greedy(values, weight, k)
    for price in (-1.0, np.nan, np.inf):
        with pytest.raises(BadInput, match="at_least"):
            lazy_greedy(values, weight, 1, price)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(BadInput, match="weights"):
            lazy_greedy(values, np.array([1.0, bad]), 1)
    with pytest.raises(BadInput, match="expected weight as"):
        lazy_greedy(values, np.ones(3), 1)
    with pytest.raises(BadInput, match="expected values as"):
        lazy_greedy(values.T, np.ones(3), 1)
    with pytest.raises(BadInput, match="first_gains"):
        lazy_greedy(values, weight, 1, 0.0, np.full(3, np.nan))
    with pytest.raises(BadInput, match="first_gains"):
        lazy_greedy(values, weight, 1, 0.0, np.ones(2))
    with pytest.raises(BadInput, match="enough"):
        lazy_greedy(values, weight, 1, enough=np.nan)


@pytest.mark.parametrize(
    ("offsets", "context", "message"),
    [
        ([0, 2, 1], [0], "offsets"),
        ([1, 2], [0], "offsets"),
        ([0, 2], [0, 3], "contexts in 0..2"),
        ([0, 2], [-1, 0], "contexts in 0..2"),
        ([0, 1, 3], [2, 1, 1], "ad 1: expected contexts that rise"),
        ([0, 1, 1, 3], [2, 2, 0], "ad 2: expected contexts that rise"),
    ],
)
def test_sparse_values_are_checked_before_they_are_read(
    offsets: list[int], context: list[int], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        SparseValues(
            np.array(offsets, np.int64), np.array(context, np.int32), np.ones(len(context), np.float32), 3
        )


def test_no_ads_or_empty_rows() -> None:
    for way in WAYS:
        with served(way):
            none = lazy_greedy(np.empty((0, 3), np.float32), np.ones(3), 2, certify=True)
            assert (len(none.ads), none.bound) == (0, 0.0)
            empty = SparseValues(np.array([0, 0, 1, 1]), np.array([1], np.int32), np.array([2.0]), 3)
            assert lazy_greedy(empty, np.ones(3), 3).ads.tolist() == [1]
    assert greedy.SKETCHED > 0
