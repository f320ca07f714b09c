"""Answers reported by a prior and by Laplace noise: exact laws, and draws that come back the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BadInput, RelationMismatch, UnknownRelease
from tacit.privacy.accounting import delta, epsilon, pure_epsilon, rdp_epsilon
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.mechanisms.memoisation import FlipKey, keyed_words
from tacit.privacy.mechanisms.one_hot_laplace import OneHotLaplace
from tacit.privacy.mechanisms.randomized_response import (
    WHOLE,
    RandomizedResponse,
    TopResponse,
    most_informative_tops,
)
from tacit.privacy.noise.exact_sampler import FIRST_DIGITS, threshold_level
from tacit.privacy.releases import Composed, Grouped, LocalChoice, NoisyLabels
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind
from tests.support.exact_tests import assert_matches_pmf

LABEL = Relation.REPLACE_LABEL
SECRET = bytes(range(32))
KEY = FlipKey("conversions", 3)


# Randomized response among the likeliest answers.


@given(st.floats(0.01, 20), st.integers(2, 9), st.integers(1, 9))
def test_the_worst_ratio_of_a_top_response_is_at_most_the_promise(asked: float, classes: int, top: int) -> None:
    response = TopResponse.for_epsilon(asked, min(top, classes), classes)
    rows = [response.pmf(rank) for rank in range(classes)]
    assert all(sum(row) == 1 for row in rows)
    worst = max(a / b for one in rows for other in rows for a, b in zip(one, other, strict=True))
    assert worst <= exp_rounded_down(Fraction(repr(asked)))
    if response.among is not None:
        assert worst == response.among.truth / response.among.lie  # reached, so nothing is given away unused


@pytest.mark.parametrize(("classes", "top"), [(3, 2), (5, 3), (7, 7), (4, 1)])
def test_the_top_sampler_is_its_pmf_by_enumeration(classes: int, top: int) -> None:
    """All words between two edges decide alike, so both ends, weighed by the stretch, give the whole law."""
    response = TopResponse.for_epsilon(1.3, top, classes)
    lie = response.among.lie_weight if response.among else 1
    edges = sorted({0, WHOLE, *(n * w for n in range(1, top) for w in (lie, response.even_weight))})
    for rank in range(classes):
        law = [Fraction(0)] * top
        for low, high in pairwise(edges):
            first, last = response.report(np.full(2, rank), np.array([low, high - 1], dtype=np.uint64)).tolist()
            assert first == last
            law[first] += Fraction(high - low, WHOLE)
        assert tuple(law) == response.pmf(rank)


@given(st.floats(0.01, 30), st.floats(0, 1), st.lists(st.integers(0, WHOLE - 1), min_size=1, max_size=20))
def test_with_two_classes_a_prior_gives_plain_response_or_a_constant(
    asked: float, rate: float, words: list[int]
) -> None:
    prior = np.array([[max(rate, 1 - rate), min(rate, 1 - rate)]])
    (top,) = most_informative_tops(prior, Fraction(repr(asked))).tolist()
    response, plain = TopResponse.for_epsilon(asked, top, 2), RandomizedResponse.for_epsilon(asked)
    ranks, word = np.arange(len(words)) % 2, np.array(words, dtype=np.uint64)
    if top == 1:
        assert response.epsilon == 0
        assert not response.report(ranks, word).any()
        assert prior[0, 0] >= 1 / (1 + math.exp(-asked)) - 1e-12  # a constant is right at least as often
    else:
        assert [response.pmf(rank) for rank in (0, 1)] == [plain.pmf(answer) for answer in (0, 1)]
        assert response.report(ranks, word).tolist() == plain.report(ranks, word).tolist()


@given(st.lists(st.integers(0, 100), min_size=2, max_size=6).filter(any), st.integers(1, 40))
def test_the_chosen_top_is_most_often_the_truth(weights: list[int], tenths: int) -> None:
    """Against the exact law of every top: how often the report is the label, under the prior."""
    asked, masses = Fraction(tenths, 10), sorted(weights, reverse=True)
    prior = [Fraction(weight, sum(masses)) for weight in masses]

    def right(top: int) -> Fraction:
        response = TopResponse.for_epsilon(asked, top, len(prior))
        return sum((prior[rank] * response.pmf(rank)[rank] for rank in range(top)), Fraction(0))

    (top,) = most_informative_tops(np.array([[float(p) for p in prior]]), asked).tolist()
    assert float(right(top)) >= float(max(right(k) for k in range(1, len(prior) + 1))) - 1e-12


def test_bad_top_responses_are_refused() -> None:
    with pytest.raises(BadInput, match="expected at most 3 answers at the top, got 4"):
        TopResponse.for_epsilon(1, 4, 3)
    with pytest.raises(BadInput, match="expected top"):
        TopResponse.for_epsilon(1, 0, 3)
    response = TopResponse.for_epsilon(1, 2, 3)
    with pytest.raises(BadInput, match=r"expected ranks in 0\.\.2"):
        response.report(np.array([3]), np.array([0], dtype=np.uint64))
    with pytest.raises(BadInput, match=r"expected a rank in 0\.\.2"):
        response.pmf(3)


# Laplace noise on one-hot vectors.


@given(st.fractions(Fraction(1, 1000), 30), st.integers(2, 20))
def test_two_answers_are_epsilon_apart_exactly(asked: Fraction, classes: int) -> None:
    noise = OneHotLaplace.for_epsilon(asked, classes)
    assert 2 * noise.steps / noise.scale == asked
    assert noise.scale >= min(Fraction(32), 32 / asked)


def test_the_worst_ratio_of_noisy_vectors_is_e_to_epsilon() -> None:
    """Over a box of outputs, by the law's own probabilities; the twin has noise for a change in one place."""
    noise = OneHotLaplace(Fraction(1), 2, 4)
    reach = range(-12, 17)

    def worst(noise: OneHotLaplace) -> float:
        def chance(seen: tuple[int, ...], answer: int) -> float:
            return math.prod(noise.law.pmf(x - noise.steps * (at == answer)) for at, x in enumerate(seen))

        return max(chance(seen, 0) / chance(seen, 1) for seen in product(reach, repeat=2))

    assert worst(noise) == pytest.approx(math.e, rel=1e-12)
    assert worst(OneHotLaplace(Fraction(2), 2, 4)) == pytest.approx(math.e**2, rel=1e-12)


