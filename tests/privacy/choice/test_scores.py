"""Scores brought into a public range: no input leaves it, whatever doubles do."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.privacy.choice.scores import Clipped, Scaled, ScoreRule, clip_scores, scale_scores

finite = st.floats(-sys.float_info.max, sys.float_info.max)
VECTORS = arrays(np.float64, st.integers(1, 8), elements=finite)


@given(VECTORS)
def test_scaled_scores_lie_in_the_unit_box_and_keep_their_order(scores: NDArray[np.float64]) -> None:
    found = scale_scores(scores)
    assert found.min() == 0
    assert found.max() in (0, 1)
    order = np.argsort(scores, kind="stable")
    assert np.all(np.diff(found[order]) >= 0)


def test_scaled_scores_by_hand() -> None:
    assert scale_scores(np.array([[2.0, 4.0, 3.0], [5.0, 5.0, 5.0]])).tolist() == [[0, 1, 0.5], [0, 0, 0]]
    assert Scaled(1)([7]).tolist() == [0]
    assert scale_scores(np.array([5e-324, 0.0])).max() in (0, 1)


@given(VECTORS, st.floats(1e-6, 1e6))
def test_clipped_scores_lie_in_their_public_interval(scores: NDArray[np.float64], bound: float) -> None:
    rule = Clipped(tuple(np.linspace(1, 0, len(scores)).tolist()), bound)
    found = rule(scores)
    assert np.all((rule.low <= found) & (found <= rule.high))
    inside = (rule.low <= scores) & (scores <= rule.high)
    assert np.array_equal(found[inside], scores[inside])


def test_clipped_scores_by_hand() -> None:
    rule = Clipped((3.0, 2.0), 0.5)
    assert rule([[9, 2.25], [-9, 1.0]]).tolist() == [[3.5, 2.25], [2.5, 1.5]]
    assert rule.sensitivity == 1
    many = clip_scores(np.array([[9.0, 0.0], [0.0, 9.0]]), np.array([[1.0, 1.0], [2.0, 2.0]]), 1.0)
    assert many.tolist() == [[2, 0], [1, 3]]


@pytest.mark.parametrize("rule", [Scaled(3), Clipped((3.0, 2.0, 1.0), 0.5)], ids=str)
def test_a_rule_knows_its_corners(rule: ScoreRule) -> None:
    """Both ends of the worst pair can be reached: own at the top and the others at the bottom, and reversed."""
    for own in range(3):
        best, worst = rule.low.copy(), rule.high.copy()
        best[own], worst[own] = rule.high[own], rule.low[own]
        assert rule(best).tolist() == best.tolist()
        assert rule(worst).tolist() == worst.tolist()


@pytest.mark.parametrize(
    ("public", "bound", "message"),
    [
        ((), 1.0, "expected at least one public score, got none"),
        ((1.0, math.nan), 1.0, "expected finite scores"),
        ((1.0,), 0.0, "expected bound > 0"),
        ((1.0,), -1.0, "expected bound > 0"),
        ((1.0,), math.inf, "expected bound"),
        ((1e300,), 1.0, "expected a bound that a double can add"),
        (((1.0, 2.0),), 1.0, "expected scores of shape"),
    ],
    ids=str,
)
def test_bad_rules_are_refused(public: tuple[float, ...], bound: float, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Clipped(public, bound)


@pytest.mark.parametrize("candidates", [0, -1, 1.5, True])
def test_no_candidates_are_refused(candidates: int) -> None:
    with pytest.raises(BadInput, match="expected candidates"):
        Scaled(candidates)
