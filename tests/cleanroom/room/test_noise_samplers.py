"""Noise in whole steps, Laplace and Gaussian: the laws by enumeration, and by draws."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import kstest, norm

from tacit.cleanroom.room.noise_samplers import (
    CHANCE_DIGITS,
    PLACE_DIGITS,
    _accept,
    _decide_exactly,
    _geometric,
    _steps,
    bit_thresholds,
    gaussian_steps,
    laplace_steps,
)
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.noise.distributions import DiscreteGaussian
from tests.support.exact_tests import ALPHA, assert_matches_pmf


def exact_masses(chances: list[int], most: int) -> list[Fraction]:
    """P(G = 0), ..., P(G = most) of a number whose bits are set independently with these chances in 2^-128."""
    whole = Fraction(2**CHANCE_DIGITS)
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
    masses = exact_masses(bit_thresholds(scale), 20)
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

    first, second = divmod(bit_thresholds(Fraction(1))[0], 2**64)
    chance = bit_thresholds(Fraction(1))[:1]
    assert _geometric(2, chance, Tied(second - 1)).tolist() == [1, 1]  # type: ignore[arg-type]
    assert _geometric(2, chance, Tied(second)).tolist() == [0, 0]  # type: ignore[arg-type]


def test_laplace_noise_of_too_many_steps_is_an_error_rather_than_inexact() -> None:
    with pytest.raises(BadInput, match="below 2\\^50"):
        laplace_steps(1, Fraction(2**50), Simulation(0))


def rounded_normal(scale: float, most: int) -> dict[int, float]:
    """P(x) of a normal number that is rounded, for |x| <= most, and the rest under most + 1."""
    pmf = {x: float(norm.cdf((x + 0.5) / scale) - norm.cdf((x - 0.5) / scale)) for x in range(-most, most + 1)}
    return {**pmf, most + 1: 1 - sum(pmf.values())}


def counted(steps: np.ndarray, most: int) -> Counter[int]:
    return Counter(int(x) if abs(x) <= most else most + 1 for x in steps)


def test_steps_follow_their_law_and_a_narrower_twin_is_caught() -> None:
    count, scale = 200_000, Fraction(53, 3)
    pmf = rounded_normal(float(scale), 50)
    assert_matches_pmf(counted(gaussian_steps(count, scale, Simulation("steps")), 50), pmf)
    narrow = gaussian_steps(count, Fraction(16), Simulation("narrow"))
    with pytest.raises(AssertionError):
        assert_matches_pmf(counted(narrow, 50), pmf)


@pytest.mark.parametrize("scale", [Fraction(2**20, 3), Fraction(2**44 + 1, 2), Fraction(2**50 - 1)])
def test_wide_noise_is_normal_and_its_last_digits_tell_nothing(scale: Fraction) -> None:
    steps = gaussian_steps(100_000, scale, Simulation(f"wide {scale}"))
    assert kstest(steps / float(scale), "norm").pvalue >= ALPHA
    assert kstest(0.94 * steps / float(scale), "norm").pvalue < ALPHA  # a twin with 6% less noise
    assert_matches_pmf(Counter((steps % 16).tolist()), dict.fromkeys(range(16), 1 / 16))


def beyond_rings(deviations: np.ndarray, apart: int) -> np.ndarray:
    """What is left of (1 - exp(-r^2 / 2)) 2^52 beyond a whole number, for pairs of draws so far apart in their
    order. Pairs made by Box and Muller from radii of 52 digits have a half there. Only small radii: of others a
    float tells no such digits."""
    pairs = deviations[: len(deviations) // (2 * apart) * 2 * apart].reshape(-1, 2, apart)
    squares = (pairs**2).sum(axis=1).ravel()
    return np.asarray(-np.expm1(-squares[squares < 2.0**-8] / 2) * 2.0**52 % 1)


def test_two_draws_lie_on_no_rings_and_normals_in_floating_point_do() -> None:
    """The twin is the noise of training on the same grid, whose pairs stand 512 apart."""
    count, scale = 2_000_000, Fraction(2**50 - 1)
    steps = gaussian_steps(count, scale, Simulation("rings")) / float(scale)
    for apart in (1, 512, count // 2):
        remains = beyond_rings(steps, apart)
        assert len(remains) > 1000
        assert kstest(remains, "uniform").pvalue >= ALPHA
    normals = np.rint(Simulation("rings").normal(count, dtype=np.float64) * float(scale)) / float(scale)
    assert kstest(beyond_rings(normals, 512), "uniform").pvalue < ALPHA


@pytest.mark.parametrize("bits", [1, 20, 46])
def test_a_place_in_a_cell_is_rounded_to_the_nearest_step(bits: int) -> None:
    draw = np.random.default_rng(bits)
    cells = draw.integers(0, 100, 500)
    places = draw.integers(0, 2**64, 500, dtype=np.uint64)
    places[:4] = [0, 1, 2**64 - 2, 2**64 - 1]  # both ends of a cell, on both sides
    for cell, place, found in zip(
        cells.tolist(), places.tolist(), _steps(cells, places, bits).tolist(), strict=True
    ):
        exact = (cell + Fraction(2 * (place >> 1) + 1, 2 ** (PLACE_DIGITS + 1))) * 2**bits
        sign = -1 if place & 1 else 1
        assert abs(sign * found - exact) < Fraction(1, 2)


def test_chances_are_those_of_the_law() -> None:
    """exp(-k^2 / 2c^2) times the chance to be kept is exp(-(k + t)^2 / 2c^2), everywhere to 2^-47."""
    law = DiscreteGaussian(Fraction(81))
    cells, digits = np.arange(60), np.arange(60, dtype=np.uint64) * np.uint64(2**63 // 61)
    t = (digits + 0.5) * 2.0**-PLACE_DIGITS
    chance = np.exp((cells**2 - (cells + t) ** 2) / 162)
    for off, expected in ((-(2.0**-40), True), (2.0**-40, False)):
        decisions = (np.minimum(chance + off, 1 - 2.0**-53) * 2.0**64).astype(np.uint64)
        kept = _accept(law, cells, digits, decisions, Simulation(0))
        inside = chance + off < 1 - 2.0**-50
        assert (kept[inside] == expected).all()


def test_what_floating_point_cannot_tell_is_worked_out() -> None:
    """Around the exact probability, which lies between two words, and with further digits on either side."""

    class Further:
        def __init__(self, word: int) -> None:
            self.word, self.asked = word, 0

        def uniform_below(self, n: int) -> int:
            assert n == 2**64
            self.asked += 1
            return self.word

    law, cell, digits = DiscreteGaussian(Fraction(81)), 7, 2**62
    exponent = Fraction(2 * digits + 1, 2**64) * (14 + Fraction(2 * digits + 1, 2**64)) / 162
    threshold = int(Fraction(math.exp(-exponent)) * 2**64)
    near = [threshold + off for off in range(-3000, 3000, 50)]
    decided = [_decide_exactly(law, cell, digits, word, Further(0)) for word in near]  # type: ignore[arg-type]
    assert decided == sorted(decided, reverse=True)
    assert decided[0]
    assert not decided[-1]
    # The word in which the probability itself lies: only more digits decide.
    low, high = near[decided.index(False) - 1], near[decided.index(False)]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _decide_exactly(law, cell, digits, middle, Further(0)) else (low, middle)  # type: ignore[arg-type]
    for word, expected in ((0, True), (2**64 - 1, False)):
        further = Further(word)
        assert _decide_exactly(law, cell, digits, low, further) is expected  # type: ignore[arg-type]
        assert further.asked == 1
    cells, places, words = np.array([cell]), np.array([digits], np.uint64), np.array([low], np.uint64)
    doubtful = _accept(law, cells, places, words, Further(0))  # type: ignore[arg-type]
    assert doubtful.tolist() == [True]


@pytest.mark.parametrize("scale", [Fraction(15), Fraction(2**50)])
def test_a_scale_that_would_not_be_exact_is_refused(scale: Fraction) -> None:
    with pytest.raises(BadInput, match="at least 2\\^4 and below 2\\^50"):
        gaussian_steps(1, scale, Simulation(0))


def test_none_are_none() -> None:
    assert gaussian_steps(0, Fraction(100), Simulation(0)).tolist() == []
