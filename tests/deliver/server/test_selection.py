"""Candidate sets: how near to the best set, what the bound promises, prices, short lists, and changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.deliver.server.selection import (
    GUARANTEE,
    AdSelection,
    IncrementalSelection,
    candidates_for_load,
    coarsest_level,
    select_ads,
    smallest_selection,
)
from tacit.deliver.server.values import ContextValues
from tacit.errors import BadInput
from tests.support.greedy_ways import optimum, revenue, sparse_of

CLOSE = 1e-12


@st.composite
def small(draw: st.DrawFn) -> ContextValues:
    ads, contexts = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.integers(0, 5, (ads, contexts)) * rng.choice([1.0, 0.7, 100.0], (ads, contexts))
    weight = rng.random(contexts) + 1e-3
    return made(values * draw(st.sampled_from([1.0, 1e-6])), weight / weight.sum())


def made(values: NDArray[np.float64], weight: NDArray[np.float64]) -> ContextValues:
    ads = 100 + 7 * np.arange(len(values), dtype=np.int64)
    return ContextValues(weight, values.astype(np.float32), ads)


def expected_revenue(values: ContextValues, chosen: Iterable[int]) -> float:
    """What a request earns in expectation if the device shows the best of these ads for its exact context."""
    best = np.zeros(len(values.weight))
    for ad in chosen:
        best = np.maximum(best, table(values)[values.row[int(ad)]])
    return float(values.weight @ best)


def objective(found: AdSelection) -> float:
    """Revenue less the price of sending."""
    return found.revenue - found.price_per_ad * len(found.ads)


def table(values: ContextValues) -> NDArray[np.float32]:
    assert isinstance(values.values, np.ndarray)
    return values.values


@settings(max_examples=150, deadline=None)
@given(small(), st.integers(1, 9), st.sampled_from([0.0, 0.02, 0.2]))
def test_guarantee_and_bound_hold_against_every_set(values: ContextValues, k: int, share: float) -> None:
    price = share * float(values.first_gains.max())
    best = optimum(table(values), values.weight, k, price)
    found = select_ads(values, k, price)
    assert found.bound is not None
    assert found.bound >= best
    assert objective(found) <= best + CLOSE * abs(best)
    if not price:
        assert found.revenue >= GUARANTEE * best
        assert found.bound <= best / GUARANTEE * (1 + 1e-9)  # the bound is never worse than the guarantee
    assert math.isclose(expected_revenue(values, found.ads), found.revenue, rel_tol=CLOSE, abs_tol=1e-300)


def test_the_bound_is_near_and_a_careless_one_fails() -> None:
    """To count additions only for places that are left, none after k, would be no bound: greedy falls short."""
    rng = np.random.default_rng(5)
    near, broken = [], 0
    for _ in range(60):
        values = made(rng.random((8, 4)) ** 3, np.full(4, 0.25))
        best = optimum(table(values), values.weight, 3)
        found = select_ads(values, 3)
        assert found.bound is not None
        near.append(found.bound / best)
        broken += found.revenue < best * (1 - CLOSE)
    assert min(near) >= 1.0
    assert np.mean(near) < 1.15
    assert broken > 5


@settings(max_examples=100, deadline=None)
@given(small(), st.floats(0, 3))
def test_stopping_by_price_is_the_best_of_all_lengths(values: ContextValues, price: float) -> None:
    """Section 3.3.2: run all k and pick the best, or stop once an ad adds no more than it costs."""
    found = select_ads(values, 9, price)
    lengths = [select_ads(values, k) for k in range(1, 10)]
    every = [0.0] + [one.revenue - price * len(one.ads) for one in lengths]
    assert math.isclose(objective(found), max(every), rel_tol=1e-9, abs_tol=1e-12)
    assert (found.gains > price).all()
    np.testing.assert_array_equal(found.ads, lengths[-1].ads[: len(found.ads)])


@settings(max_examples=100, deadline=None)
@given(small(), st.floats(0, 1))
def test_a_short_list_reaches_what_is_asked_and_no_ad_of_it_can_be_left_off(
    values: ContextValues, share: float
) -> None:
    most = revenue(table(values), values.weight, range(len(values.ads)))
    wanted = share * most
    found = smallest_selection(values, wanted)
    assert found.revenue >= wanted * (1 - CLOSE)
    if len(found.ads):
        before = expected_revenue(values, found.ads[:-1])
        assert before < wanted
        shortest = next(k for k in range(9) if optimum(table(values), values.weight, k) >= wanted * (1 - CLOSE))
        assert len(found.ads) <= math.ceil((1 + math.log(wanted / (wanted - before))) * shortest + 1e-6)
    if most:
        with pytest.raises(BadInput, match="all ads together earn"):
            smallest_selection(values, 1.01 * most)


def test_sparse_values_choose_as_dense_ones_do() -> None:
    rng = np.random.default_rng(6)
    dense = made(rng.random((60, 40)) * (rng.random((60, 40)) < 0.2), np.full(40, 1 / 40))
    sparse = ContextValues(dense.weight, sparse_of(table(dense)), dense.ads)
    one, other = select_ads(dense, 10), select_ads(sparse, 10)
    assert math.isclose(one.revenue, other.revenue, rel_tol=CLOSE)
    assert math.isclose(expected_revenue(dense, other.ads), other.revenue, rel_tol=CLOSE)


def test_uncertified_is_the_same_choice() -> None:
    values = made(np.random.default_rng(7).random((30, 10)), np.full(10, 0.1))
    plain = select_ads(values, 5, certify=False)
    assert plain.bound is None
    np.testing.assert_array_equal(plain.ads, select_ads(values, 5).ads)


def test_what_cannot_be_asked() -> None:
    values = made(np.ones((2, 2)), np.full(2, 0.5))
    for k in (0, -1, 1.5, True):
        with pytest.raises(BadInput, match="expected k to be a whole number >= 1"):
            select_ads(values, k)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="price_per_ad"):
        select_ads(values, 1, -1.0)
    assert expected_revenue(values, []) == 0.0
    assert len(select_ads(values, 50).ads) == 1  # the second ad is a copy: it would add nothing


def levels_of(revenues: dict[str, list[tuple[float, float]]]) -> dict[str, list[tuple[float, ContextValues]]]:
    return {
        level: [(chance, made(np.array([[worth]]), np.ones(1))) for chance, worth in nodes]
        for level, nodes in revenues.items()
    }


def test_the_coarsest_level_that_earns_enough() -> None:
    levels = ["anything", "city", "street"]
    nodes = levels_of({"anything": [(1.0, 2.0)], "city": [(0.5, 4.0), (0.5, 3.0)], "street": [(0.25, 16.0)]})
    for wanted, level, earned in (
        (0.0, "anything", 2.0),
        (2.0, "anything", 2.0),
        (3.5, "city", 3.5),
        (4, "street", 4),
    ):
        for source in (nodes, nodes.__getitem__):
            found = coarsest_level(levels, source, 1, wanted)
            assert (found.level, found.revenue) == (level, earned)
            assert len(found.selections) == len(nodes[level])
    with pytest.raises(BadInput, match="some level reaches with 1 ads, at most 4 micros"):
        coarsest_level(levels, nodes, 1, 4.1)
    with pytest.raises(BadInput, match="level city: expected probabilities that add up to at most 1"):
        coarsest_level(["city"], levels_of({"city": [(0.8, 4.0), (0.5, 3.0)]}), 1, 0.0)
    with pytest.raises(BadInput, match="level city: the probability of a node"):
        coarsest_level(["city"], levels_of({"city": [(-0.5, 4.0)]}), 1, 0.0)
    with pytest.raises(BadInput, match="at least one level"):
        coarsest_level([], nodes, 1, 0.0)


def test_levels_with_the_finest_first_are_refused_not_taken_for_the_coarsest() -> None:
    tuples = [(0, 0), (0, 1), (1, 0), (1, 1)]  # as Hierarchy.levels() has them
    nodes = {level: [(1.0, made(np.array([[4.0 - sum(level)]]), np.ones(1)))] for level in tuples}
    with pytest.raises(BadInput, match=r"the coarsest level first, got \(0, 0\) before the coarser \(0, 1\)"):
        coarsest_level(tuples, nodes, 1, 3.0)
    for ordered in (tuples[::-1], [(1, 1), (0, 1), (1, 0), (0, 0)]):  # neither of the two in between is coarser
        assert coarsest_level(ordered, nodes, 1, 3.0).level == ordered[1]
    with pytest.raises(BadInput, match="tuples of different lengths"):
        coarsest_level([(1, 1), (0,)], {}, 1, 3.0)
    with pytest.raises(BadInput, match=r"level \(1, 2\): expected its nodes, got none"):
        coarsest_level([(1, 2), (1, 1)], nodes, 1, 3.0)


def test_a_finer_level_is_not_visited_before_it_is_needed() -> None:
    asked = []

    def nodes(level: int) -> list[tuple[float, ContextValues]]:
        asked.append(level)
        return [(1.0, made(np.array([[float(level)]]), np.ones(1)))]

    assert coarsest_level([1, 2, 3], nodes, 5, 1.5).level == 2
    assert asked == [1, 2]


def test_candidates_follow_the_load() -> None:
    assert candidates_for_load(1_000_000, 100, 2_000, 20) == 5
    assert candidates_for_load(1_000_000, 100, 2_000, 3) == 3
    assert candidates_for_load(0.3, 1, 0.1, 10) == 3  # as written, not as doubles have it
    assert candidates_for_load(10, 0, 5, 7) == 7
    assert candidates_for_load(200, 1, 100, 9) == 2
    with pytest.raises(BadInput, match="room for one ad per request, 200000 bytes per second, got 199999"):
        candidates_for_load(199_999, 100, 2_000, 20)
    for arguments in ((-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0), (math.nan, 1, 1, 1)):
        with pytest.raises(BadInput):
            candidates_for_load(*arguments)


CONTEXTS = 24


def begun(ads: int, rng: np.random.Generator) -> ContextValues:
    weight = rng.random(CONTEXTS)
    return ContextValues(
        weight / weight.sum() / 2,
        rng.random((ads, CONTEXTS)).astype(np.float32),
        rng.permutation(1000)[:ads].astype(np.int64),
    )


def change(kept: IncrementalSelection, rng: np.random.Generator, kind: str) -> None:
    ads = kept.ads
    if kind == "ads":
        some = rng.choice(ads, min(3, len(ads)), replace=False)
        kept.update(some, rng.random((len(some), CONTEXTS)).astype(np.float32))
    elif kind == "added":
        new = np.setdiff1d(rng.permutation(5000)[:4].astype(np.int64), ads)
        kept.update(new, rng.integers(0, 3, (len(new), CONTEXTS)).astype(np.float32))


KINDS = ("ads", "added")


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(KINDS), min_size=1, max_size=12))
def test_after_any_changes_the_choice_is_that_of_a_new_beginning(seed: int, kinds: list[str]) -> None:
    rng = np.random.default_rng(seed)
    kept = IncrementalSelection(begun(int(rng.integers(1, 30)), rng))
    for kind in kinds:
        change(kept, rng, kind)
        held = kept.values()
        mine, anew = kept.select(6, 0.01), select_ads(held, 6, 0.01)
        np.testing.assert_array_equal(mine.ads, anew.ads)
        np.testing.assert_array_equal(mine.gains, anew.gains)
        assert mine.bound == anew.bound


def test_the_values_held_are_those_that_were_given() -> None:
    rng = np.random.default_rng(1)
    first = begun(5, rng)
    kept = IncrementalSelection(first)
    assert isinstance(first.values, np.ndarray)
    expected = first.values.copy()
    ads = first.ads.tolist()
    row = rng.random((1, CONTEXTS)).astype(np.float32)
    kept.update(np.array([ads[2]]), row)
    expected[2] = row
    kept.update(np.array([7777]), row * 2)
    expected = np.concatenate([expected, row * 2])
    held = kept.values()
    np.testing.assert_array_equal(held.values, expected)
    np.testing.assert_array_equal(held.weight, first.weight)
    assert held.ads.tolist() == [*ads, 7777]


def test_adding_keeps_room_in_proportion() -> None:
    rng = np.random.default_rng(3)
    kept = IncrementalSelection(begun(4, rng))
    for ad in range(2000, 2100):
        kept.update(np.array([ad]), rng.random((1, CONTEXTS)).astype(np.float32))
    assert len(kept._values) <= 2 * 104
    assert len(kept.ads) == 104


def test_refusals_change_nothing() -> None:
    rng = np.random.default_rng(4)
    kept = IncrementalSelection(begun(6, rng))
    before = kept.select(4)
    ads = kept.ads
    good, bad = np.ones((1, CONTEXTS), np.float32), np.full((1, CONTEXTS), np.nan, np.float32)
    attempts: list[tuple[Callable[[], object], str]] = [
        (lambda: kept.update(np.array([99_999]), bad), "ad 99999: expected values that are finite"),
        (
            lambda: kept.update(ads[3:4], -good),
            f"ad {ads[3]}: expected values that are finite and >= 0, got -1",
        ),
        (lambda: kept.update([7], good), "expected ads as a NumPy array, got list"),  # type: ignore[arg-type]
        (lambda: kept.update(ads[:1], [[1.0]]), "expected values as a NumPy array, got list"),  # type: ignore[arg-type]
        (lambda: kept.update(ads[:1], good[:, 1:]), "expected values as"),
        (lambda: kept.update(ads[:2], good), "expected ads as int64 of 1"),
        (lambda: kept.update(np.array([8, 8]), np.ones((2, CONTEXTS), np.float32)), "got ad 8 twice"),
        (lambda: kept.select(0), "k to be a whole number"),
    ]
    for attempt, message in attempts:
        with pytest.raises(BadInput, match=message):
            attempt()
        after = kept.select(4)
        np.testing.assert_array_equal(after.ads, before.ads)
        np.testing.assert_array_equal(after.gains, before.gains)


def test_what_was_given_is_left_alone_and_sparse_values_are_refused() -> None:
    rng = np.random.default_rng(5)
    first = begun(5, rng)
    assert isinstance(first.values, np.ndarray)
    copy = first.values.copy()
    kept = IncrementalSelection(first)
    kept.update(first.ads[:1], np.ones((1, CONTEXTS), np.float32))
    np.testing.assert_array_equal(first.values, copy)
    assert math.isclose(first.weight.sum(), 0.5)
    with pytest.raises(BadInput, match="dense"):
        IncrementalSelection(ContextValues(first.weight, sparse_of(copy), first.ads))
