"""Buckets on a log scale: every edge against whole numbers and fractions, which have no rounding."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.encoding.buckets import FINEST, SMALL, bucket_range, real_buckets, whole_buckets
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, Role

TOP = 2**63 - 1
PER_DOUBLING = (1, 2, 3, 4, 5, 7, 10, 64)
Finenesses = pytest.mark.parametrize("per_doubling", PER_DOUBLING)


def step(size: int, per_doubling: int) -> int:
    """floor(per_doubling * log2(size)), exactly: the last s with size^per_doubling >= 2^s."""
    return int((size**per_doubling).bit_length() - 1)


def real_step(size: Fraction, per_doubling: int) -> int:
    """The same of a fraction."""
    power = size**per_doubling
    guess = power.numerator.bit_length() - power.denominator.bit_length()
    return guess if power >= Fraction(2) ** guess else guess - 1


def whole(values: list[int], per_doubling: int) -> list[int]:
    buckets: list[int] = whole_buckets(np.array(values, dtype=np.int64), per_doubling=per_doubling).tolist()
    return buckets


def real(values: list[float], per_doubling: int) -> list[int]:
    buckets: list[int] = real_buckets(np.array(values, dtype=np.float64), per_doubling=per_doubling).tolist()
    return buckets


def around_whole_edges(per_doubling: int) -> list[int]:
    """Both sides of each place where floor(k log2 x) changes, found by halving between powers of two."""
    edges = {1, TOP}
    for wanted in range(0, 63 * per_doubling, max(1, per_doubling // 10)):
        low, high = 0, TOP
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if step(middle, per_doubling) >= wanted else (middle, high)
        edges.add(high)
    return sorted({max(1, edge + near) for edge in edges for near in (-1, 0, 1) if edge + near <= TOP})


@Finenesses
def test_whole_numbers_change_their_bucket_at_the_exact_edges(per_doubling: int) -> None:
    """Two sizes share a bucket exactly when they share a step; buckets count the steps that hold a number."""
    sizes = sorted({*range(1, 2 * SMALL), *around_whole_edges(per_doubling)})
    buckets = whole(sizes, per_doubling)
    steps = [step(size, per_doubling) for size in sizes]
    for index in range(1, len(sizes)):
        assert (buckets[index] > buckets[index - 1]) == (steps[index] > steps[index - 1]), sizes[index]
    # From 1 without gaps while every number is looked at.
    ranks = {found: rank for rank, found in enumerate(sorted({*steps[: 2 * SMALL - 1]}), start=1)}
    assert buckets[: 2 * SMALL - 1] == [ranks[found] for found in steps[: 2 * SMALL - 1]]
    # Above that, every step holds a number, so buckets and steps rise together.
    if per_doubling <= 10:
        assert {bucket - found for bucket, found in zip(buckets, steps, strict=True) if found > 60} == {
            buckets[-1] - steps[-1]
        }


@given(
    values=st.lists(st.integers(1, TOP), min_size=2, max_size=30), per_doubling=st.sampled_from(PER_DOUBLING)
)
def test_any_whole_numbers_are_ordered_as_their_exact_steps(values: list[int], per_doubling: int) -> None:
    sizes = sorted(values)
    buckets, steps = whole(sizes, per_doubling), [step(size, per_doubling) for size in sizes]
    assert [a < b for a, b in pairwise(buckets)] == [a < b for a, b in pairwise(steps)]


@given(st.integers(1, TOP))
def test_one_bucket_a_doubling_is_the_length_in_bits(size: int) -> None:
    assert whole([size, -size], 1) == [size.bit_length(), -size.bit_length()]
    assert real([float(size)], 1) == [min(int(float(size)).bit_length(), 63) + FINEST]


@Finenesses
def test_whole_numbers_at_their_ends(per_doubling: int) -> None:
    last = bucket_range(Kind.WHOLE, per_doubling)
    assert whole([0, 1, -1, TOP, -TOP, -TOP - 1], per_doubling) == [0, 1, -1, last, -last, -last]
    assert whole([], per_doubling) == []


@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20),
    per_doubling=st.sampled_from(PER_DOUBLING),
)
def test_any_reals_have_their_exact_bucket(values: list[float], per_doubling: int) -> None:
    for value, bucket in zip(values, real(values, per_doubling), strict=True):
        size = abs(Fraction(value))
        if size < Fraction(1, 2**FINEST):
            assert bucket == 0
        else:
            found = min(real_step(size, per_doubling), 63 * per_doubling - 1) + FINEST * per_doubling + 1
            assert bucket == (found if value > 0 else -found)


@Finenesses
def test_reals_change_their_bucket_at_the_exact_edges(per_doubling: int) -> None:
    """The doubles on both sides of 2^(s / k), which is rarely a double itself."""
    for wanted in range(-FINEST * per_doubling, 63 * per_doubling, max(1, per_doubling // 2)):
        near = 2.0 ** (wanted / per_doubling)
        around = [near]
        for towards in (0.0, np.inf):
            value = near
            for _ in range(3):
                value = float(np.nextafter(value, towards))
                around.append(value)
        for value, bucket in zip(around, real(around, per_doubling), strict=True):
            reached = Fraction(value) ** per_doubling >= Fraction(2) ** wanted
            assert (bucket >= wanted + FINEST * per_doubling + 1) == reached, (wanted, value)


@Finenesses
def test_reals_at_their_ends(per_doubling: int) -> None:
    last, tiny = bucket_range(Kind.REAL, per_doubling), float(np.nextafter(2.0**-FINEST, 0))
    values = [0.0, -0.0, 5e-324, -5e-324, tiny, -tiny, 2.0**-FINEST, -(2.0**-FINEST), 1.0]
    first = FINEST * per_doubling + 1
    assert real(values, per_doubling) == [0, 0, 0, 0, 0, 0, 1, -1, first]
    assert real([np.inf, -np.inf, 1e308, 2.0**63], per_doubling) == [last, -last, last, last]
    assert last == (63 + FINEST) * per_doubling


@Finenesses
def test_buckets_rise_with_the_number(per_doubling: int) -> None:
    numbers = np.unique(
        np.concatenate([np.arange(-9000, 9000), np.sinh(np.linspace(-43, 43, 5001)).astype(int)])
    )
    assert np.all(np.diff(whole_buckets(numbers, per_doubling=per_doubling)) >= 0)
    reals = np.sinh(np.linspace(-60, 60, 20_001))
    buckets = real_buckets(reals, per_doubling=per_doubling)
    assert np.all(np.diff(buckets) >= 0)
    np.testing.assert_array_equal(buckets, -real_buckets(-reals, per_doubling=per_doubling))


def test_a_mistyped_fineness_is_refused_before_it_is_computed() -> None:
    Column("age", {Role.PUBLIC}, Kind.WHOLE, buckets_per_doubling=64)
    with pytest.raises(BadInput, match="column age: expected at most 64 buckets_per_doubling, got 65"):
        Column("age", {Role.PUBLIC}, Kind.WHOLE, buckets_per_doubling=65)
