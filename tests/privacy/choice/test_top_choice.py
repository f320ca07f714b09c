"""Choices by private rank, exactly: every ranking of up to six candidates, in whole numbers."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import accumulate, pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit import expect
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.choice.choice import ChoiceLaw, check_scores
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse
from tests.support.exact_tests import assert_matches_pmf

SHAPES = [(a, k, m) for a in range(1, 7) for k in range(1, a + 1) for m in range(1, k + 1)]


def fixed(*words: int) -> NDArray[np.uint64]:
    return np.array(words, dtype=np.uint64)


@pytest.mark.parametrize("epsilon", [0.01, 1, 5, 30])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_ranking_keeps_the_promise_in_whole_numbers(shape: tuple[int, int, int], epsilon: float) -> None:
    choice = TopChoice.for_epsilon(epsilon, *shape)
    candidates, kept, top = shape
    rows = {choice.weights(scores) for scores in permutations(range(candidates))}
    odds = exp_rounded_down(expect.exact("epsilon", epsilon))
    ratios = []
    for column in zip(*rows, strict=True):
        if any(column):
            ratios.append(Fraction(max(column), min(column)))
    assert all(sum(row) == WHOLE for row in rows)
    assert max(ratios) <= odds
    assert max(ratios) == (1 if top == kept else Fraction(choice.high_weight, choice.low_weight))
    assert all(not any(row[kept:]) for row in rows)
    assert len(rows) == math.comb(kept, top)  # the favoured set is all that the law depends on


@given(st.integers(1, 40), st.data(), st.floats(1e-3, 60))
def test_one_step_bolder_would_break_the_promise(candidates: int, data: st.DataObject, epsilon: float) -> None:
    kept = data.draw(st.integers(1, candidates))
    top = data.draw(st.integers(1, kept))
    choice = TopChoice.for_epsilon(epsilon, candidates, kept, top)
    odds = exp_rounded_down(expect.exact("epsilon", epsilon))
    assert choice.high_weight <= odds * choice.low_weight or top == kept
    assert 0 <= choice.spare < top
    assert choice.epsilon <= math.nextafter(epsilon, math.inf)
    if top < kept and choice.low_weight > 1:
        bolder = TopChoice(candidates, kept, top, choice.low_weight - 1)
        assert bolder.high_weight + (bolder.spare > 0) > odds * bolder.low_weight


@pytest.mark.parametrize("candidates", [2, 3, 5, 15])
def test_with_all_kept_and_one_favoured_it_is_randomized_response(candidates: int) -> None:
    choice = TopChoice.for_epsilon(3, candidates, candidates, 1)
    response = RandomizedResponse.for_epsilon(3, candidates)
    assert choice.epsilon == response.epsilon
    for best in range(candidates):
        law = tuple(Fraction(weight, WHOLE) for weight in choice.weights(np.eye(candidates)[best]))
        assert law == response.pmf(best)


def test_ties_go_to_the_public_rank_and_leave_the_normaliser_alone() -> None:
    choice = TopChoice.for_epsilon(2, 4, 4, 2)
    high, low = choice.high_weight, choice.low_weight
    assert choice.spare == 0
    assert choice.weights([7, 7, 7, 7]) == (high, high, low, low)
    assert choice.weights([0.0, -0.0, -1, 0.0]) == (high, high, low, low)
    assert choice.weights([1, 3, 2, 2]) == (low, high, high, low)
    assert all(sum(choice.weights(scores)) == WHOLE for scores in product((0, 1, 2), repeat=4))


def test_many_ties_among_many_candidates_go_to_the_public_rank() -> None:
    """Sorting that is stable for a handful only would pass the case above."""
    choice = TopChoice.for_epsilon(2, 400, 300, 40)
    for seed in range(5):
        scores = np.random.default_rng(seed).integers(0, 3, 400)
        best = sorted(range(300), key=lambda i, scores=scores: (-scores[i], i))[:40]  # type: ignore[misc]
        weights = choice.weights(scores)
        assert [i for i in range(300) if weights[i] >= choice.high_weight] == sorted(best)


def test_scores_beyond_the_kept_are_not_looked_at() -> None:
    choice = TopChoice.for_epsilon(2, 4, 2, 1)
    assert choice.weights([1, 2, 3, 4]) == choice.weights([1, 2, -1e300, 1e300])


def law_by_words(choice: ChoiceLaw, scores: NDArray[np.float64]) -> list[int]:
    """How many words choose each candidate: all words of a block decide alike, so both ends tell."""
    found = [0] * choice.candidates
    for low, high in pairwise([0, *accumulate(weight for weight in choice.weights(scores) if weight)]):
        (first, last) = choice.choose(np.stack([scores, scores]), lambda _, a=low, b=high - 1: fixed(a, b))  # type: ignore[misc]
        assert first == last
        found[first] += high - low
    return found


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 1), (5, 5, 2), (6, 4, 3), (6, 3, 3), (7, 7, 3)], ids=str)
def test_the_sampler_is_its_weights_by_enumeration(shape: tuple[int, int, int]) -> None:
    choice = TopChoice.for_epsilon(1.5, *shape)
    for seed in range(20):
        scores = np.random.default_rng(seed).integers(0, 4, shape[0]).astype(np.float64)
        assert law_by_words(choice, scores) == list(choice.weights(scores))
        assert choice.pmf(scores) == pytest.approx(np.array(choice.weights(scores)) / WHOLE, rel=1e-15, abs=0)


def test_draws_match_the_law_and_a_bolder_twin_does_not() -> None:
    scores = np.tile([0.3, 0.9, 0.2, 0.5, 0.7], (200_000, 1))
    choice, twin = (TopChoice.for_epsilon(epsilon, 5, 4, 2) for epsilon in (1, "1.05"))
    pmf = {i: p for i, p in enumerate(choice.pmf(scores[0]).tolist()) if p}
    assert_matches_pmf(Counter(choice.choose(scores, Simulation(1).words).tolist()), pmf)
    with pytest.raises(AssertionError, match="p_value"):
        assert_matches_pmf(Counter(twin.choose(scores, Simulation(1).words).tolist()), pmf)


def test_the_public_best_costs_nothing_and_draws_nothing() -> None:
    choice = TopChoice.public_best(3)
    assert choice == TopChoice.for_epsilon(2, 3, 1, 1) == TopChoice.for_epsilon("1e-30", 3, 1, 1)
    assert choice.epsilon == 0
    assert choice.choose([[0, 1, 2]], lambda _: pytest.fail("no word is needed")).tolist() == [0]
    assert choice.weights([0, 1, 2]) == (WHOLE, 0, 0)
    assert choice.pmf([0, 1, 2]).tolist() == [1, 0, 0]


def test_laws_keep_the_shape_of_their_scores() -> None:
    choice = TopChoice.for_epsilon(1, 3, 2, 1)
    assert choice.pmf(np.zeros((4, 5, 3))).shape == (4, 5, 3)
    assert choice.choose(np.zeros((0, 3)), Simulation(1).words).shape == (0,)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "x"])
@pytest.mark.parametrize("shape", [(3, 2, 1), (3, 1, 1)], ids=str)
def test_bad_epsilons_are_refused(epsilon: float, shape: tuple[int, int, int]) -> None:
    with pytest.raises(BadInput, match="expected epsilon"):
        TopChoice.for_epsilon(epsilon, *shape)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 1, 1), "expected candidates"),
        ((3, 0, 1), "expected kept"),
        ((3, 2, 0), "expected top to be a whole number >= 1"),
        ((3, 4, 1), "expected top <= kept <= candidates, got 1, 4 and 3"),
        ((3, 2, 3), "expected top <= kept <= candidates, got 3, 2 and 3"),
        ((3, 2, True), "expected top"),
        ((3.5, 2, 1), "expected candidates"),
    ],
    ids=str,
)
def test_bad_shapes_are_refused(shape: tuple[int, int, int], message: str) -> None:
    with pytest.raises(BadInput, match=message) as refusal:
        TopChoice.for_epsilon(1, *shape)
    assert "\n" not in str(refusal.value)


def test_weights_that_would_favour_the_worst_are_refused() -> None:
    with pytest.raises(BadInput, match="expected low_weight <= 2"):
        TopChoice(2, 2, 1, WHOLE)
    with pytest.raises(BadInput, match="expected a larger epsilon for 3 kept candidates"):
        TopChoice.for_epsilon("1e-30", 3, 3, 1)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0, math.nan]], "expected finite scores"),
        ([[1.0, math.inf]], "expected finite scores"),
        ([[1.0, 2.0, 3.0]], r"expected scores of shape \(requests, 2\), got \(1, 3\)"),
        ([1.0, 2.0], r"expected scores of shape \(requests, 2\), got \(2,\)"),
        ([[]], r"got \(1, 0\)"),
        (3.0, r"got \(\)"),
        ([[1.0, 2.0], [3.0]], "requests of several lengths"),
        ([["a", "b"]], "expected scores to be numbers"),
        ([[True, False]], "expected scores to be numbers, got dtype bool"),
        ([[1.0, 1j]], "expected scores to be numbers"),
    ],
    ids=str,
)
def test_bad_scores_are_refused_without_showing_them(scores: list[list[float]], message: str) -> None:
    choice = TopChoice.for_epsilon(1, 2, 2, 1)
    with pytest.raises(BadInput, match=message):
        choice.choose(scores, Simulation(1).words)
    with pytest.raises(BadInput):
        check_scores([[1.25, math.nan]], 2)
