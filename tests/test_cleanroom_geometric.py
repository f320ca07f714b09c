"""Laplace noise in whole steps: its law by enumeration, and by draws."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from exact_tests import assert_matches_pmf
from tacit.cleanroom.room.geometric import DIGITS, _geometric, laplace_steps, thresholds
from tacit.entropy import Simulation
from tacit.errors import BadInput


def exact_masses(chances: list[int], most: int) -> list[Fraction]:
    """P(G = 0), ..., P(G = most) of a number whose bits are set independently with these chances in 2^-128."""
    whole = Fraction(2**DIGITS)
    masses = []
    for number in range(most + 1):
        mass = Fraction(1)
        for place, chance in enumerate(chances):
            set_chance = Fraction(chance) / whole
            mass *= set_chance if number >> place & 1 else 1 - set_chance
        masses.append(mass)
    return masses


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(37, 4), Fraction(1000)])
def test_independent_bits_make_the_geometric_law(scale: Fraction) -> None:
    masses = exact_masses(thresholds(scale), 20)
    ratio = math.exp(-1 / scale)
    for number, mass in enumerate(masses):
        assert float(mass) == pytest.approx((1 - ratio) * ratio**number, rel=1e-12)
    # One step apart, never a larger ratio than epsilon per step allows, but for the last of 128 digits.
    for one, other in pairwise(masses):
        assert abs(math.log(one / other) - 1 / scale) < 1e-12


def test_laplace_steps_follow_their_law_and_a_narrower_twin_is_caught() -> None:
    scale, count = Fraction(3, 2), 100_000
    drawn = laplace_steps(count, scale, Simulation("steps"))
    ratio = math.exp(-1 / scale)
    pmf: dict[int, float] = {x: (1 - ratio) / (1 + ratio) * ratio ** abs(x) for x in range(-9, 10)}
    pmf[99] = 1 - sum(pmf.values())
    counts = Counter(int(x) if abs(x) <= 9 else 99 for x in drawn)
    assert_matches_pmf(counts, pmf)
    narrow = Counter(
        int(x) if abs(x) <= 9 else 99 for x in laplace_steps(count, Fraction(14, 10), Simulation(1))
    )
    with pytest.raises(AssertionError):
        assert_matches_pmf(narrow, pmf)


def test_a_tie_is_decided_by_a_second_word() -> None:
    class Tied:
        """Words that are always the first half of the threshold, then numbers around the second half."""

        def __init__(self, second: int) -> None:
            self.second = second

        def words(self, count: int) -> np.ndarray:
            return np.full(count, first, np.uint64)

        def uniform_below(self, _: int) -> int:
            return self.second

    first, second = divmod(thresholds(Fraction(1))[0], 2**64)
    chance = thresholds(Fraction(1))[:1]
    assert _geometric(2, chance, Tied(second - 1)).tolist() == [1, 1]  # type: ignore[arg-type]
    assert _geometric(2, chance, Tied(second)).tolist() == [0, 0]  # type: ignore[arg-type]


def test_laplace_noise_of_too_many_steps_is_an_error_rather_than_inexact() -> None:
    with pytest.raises(BadInput, match="below 2\\^50"):
        laplace_steps(1, Fraction(2**50), Simulation(0))