def test_likelihoods_are_those_of_the_law() -> None:
    noise = OneHotLaplace(Fraction(1, 2), 3, 5)
    reports = np.array([[5, 0, -3], [1, 2, 3], [40, 41, -7]])
    found = noise.log_likelihoods(reports)
    for row, seen in enumerate(reports.tolist()):
        logs = [
            sum(math.log(noise.law.pmf(x - noise.steps * (at == answer))) for at, x in enumerate(seen))
            for answer in range(3)
        ]
        assert found[row] - found[row, 0] == pytest.approx(np.array(logs) - logs[0], abs=1e-9)


def no_more(row: int) -> Callable[[], int]:
    raise AssertionError(f"no word should be in doubt, got one in row {row}")


def test_noisy_vectors_follow_the_law_and_a_wider_twin_does_not() -> None:
    noise, wider = OneHotLaplace(Fraction(2), 2, 2), OneHotLaplace(Fraction(19, 10), 2, 2)
    words = np.random.default_rng(5).integers(0, 2**64, (100_000, 2), dtype=np.uint64)
    answers = np.arange(len(words)) % 2
    reports = noise.report(answers, words, no_more)
    there = np.minimum(np.abs(np.r_[reports[answers == 1][:, 1] - 2, reports[answers == 0][:, 1]]), 6)

    def law(of: OneHotLaplace) -> dict[int, float]:
        sizes = {x: of.law.pmf(x) * (2 if x else 1) for x in range(6)}
        return {**sizes, 6: 1 - sum(sizes.values())}

    assert_matches_pmf(Counter(there.tolist()), law(noise))
    with pytest.raises(AssertionError):
        assert_matches_pmf(Counter(there.tolist()), law(wider))


def test_a_word_in_doubt_asks_for_more_of_its_own_row_only() -> None:
    noise = OneHotLaplace.for_epsilon(1, 2)
    threshold = threshold_level(noise.law, FIRST_DIGITS).thresholds[3]
    words = np.full((3, 2), 12345, dtype=np.uint64)
    words[1, 1] = threshold << 1
    asked: list[int] = []

    def more(row: int) -> Callable[[], int]:
        def another() -> int:
            asked.append(row)
            return 7

        return another

    answers = np.array([0, 1, 1])
    together = noise.report(answers, words, more)
    assert asked == [1]
    alone = noise.report(answers[1:2], words[1:2], more)
    assert together[1].tolist() == alone[0].tolist()
    assert together[0].tolist() == noise.report(answers[:1], words[:1], no_more)[0].tolist()


def test_bad_laplace_calls_are_refused() -> None:
    noise, words = OneHotLaplace.for_epsilon(1, 3), np.zeros((1, 3), dtype=np.uint64)
    with pytest.raises(BadInput, match=r"expected answers in 0\.\.2"):
        noise.report(np.array([3]), words, no_more)
    with pytest.raises(BadInput, match="expected words of shape"):
        noise.report(np.array([1, 2]), words, no_more)
    with pytest.raises(BadInput, match="expected epsilon > 0"):
        OneHotLaplace.for_epsilon(0, 3)


# Draws that come back the same.


