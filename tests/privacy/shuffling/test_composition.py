"""Batches that follow each other: what the accountant says of two rounds, against enumerating them directly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.privacy import accounting, shuffling
from tacit.privacy.releases import Composed, Release, ShuffledChoice
from tacit.privacy.shuffling.mechanism import Rows
from tacit.privacy.units import Relation

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


def short_after_two_rounds(claim: Callable[[ShuffledChoice], Release], rows: Rows) -> int:
    """At how many epsilons the claim for two rounds is below the worst pair of pairs, enumerated directly."""
    pairs = batches(rows, 3)
    local = max(math.log(max(column) / min(column)) for column in zip(*rows, strict=True))
    claimed = claim(ShuffledChoice(Fraction(local) + Fraction(1, 10**9), 3, rows))
    short = 0
    for epsilon in (0.0, 0.1, 0.2, 0.5, 1.0, 1.5):
        exact = max(
            divergence(np.outer(one, other).ravel(), np.outer(first, second).ravel(), epsilon)
            for (one, first), (other, second) in itertools.product(pairs, repeat=2)
        )
        found = accounting.delta(claimed, epsilon=epsilon, relation=Relation.REPLACE_ONE)
        short += found < exact * (1 - 1e-9) - 1e-12
    return short


@pytest.mark.parametrize("rows", [LOPSIDED[:2], response(2, Fraction(3)), response(3, Fraction(2))])
def test_two_rounds_are_never_below_direct_enumeration(rows: Rows) -> None:
    assert short_after_two_rounds(lambda one: Composed((one,), 2), rows) == 0
    assert short_after_two_rounds(lambda one: Composed((one, one)), rows) == 0


def test_the_same_check_catches_a_second_round_for_free() -> None:
    assert short_after_two_rounds(lambda one: one, response(2, Fraction(3))) > 0


def epsilon_of(*batches: ShuffledChoice, delta: float = 1e-6) -> float:
    return accounting.epsilon(Composed(batches), delta=delta, relation=Relation.REPLACE_ONE)


@pytest.mark.parametrize("rows", [(), response(4, Fraction(20)), LOPSIDED])
@pytest.mark.parametrize("cohort", [1, 500])
def test_one_round_by_the_accountant_is_the_curve(rows: Rows, cohort: int) -> None:
    release = ShuffledChoice(Fraction(3), cohort, rows)
    for allowed in (1e-8, 1e-6, 1e-3):
        reached = shuffling.epsilon(release, allowed)
        assert reached * (1 - 1e-4) <= epsilon_of(release, delta=allowed) <= reached * 1.01 + 1e-4


def test_rounds_of_different_cohorts_compose() -> None:
    small, large = (ShuffledChoice(Fraction(3), n) for n in (2_000, 200_000))
    both = epsilon_of(small, large)
    assert epsilon_of(small) < both
    assert both < epsilon_of(small, delta=5e-7) + epsilon_of(large, delta=5e-7)
