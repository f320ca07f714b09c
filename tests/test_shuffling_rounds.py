"""Batches that follow each other: their privacy loss distributions against two rounds enumerated directly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray

from tacit.privacy import shuffling
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling.mechanism import Rows

Floats = NDArray[np.float64]


def response(choices: int, odds: Fraction) -> Rows:
    whole = odds + choices - 1
    return tuple(tuple((odds if x == y else 1) / whole for y in range(choices)) for x in range(choices))


LOPSIDED: Rows = (
    (Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)),
    (Fraction(3, 10), Fraction(3, 10), Fraction(4, 10)),
    (Fraction(2, 10), Fraction(6, 10), Fraction(2, 10)),
)
"""A mechanism without symmetry: the two orders of a pair differ."""


def batches(rows: Rows, cohort: int) -> list[tuple[Floats, Floats]]:
    """Both laws of every pair of neighbouring batches, flat, in both orders."""
    found = []
    table = np.array([[float(p) for p in row] for row in rows])
    tuples = list(itertools.product(range(table.shape[1]), repeat=cohort))
    counts = {tuple(sorted(t)): 0 for t in tuples}
    places = {key: place for place, key in enumerate(counts)}
    for others in itertools.combinations_with_replacement(range(len(rows)), cohort - 1):
        laws = []
        for victim in range(len(rows)):
            law = np.zeros(len(places))
            for reports in tuples:
                inputs = (victim, *others)
                law[places[tuple(sorted(reports))]] += math.prod(
                    table[x, y] for x, y in zip(inputs, reports, strict=True)
                )
            laws.append(law)
        found += list(itertools.permutations(laws, 2))
    return found


def divergence(first: Floats, second: Floats, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def short_after_two_rounds(
    claim: Callable[[PrivacyLossDistribution], PrivacyLossDistribution], rows: Rows
) -> int:
    """At how many epsilons the claim for two rounds is below the worst pair of pairs, enumerated directly."""
    pairs = batches(rows, 3)
    local = max(math.log(max(column) / min(column)) for column in zip(*rows, strict=True))
    claimed = claim(shuffling.pld(ShuffledChoice(Fraction(local) + Fraction(1, 10**9), 3, rows), 1e-3))
    short = 0
    for epsilon in (-1.0, -0.3, 0.0, 0.2, 0.5, 1.0, 1.5):
        exact = max(
            divergence(np.outer(one, other).ravel(), np.outer(first, second).ravel(), epsilon)
            for (one, first), (other, second) in itertools.product(pairs, repeat=2)
        )
        short += claimed.get_delta_for_epsilon(epsilon) < exact * (1 - 1e-9) - 1e-12
    return short


@pytest.mark.parametrize("rows", [LOPSIDED[:2], response(2, Fraction(3)), response(3, Fraction(2))])
def test_two_rounds_are_never_below_direct_enumeration(rows: Rows) -> None:
    assert short_after_two_rounds(lambda one: one.self_compose(2), rows) == 0
    assert short_after_two_rounds(lambda one: one.compose(one), rows) == 0


def test_the_same_check_catches_a_second_round_for_free() -> None:
    assert short_after_two_rounds(lambda one: one, response(2, Fraction(3))) > 0


@pytest.mark.parametrize("rows", [(), response(4, Fraction(20)), LOPSIDED])
@pytest.mark.parametrize("cohort", [1, 2_000])
def test_one_round_of_the_pld_is_the_curve(rows: Rows, cohort: int) -> None:
    release = ShuffledChoice(Fraction(3), cohort, rows)
    one = shuffling.pld(release, 1e-4)
    for allowed in (1e-8, 1e-6, 1e-3):
        reached = shuffling.epsilon(release, allowed)
        assert reached * (1 - 1e-5) <= one.get_epsilon_for_delta(allowed) <= reached * 1.01 + 1e-4


def test_rounds_of_different_cohorts_compose() -> None:
    small, large = (shuffling.pld(ShuffledChoice(Fraction(3), n), 1e-3) for n in (2_000, 200_000))
    both = small.compose(large).get_epsilon_for_delta(1e-6)
    assert small.get_epsilon_for_delta(1e-6) < both
    assert both < small.get_epsilon_for_delta(5e-7) + large.get_epsilon_for_delta(5e-7)