def drawn(
    records: list[int], tags: list[int], *, key: FlipKey = KEY, mechanism: str = "m", count: int = 3
) -> list[list[int]]:
    found: list[list[int]] = keyed_words(
        records, tags, key, mechanism=(mechanism,), count=count, secret=SECRET
    ).tolist()
    return found


def test_words_come_back_the_same_in_any_company() -> None:
    whole = keyed_words(np.arange(50), np.arange(50) % 4, KEY, mechanism=("m",), count=5, secret=SECRET)
    assert whole.shape == (50, 5)
    assert drawn([17, 3], [1, 3], count=5) == whole[[17, 3]].tolist()
    assert drawn([17], [1], count=2) == whole[[17], :2].tolist()  # fewer words are the first of more
    assert len(np.unique(whole)) == whole.size


@pytest.mark.parametrize(
    "other",
    [
        drawn([1], [0]),
        drawn([0], [1]),
        drawn([0], [0], mechanism="n"),
        drawn([0], [0], key=FlipKey("conversions", 4)),
        drawn([0], [0], key=FlipKey("conversions", 3, 1)),
    ],
)
def test_any_other_record_tag_law_or_key_gives_other_words(other: list[list[int]]) -> None:
    assert not set(drawn([0], [0])[0]) & set(other[0])


def test_every_bit_of_a_word_is_fair() -> None:
    words = keyed_words(np.arange(20_000), np.zeros(20_000, int), KEY, mechanism=(), count=3, secret=SECRET)
    for place in range(3):
        for bit in (0, 31, 63):
            ones = int((words[:, place] >> np.uint64(bit) & np.uint64(1)).sum())
            assert_matches_pmf({1: ones, 0: 20_000 - ones}, {1: Fraction(1, 2), 0: Fraction(1, 2)})


def test_bad_draws_are_refused() -> None:
    for records, tags, message in (
        ([1, 1], [0, 0], "expected distinct record ids"),
        ([1, 2], [0], "expected one whole tag per record"),
        ([1], [-1], "expected tags in"),
        ([1], [2**48], "expected tags in"),
    ):
        with pytest.raises(BadInput, match=message):
            drawn(records, tags)
    with pytest.raises(BadInput, match="expected count"):
        drawn([1], [0], count=0)


# What leaves.


def noisy(value: int | Fraction, most: int = 1) -> NoisyLabels:
    return NoisyLabels(Fraction(value), most, "some noise")


@settings(max_examples=10)
@given(st.fractions(Fraction(1, 10), 3), st.integers(1, 6))
def test_noisy_labels_are_read_as_the_worst_pure_release(asked: Fraction, count: int) -> None:
    ours, local = Composed((noisy(asked),), count), Composed((LocalChoice(asked),), count)
    one = Relation.REPLACE_ONE
    assert pure_epsilon(ours, relation=LABEL) == pytest.approx(float(asked) * count)
    assert delta(ours, epsilon=asked, relation=one) == delta(local, epsilon=asked, relation=one)
    assert rdp_epsilon(ours, delta=1e-6, relation=LABEL) == rdp_epsilon(local, delta=1e-6, relation=one)


@pytest.mark.parametrize("classes", [3, 5])
def test_no_mechanism_here_tells_more_than_its_release(classes: int) -> None:
    """The exact delta of every pair of labels stays below what the accountant says of the release."""
    for top in range(2, classes + 1):
        response = TopResponse.for_epsilon(1, top, classes)
        for threshold in (0.0, 0.4, 0.9):
            told = delta(noisy(1), epsilon=threshold, relation=LABEL)
            for one, other in product(range(classes), repeat=2):
                pairs = zip(response.pmf(one), response.pmf(other), strict=True)
                exact = sum(max(0.0, float(p) - math.exp(threshold) * float(q)) for p, q in pairs)
                assert exact <= told + 1e-12


def test_noisy_labels_speak_of_labels_and_of_one_unit() -> None:
    with pytest.raises(RelationMismatch, match="got add-remove"):
        epsilon(noisy(1), delta=1e-6, relation=Relation.ADD_REMOVE)
    with pytest.raises(UnknownRelease, match="stated for a whole unit already"):
        epsilon(Grouped(noisy(1, 3), 2), delta=1e-6, relation=LABEL)
    with pytest.raises(BadInput, match="expected epsilon > 0"):
        noisy(0)
    assert noisy(1).words == "some noise, ε = 1 per label"
    assert noisy(2, 3).words == "some noise, ε = 2 for up to 3 labels of a unit together"


def test_noisy_labels_can_be_stated() -> None:
    statement = PrivacyStatement.of([noisy(1, 3)], unit=Unit(UnitKind.USER), relation=LABEL)
    gaps = " ".join(statement.not_protected)
    assert "hyper-parameters" in gaps
    assert "several records" not in gaps
    assert statement.epsilon == pytest.approx(1)
