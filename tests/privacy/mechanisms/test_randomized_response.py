"""Randomized response, exactly: pmfs as fractions, samplers by enumerating their draws."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import Budget, exp_rounded_down
from tacit.privacy.mechanisms.memoisation import FlipKey, flip_labels, ranks
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse
from tests.support.exact_tests import ALPHA, assert_matches_pmf

SECRET = bytes(range(32))


def seeded_words(seed: int, n: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)


@given(st.floats(1e-3, 60), st.integers(2, 50))
def test_exact_epsilon_is_at_most_the_one_asked_for(epsilon: float, classes: int) -> None:
    response = RandomizedResponse.for_epsilon(epsilon, classes)
    ratio, asked = response.truth / response.lie, expect.exact("epsilon", epsilon)
    assert sum(response.pmf(0)) == 1
    with mpmath.workdps(50):
        truth = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert truth <= mpmath.mpf(asked.numerator) / asked.denominator
        assert truth <= response.epsilon <= math.nextafter(epsilon, math.inf)
    if response.lie_weight > 1:  # one step more truthful would already break the promise
        bolder = RandomizedResponse(response.lie_weight - 1, classes)
        assert bolder.truth / bolder.lie > exp_rounded_down(asked)


def test_a_response_fits_the_budget_that_it_was_made_for() -> None:
    for epsilon in ("1", "0.1", "2", "4"):
        response = RandomizedResponse.for_epsilon(epsilon)
        assert Budget.of(response.epsilon).fits(Budget.of(epsilon))


@given(st.integers(2, 6), st.floats(0.05, 4))
def test_worst_ratio_over_all_neighbours_is_the_claim(classes: int, epsilon: float) -> None:
    response = RandomizedResponse.for_epsilon(epsilon, classes)
    rows = [response.pmf(answer) for answer in range(classes)]
    worst = max(a / b for one in rows for other in rows for a, b in zip(one, other, strict=True))
    assert worst == response.truth / response.lie


@pytest.mark.parametrize(("classes", "lie_weight"), [(2, WHOLE // 8), (4, WHOLE // 16), (5, WHOLE // 32)])
def test_the_sampler_is_its_pmf_by_enumeration(classes: int, lie_weight: int) -> None:
    """All words of a block decide alike, so its two ends, weighed by its size, give the whole law."""
    response = RandomizedResponse(lie_weight, classes)
    blocks = WHOLE // lie_weight
    for answer in range(classes):
        law: Counter[int] = Counter()
        for block in range(blocks):
            for word in (block * lie_weight, (block + 1) * lie_weight - 1):
                law[response.sample(answer, lambda n, word=word: word % n)] += 1  # type: ignore[misc]
        assert [Fraction(law[other], 2 * blocks) for other in range(classes)] == list(response.pmf(answer))


@given(st.integers(2, 9), st.floats(0.01, 50), st.lists(st.integers(0, WHOLE - 1), min_size=1, max_size=20))
def test_arrays_follow_the_scalar_sampler_word_by_word(classes: int, epsilon: float, words: list[int]) -> None:
    response = RandomizedResponse.for_epsilon(epsilon, classes)
    answers = np.arange(len(words)) % classes
    expected = [response.sample(int(a), lambda _, w=w: w) for a, w in zip(answers, words, strict=True)]  # type: ignore[misc]
    found = response.sample_array(answers, lambda _: np.array(words, dtype=np.uint64))
    assert found.tolist() == expected


def test_large_arrays_match_the_law_and_a_weaker_twin_does_not() -> None:
    response, twin = RandomizedResponse.for_epsilon(1.0, 3), RandomizedResponse.for_epsilon(1.05, 3)
    pmf = dict(enumerate(response.pmf(2)))
    reports = response.sample_array(np.full(200_000, 2), lambda n: seeded_words(1, n))
    assert_matches_pmf(Counter(reports.tolist()), pmf)
    weak = twin.sample_array(np.full(200_000, 2), lambda n: seeded_words(1, n))
    with pytest.raises(AssertionError, match="p_value"):
        assert_matches_pmf(Counter(weak.tolist()), pmf)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "x"])
def test_bad_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(BadInput, match="expected epsilon"):
        RandomizedResponse.for_epsilon(epsilon)


@pytest.mark.parametrize("answers", [[2], [-1], [0.5], [math.nan]])
def test_bad_answers_are_refused(answers: list[float]) -> None:
    with pytest.raises(BadInput, match=r"expected (whole )?answers in 0\.\.1"):
        RandomizedResponse.for_epsilon(1).sample_array(answers, lambda n: seeded_words(0, n))


def test_bad_shapes_of_a_response_are_refused() -> None:
    with pytest.raises(BadInput, match="expected classes"):
        RandomizedResponse.for_epsilon(1, 1)
    with pytest.raises(BadInput, match="expected lie_weight <= "):
        RandomizedResponse(WHOLE, 2)


# Memoised flips.

RECORDS = np.arange(100_000)
LABELS = RECORDS % 2
RESPONSE = RandomizedResponse.for_epsilon(1.0)
KEY = FlipKey("conversions", window=3)


def disagreement(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    return float(np.mean(first != second))


def test_the_same_key_gives_the_same_flips_in_any_order() -> None:
    flips = flip_labels(LABELS, RECORDS, KEY, RESPONSE, SECRET)
    backwards = flip_labels(LABELS[::-1], RECORDS[::-1], KEY, RESPONSE, SECRET)
    assert np.array_equal(flips, backwards[::-1])
    some = flip_labels(LABELS[7:9], RECORDS[7:9], KEY, RESPONSE, SECRET)
    assert some.tolist() == flips[7:9].tolist()


@pytest.mark.parametrize(
    ("key", "epsilon"),
    [
        (FlipKey("clicks", 3), 1.0),
        (FlipKey("conversions", 4), 1.0),
        (FlipKey("conversions", 3, version=1), 1.0),
        (KEY, 1.0001),
    ],
)
def test_any_other_key_gives_unrelated_flips(key: FlipKey, epsilon: float) -> None:
    """Two independent flips disagree with probability 2 t (1-t); a reused draw would hardly ever."""
    response = RandomizedResponse.for_epsilon(epsilon)
    first = flip_labels(LABELS, RECORDS, KEY, RESPONSE, SECRET)
    second = flip_labels(LABELS, RECORDS, key, response, SECRET)
    expected = RESPONSE.truth * response.lie + RESPONSE.lie * response.truth
    differing = int((first != second).sum())
    assert_matches_pmf(
        {True: differing, False: len(RECORDS) - differing}, {True: expected, False: 1 - expected}
    )


def test_a_reused_draw_would_be_caught() -> None:
    """The twin: one word for both epsilons, so that disagreements show the label."""
    words = seeded_words(3, len(RECORDS))
    first = RESPONSE.report(LABELS, words)
    second = RandomizedResponse.for_epsilon(2.0).report(LABELS, words)
    expected = float(RESPONSE.truth) * 0.119 + float(RESPONSE.lie) * 0.881
    differing = int((first != second).sum())
    with pytest.raises(AssertionError):
        assert_matches_pmf(
            {True: differing, False: len(RECORDS) - differing}, {True: expected, False: 1 - expected}
        )
    assert np.all(second[first != second] == LABELS[first != second])  # every disagreement tells the truth


def test_a_changed_label_gets_a_fresh_flip() -> None:
    before = flip_labels(np.zeros_like(LABELS), RECORDS, KEY, RESPONSE, SECRET)
    after = flip_labels(np.ones_like(LABELS), RECORDS, KEY, RESPONSE, SECRET)
    lied_before, lied_after = before == 1, after == 0
    both = int((lied_before & lied_after).sum())
    law = {True: RESPONSE.lie**2, False: 1 - RESPONSE.lie**2}
    assert_matches_pmf({True: both, False: len(RECORDS) - both}, law)


def test_memoised_flips_follow_the_law() -> None:
    reports = flip_labels(np.zeros_like(LABELS), RECORDS, KEY, RESPONSE, SECRET)
    assert_matches_pmf(Counter(reports.tolist()), dict(enumerate(RESPONSE.pmf(0))), ALPHA)


def test_ranks_come_back_the_same_and_differ_by_key() -> None:
    one, other = (ranks(RECORDS, FlipKey("cap", window), SECRET) for window in (1, 2))
    assert np.array_equal(one[::-1], ranks(RECORDS[::-1], FlipKey("cap", 1), SECRET))
    assert not np.any(one == other)
    top = int((one >> np.uint64(63)).sum())
    assert_matches_pmf({1: top, 0: len(one) - top}, {1: Fraction(1, 2), 0: Fraction(1, 2)})


@pytest.mark.parametrize(
    ("labels", "records", "secret", "message"),
    [
        ([0, 1], [1, 1], SECRET, "expected distinct record ids"),
        ([0, 1], [1], SECRET, "expected one record id per label"),
        ([0], [0.5], SECRET, "expected a list of whole record ids"),
        ([2], [1], SECRET, "expected answers in 0"),
        ([0], [1], b"short", "expected a secret of 32 bytes"),
    ],
)
def test_bad_flips_are_refused(labels: list[int], records: list[float], secret: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        flip_labels(labels, records, KEY, RESPONSE, secret)
