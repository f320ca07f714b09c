"""Candidates kept as statistics change choose as a beginning from nothing would."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greedy_ways import sparse_of
from tacit.deliver.candidates.selection import select
from tacit.deliver.candidates.updates import Candidates
from tacit.deliver.candidates.values import ContextValues
from tacit.errors import BadInput

CONTEXTS = 24


def begun(ads: int, rng: np.random.Generator) -> ContextValues:
    weight = rng.random(CONTEXTS)
    return ContextValues(
        weight / weight.sum() / 2,
        rng.random((ads, CONTEXTS)).astype(np.float32),
        rng.permutation(1000)[:ads].astype(np.int64),
    )


def change(kept: Candidates, rng: np.random.Generator, kind: str) -> None:
    ads = kept.ads
    if kind == "ads":
        some = rng.choice(ads, min(3, len(ads)), replace=False)
        kept.update(some, rng.random((len(some), CONTEXTS)).astype(np.float32))
    elif kind == "added":
        new = np.setdiff1d(rng.permutation(5000)[:4].astype(np.int64), ads)
        kept.update(new, rng.integers(0, 3, (len(new), CONTEXTS)).astype(np.float32))
    elif kind == "removed" and len(ads) > 2:
        kept.remove(rng.choice(ads, len(ads) // 2, replace=False))
    elif kind in ("contexts", "many contexts"):
        some = rng.permutation(CONTEXTS)[: 3 if kind == "contexts" else 20].astype(np.int64)
        values = rng.random((len(ads), len(some))) ** 4 * rng.choice([1e-3, 1.0, 50.0])
        kept.update_contexts(some, values.astype(np.float32))
    elif kind == "weights":
        some = rng.permutation(CONTEXTS)[:4].astype(np.int64)
        kept.update_contexts(some, weight=rng.random(4) / CONTEXTS / 2)
    elif kind == "both":
        some = rng.permutation(CONTEXTS)[:2].astype(np.int64)
        kept.update_contexts(some, np.zeros((len(ads), 2), np.float32), np.zeros(2))


KINDS = ("ads", "added", "removed", "contexts", "many contexts", "weights", "both")


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(KINDS), min_size=1, max_size=12))
def test_after_any_changes_the_choice_is_that_of_a_new_beginning(seed: int, kinds: list[str]) -> None:
    rng = np.random.default_rng(seed)
    kept = Candidates(begun(int(rng.integers(1, 30)), rng))
    for kind in kinds:
        change(kept, rng, kind)
        held = kept.values()
        mine, anew = kept.select(6, 0.01), select(held, 6, 0.01)
        np.testing.assert_array_equal(mine.ads, anew.ads)
        np.testing.assert_array_equal(mine.gains, anew.gains)
        assert mine.bound == anew.bound


def test_the_values_held_are_those_that_were_given() -> None:
    rng = np.random.default_rng(1)
    first = begun(5, rng)
    kept = Candidates(first)
    assert isinstance(first.values, np.ndarray)
    expected = first.values.copy()
    ads = first.ads.tolist()
    row = rng.random((1, CONTEXTS)).astype(np.float32)
    kept.update(np.array([ads[2]]), row)
    expected[2] = row
    kept.update(np.array([7777]), row * 2)
    expected = np.concatenate([expected, row * 2])
    kept.remove(np.array([ads[0]]))
    expected = expected[1:]
    column = rng.random((5, 2)).astype(np.float32)
    kept.update_contexts(np.array([3, 1]), column, np.array([0.0, 0.25]))
    expected[:, [3, 1]] = column
    weight = first.weight.copy()
    weight[[3, 1]] = (0.0, 0.25)
    held = kept.values()
    np.testing.assert_array_equal(held.values, expected)
    np.testing.assert_array_equal(held.weight, weight)
    assert held.ads.tolist() == [*ads[1:], 7777]


def test_bounds_stay_near_over_many_changes() -> None:
    """Else choices would be right and slow: after 300 changes no bound is off by a millionth."""
    rng = np.random.default_rng(2)
    kept = Candidates(begun(40, rng))
    for _ in range(300):
        change(kept, rng, "contexts" if rng.random() < 0.7 else "weights")
    alone, bounds = kept.values().first_gains, kept._bounds[: len(kept.ads)]
    assert (bounds >= alone).all()
    assert (bounds - alone <= 1e-6 * alone.max()).all()


def test_adding_and_removing_keeps_room_in_proportion() -> None:
    rng = np.random.default_rng(3)
    kept = Candidates(begun(4, rng))
    for ad in range(2000, 2100):
        kept.update(np.array([ad]), rng.random((1, CONTEXTS)).astype(np.float32))
    assert len(kept._values) <= 2 * 104
    kept.remove(np.arange(2000, 2099))
    assert kept._size <= 2 * len(kept.ads) + 1
    assert len(kept.ads) == 5
    kept.remove(kept.ads)
    assert len(kept.select(3).ads) == 0


def test_refusals_change_nothing() -> None:
    rng = np.random.default_rng(4)
    kept = Candidates(begun(6, rng))
    before = kept.select(4)
    ads = kept.ads
    good, bad = np.ones((1, CONTEXTS), np.float32), np.full((1, CONTEXTS), np.nan, np.float32)
    bad_last = np.array([[1], [1], [1], [1], [1], [-1]], np.float32)
    attempts: list[tuple[Callable[[], object], str]] = [
        (lambda: kept.update(np.array([99_999]), bad), "ad 99999: expected values that are finite"),
        (
            lambda: kept.update(ads[3:4], -good),
            f"ad {ads[3]}: expected values that are finite and >= 0, got -1",
        ),
        (lambda: kept.update([7], good), "expected ads as a NumPy array, got list"),  # type: ignore[arg-type]
        (lambda: kept.update(ads[:1], [[1.0]]), "expected values as a NumPy array, got list"),  # type: ignore[arg-type]
        (lambda: kept.update_contexts([1]), "expected contexts as a NumPy array"),  # type: ignore[arg-type]
        (lambda: kept.update(ads[:1], good[:, 1:]), "expected values as"),
        (lambda: kept.update(ads[:2], good), "expected ads as int64 of 1"),
        (lambda: kept.update(np.array([8, 8]), np.ones((2, CONTEXTS), np.float32)), "got ad 8 twice"),
        (lambda: kept.remove(np.array([ads[0], 99_999])), "got ad 99999"),
        (lambda: kept.update_contexts(np.array([CONTEXTS])), "contexts in 0..23"),
        (lambda: kept.update_contexts(np.array([1, 1])), "different contexts"),
        (lambda: kept.update_contexts(np.array([1]), bad_last), f"ad {ads[-1]}: expected values that"),
        (lambda: kept.update_contexts(np.array([1]), weight=np.array([0.9])), "add up to at most 1"),
        (lambda: kept.update_contexts(np.array([1]), weight=np.array([np.nan])), "probabilities of contexts"),
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
    kept = Candidates(first)
    kept.update(first.ads[:1], np.ones((1, CONTEXTS), np.float32))
    kept.update_contexts(np.array([0]), weight=np.array([0.0]))
    np.testing.assert_array_equal(first.values, copy)
    assert math.isclose(first.weight.sum(), 0.5)
    with pytest.raises(BadInput, match="dense"):
        Candidates(ContextValues(first.weight, sparse_of(copy), first.ads))
