"""Whole numbers keep the promise whatever the doubles say."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput, SelfCheckFailed
from tacit.privacy.choice.noisy_max import LARGEST_CORRECTION, WeightBounds
from tacit.privacy.mechanisms.randomized_response import WHOLE

QUARTER, HALF = WHOLE // 4, WHOLE // 2


def kept(bounds: WeightBounds, weights: list[int]) -> bool:
    inside = all(low <= w <= high for low, w, high in zip(bounds.floors, weights, bounds.caps, strict=True))
    return inside and sum(weights) == WHOLE


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=12), st.floats(-1e-9, 1e-9), st.data())
def test_weights_stay_within_bounds_for_laws_that_are_a_little_off(
    parts: list[int], error: float, data: st.DataObject
) -> None:
    """Bounds tightly around a law: whichever way doubles err, the whole numbers are pulled back."""
    exact = [Fraction(part, sum(parts)) for part in parts]
    slack = data.draw(st.integers(0, 2**20))
    bounds = WeightBounds(
        tuple(max(1, math.floor(p * WHOLE) - slack) for p in exact),
        tuple(math.ceil(p * WHOLE) + slack for p in exact),
    )
    wrong = np.array([[float(p) * (1 + error * (-1) ** i) for i, p in enumerate(exact)]])
    assert kept(bounds, bounds.weights(wrong)[0].tolist())


def test_the_excess_goes_on_until_it_has_found_room() -> None:
    """Nobody has room for all of it: several turns are needed, and they end exactly."""
    third = WHOLE // 3
    bounds = WeightBounds((third - 5,) * 3, (third + 5,) * 3)
    assert kept(bounds, bounds.weights(np.full((1, 3), 1 / 3 + 1e-12))[0].tolist())
    assert kept(bounds, bounds.weights(np.full((1, 3), 1 / 3 - 1e-12))[0].tolist())


def test_a_floor_is_never_nothing() -> None:
    bounds = WeightBounds.around(np.array([-1000.0, -1e-16]), np.array([-1000.0, 0.0]), None)
    weights = bounds.weights(np.array([[0.0, 1.0]]))[0].tolist()
    assert weights[0] == 1
    assert sum(weights) == WHOLE


def test_a_limit_caps_in_whole_numbers() -> None:
    least, most = np.log([0.2, 0.2]), np.log([0.8, 0.8])
    free, limited = WeightBounds.around(least, most, None), WeightBounds.around(least, most, Fraction(1))
    assert math.log(4) <= free.epsilon <= math.log(4) + 2.0**-44
    assert 1 - 1e-15 <= limited.epsilon <= 1


def test_laws_that_are_far_off_are_noticed() -> None:
    bounds = WeightBounds((QUARTER, QUARTER), (HALF + QUARTER,) * 2)
    for wrong in ([0.5, 0.51], [0.5, 0.49], [0.0, 0.0]):
        with pytest.raises(SelfCheckFailed, match="sum to one within their bounds"):
            bounds.weights(np.array([wrong]))
    little = LARGEST_CORRECTION / 4
    assert kept(bounds, bounds.weights(np.array([[0.5, 0.5 + little]]))[0].tolist())


@pytest.mark.parametrize(
    ("floors", "caps"),
    [
        ((0, HALF), (HALF, HALF)),
        ((HALF, HALF + 1), (WHOLE, WHOLE)),
        ((1, 1), (HALF, HALF - 1)),
        ((HALF, 1), (1, WHOLE)),
    ],
)
def test_bounds_that_no_law_can_keep_are_refused(floors: tuple[int, int], caps: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match="expected a larger epsilon"):
        WeightBounds(floors, caps)
