"""Floors: exactly private over every ranking, exactly the law that is sampled, the best between their caps."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down, log_rounded_up
from tacit.privacy.choice.floors import Floors
from tests.support.exact_tests import assert_matches_pmf
from tests.support.local_programs import all_rankings

EPSILONS = st.sampled_from(["0.01", "0.3", "1", "2.5", "5", "12", "40"])


@st.composite
def floors(draw: st.DrawFn, most: int = 6) -> tuple[Floors, Fraction]:
    """Any floors that are allowed: a direction with zeros and very unequal parts, and a total in between."""
    parts = draw(st.lists(st.sampled_from([0.0, 1e-9, 0.01, 0.3, 1.0]), min_size=1, max_size=most).filter(any))
    epsilon = Fraction(draw(EPSILONS))
    total = math.exp(-float(epsilon) * draw(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0])))
    shares = np.array(parts) / sum(parts) * total
    return Floors.nearest(epsilon, shares, draw(st.sampled_from([32, 64]))), epsilon


@settings(max_examples=40)
@given(floors())
def test_every_ranking_keeps_the_promise_in_whole_numbers(drawn: tuple[Floors, Fraction]) -> None:
    law, epsilon = drawn
    rankings = all_rankings(law.candidates)
    if len(rankings) > 24:  # all 720 rankings have their own test; here every candidate comes first and last
        rankings = np.vstack([rankings[::29], *(np.roll(rankings[0], k) for k in range(6))])
    laws = [law.weights(scores) for scores in rankings]
    assert {sum(one) for one in laws} == {2**64}
    for column, low in zip(zip(*laws, strict=True), law.numerators, strict=True):
        assert max(column) <= exp_rounded_down(epsilon) * min(column)
        assert min(column) >= low << (64 - law.bits)
    assert law.epsilon <= log_rounded_up(exp_rounded_down(epsilon))


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5)])
@pytest.mark.parametrize(
    "shares", [(0.06, 0.02, 0.01, 0.3, 0.0, 0.05), (0.15,) * 6, (0.5, 0.1, 0.1, 0.1, 0.1, 0.1)]
)
def test_epsilon_is_that_of_the_worst_of_all_720_rankings(shares: tuple[float, ...], epsilon: Fraction) -> None:
    if sum(shares) * math.exp(epsilon) < 1:
        shares = tuple(share / sum(shares) * 0.95 for share in shares)
    law = Floors.nearest(epsilon, shares)
    columns = zip(*map(law.weights, all_rankings(6)), strict=True)
    worst = max(Fraction(max(column), min(column)) for column in columns if max(column))
    assert law.epsilon == log_rounded_up(worst)
    assert worst <= exp_rounded_down(epsilon)


def test_a_cap_one_unit_too_high_is_found_out() -> None:
    epsilon = Fraction(1)
    honest = Floors.for_epsilon(epsilon, [2**62, 2**61, 2**62])
    twin = Floors(honest.numerators, tuple(cap + 1 for cap in honest.caps))
    assert Fraction(max(twin.caps[0], 0), twin.numerators[0]) > exp_rounded_down(epsilon)
    assert twin.epsilon >= honest.epsilon
    worst = max(Fraction(max(c), min(c)) for c in zip(*map(twin.weights, all_rankings(3)), strict=True))
    assert worst > exp_rounded_down(epsilon)


@settings(max_examples=40)
@given(floors(), st.integers(0, 2**32))
def test_what_is_sampled_is_the_stated_law(drawn: tuple[Floors, Fraction], seed: int) -> None:
    law, _ = drawn
    scores = np.random.default_rng(seed).integers(0, 4, law.candidates).astype(float)  # with ties
    weights = law.weights(scores)
    ranking = np.argsort(-scores, kind="stable")
    edges = [0, *accumulate(weights[i] for i in ranking)]
    for candidate, (low, high) in zip(ranking.tolist(), pairwise(edges), strict=True):
        for word in {low, (low + high) // 2, high - 1} if high > low else ():
            (chosen,) = law.choose(scores[None, :], lambda _, w=word: np.array([w], np.uint64))  # type: ignore[misc]
            assert chosen == candidate
    np.testing.assert_allclose(law.pmf(scores), [w / 2**64 for w in weights], rtol=1e-15)


def test_batches_follow_the_law_and_a_wrong_law_is_noticed() -> None:
    law = Floors.nearest(2, [0.1, 0.05, 0.05, 0.2])
    scores, trials = np.array([0.1, 0.9, 0.5, 0.2]), 100_000
    chosen = law.choose(np.tile(scores, (trials, 1)), Simulation(5).words)
    counts, pmf = Counter(chosen.tolist()), law.pmf(scores)
    assert_matches_pmf(counts, dict(enumerate(pmf.tolist())))
    with pytest.raises(AssertionError):
        assert_matches_pmf(counts, dict(enumerate(law.pmf(scores[::-1]).tolist())))


def test_laws_of_many_requests_at_once() -> None:
    law = Floors.nearest(1, [0.2, 0.1, 0.0, 0.15])
    scores = np.random.default_rng(0).normal(size=(3, 5, 4))
    slow = [[w / 2**64 for w in law.weights(one)] for one in scores.reshape(-1, 4)]
    np.testing.assert_allclose(law.pmf(scores).reshape(-1, 4), slow, rtol=1e-15)
    assert law.choose(np.zeros((0, 4)), Simulation(1).words).shape == (0,)


@settings(max_examples=40)
@given(floors(), st.integers(0, 2**32))
def test_nothing_between_floors_and_caps_scores_higher(drawn: tuple[Floors, Fraction], seed: int) -> None:
    """Moving weight from one candidate to another, as far as floors and caps allow, never helps."""
    law, _ = drawn
    scores = np.random.default_rng(seed).normal(size=law.candidates)
    unit = 1 << (64 - law.bits)
    weights = [w // unit for w in law.weights(scores)]
    for source in range(law.candidates):
        for target in range(law.candidates):
            if scores[target] > scores[source]:
                movable = min(weights[source] - law.numerators[source], law.caps[target] - weights[target])
                assert movable <= 0


def test_only_one_candidate_with_a_floor_is_always_chosen_and_tells_nothing() -> None:
    law = Floors.nearest(3, [0.0, 0.4, 0.0])
    assert law.epsilon == 0
    assert law.weights([5, 1, 2]) == (0, 2**64, 0)
    assert law.pmf([[5, 1, 2]]).tolist() == [[0, 1, 0]]
    assert law.choose([[5, 1, 2]], Simulation(1).words).tolist() == [1]


@settings(max_examples=40)
@given(EPSILONS, st.integers(0, 2**32))
def test_rounding_loses_no_more_than_stated(epsilon: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(5)) * float(rng.uniform(math.exp(-float(epsilon)), 1))
    exact = Floors.nearest(epsilon, shares)
    coarse = Floors.nearest(epsilon, shares, bits=32)
    assert (
        exact.rounding_loss(epsilon, shares) <= 5 / 2**64 + 2.0**-52
    )  # a sum of doubles may be off by so much
    loss = coarse.rounding_loss(epsilon, shares)
    scores = rng.normal(size=(50, 5))
    lost = ((exact.pmf(scores) - coarse.pmf(scores)) * scores).sum(axis=1)
    assert (lost <= (loss + 1e-15) * np.ptp(scores, axis=1)).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Floors((), ()), "one cap a floor"),
        (lambda: Floors((2**63,), (2**63,)), "caps that reach it"),
        (lambda: Floors((2**63, 2**63 + 1), (2**64, 2**64)), "sum to at most"),
        (lambda: Floors((0, 2**63), (5, 2**64)), "above a floor of 0"),
        (lambda: Floors((2**63, 2**62), (2**62, 2**64)), r"caps\[0\]"),
        (lambda: Floors((-1, 2**63), (0, 2**64)), r"numerators\[0\]"),
        (lambda: Floors((2**63,), (2**64,), bits=48), "32 or 64"),
        (lambda: Floors.for_epsilon(0, [2**63]), "epsilon > 0"),
        (lambda: Floors.for_epsilon(math.inf, [2**63]), "epsilon"),
        (lambda: Floors.for_epsilon(1, [0.5]), "whole number"),  # type: ignore[list-item]
        (lambda: Floors.nearest(1, [0.1, 0.1]), "between e"),
        (lambda: Floors.nearest(1, [0.9, 0.3]), "between e"),
        (lambda: Floors.nearest(1, [0.9, math.nan]), "floors >= 0"),
        (lambda: Floors.nearest(1, [0.5, 0.2]).pmf([1.0, math.nan]), "finite"),
        (lambda: Floors.nearest(1, [0.5, 0.2]).choose([1.0, 2.0], Simulation(1).words), "shape"),
        (lambda: Floors.nearest(1, [0.5, 0.2]).weights([1.0, 2.0, 3.0]), "shape"),
    ],
)
def test_bad_input_is_refused_in_one_line(make: object, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refusal:
        make()  # type: ignore[operator]
    assert "\n" not in str(refusal.value)
