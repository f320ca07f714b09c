"""Discrete noise: every threshold against an independent computation, every boundary word, and the law."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import repeat

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Polya, Skellam
from tacit.privacy.noise.exact_sampler import FIRST_DIGITS, SymmetricLaw, exp_minus, threshold_level
from tacit.privacy.randomness import UniformBelow
from tests.support.exact_tests import ALPHA

DEEP = FIRST_DIGITS + 64

NARROW: list[SymmetricLaw] = [
    DiscreteLaplace(Fraction(1, 3)),
    DiscreteLaplace(Fraction(5, 2)),
    DiscreteGaussian(Fraction(1, 4)),
    DiscreteGaussian(Fraction(50)),
    Skellam(Fraction(1, 1000)),
    Skellam(Fraction(7, 2)),
    Skellam(Fraction(400)),
    Polya(Fraction(5, 2), Fraction(1, 7)),
    Polya(Fraction(4), Fraction(2, 3)),
]
Laws = pytest.mark.parametrize("law", NARROW, ids=str)


def real(number: Fraction) -> mpmath.mpf:
    return mpmath.mpf(number.numerator) / number.denominator


def mass(law: SymmetricLaw) -> Callable[[int], mpmath.mpf]:
    """P(X = k) for k >= 0 by closed forms that the samplers do not use."""
    if isinstance(law, DiscreteLaplace):
        alpha = mpmath.exp(-1 / real(law.scale))
        return lambda k: (1 - alpha) / (1 + alpha) * alpha**k
    if isinstance(law, DiscreteGaussian):
        double = 2 * real(law.sigma_squared)
        whole = mpmath.jtheta(3, 0, mpmath.exp(-1 / double))
        return lambda k: mpmath.exp(-(k**2) / double) / whole
    if isinstance(law, Skellam):
        variance = real(law.variance)
        return lambda k: mpmath.exp(-variance) * mpmath.besseli(k, variance)
    assert isinstance(law, Polya)
    alpha, shape = mpmath.exp(-1 / real(law.scale)), real(law.shape)
    front = (1 - alpha) ** (2 * shape)

    def polya(k: int) -> mpmath.mpf:
        series = mpmath.hyp2f1(shape, shape + k, k + 1, alpha**2)
        return front * mpmath.rf(shape, k) / mpmath.factorial(k) * alpha**k * series

    return polya


def cut_survivals(law: SymmetricLaw, digits: int) -> list[int]:
    """floor(2^digits P(|X| > k)) for k = 0, 1, ..., up to the first zero."""
    with mpmath.workdps(120):
        p = mass(law)
        beyond = len(threshold_level(law, digits + 128).thresholds) + 5
        masses = [p(k) for k in range(beyond)]
        tail, survivals = mpmath.mpf(0), []
        for k in range(beyond - 1, -1, -1):
            survivals.append(tail)
            tail += 2 * masses[k]
        cut = [int(mpmath.floor(survival * 2**digits)) for survival in reversed(survivals)]
        return cut[: cut.index(0) + 1]


@Laws
@pytest.mark.parametrize("digits", [FIRST_DIGITS, DEEP])
def test_every_threshold_is_the_exact_cut_of_its_probability(law: SymmetricLaw, digits: int) -> None:
    assert threshold_level(law, digits).thresholds == cut_survivals(law, digits)


def test_a_slightly_wrong_law_has_other_thresholds() -> None:
    almost = DiscreteGaussian(Fraction(50) + Fraction(1, 10**12))
    assert threshold_level(almost, FIRST_DIGITS).thresholds != cut_survivals(
        DiscreteGaussian(Fraction(50)), FIRST_DIGITS
    )


@pytest.mark.parametrize("scale", [Fraction(1, 50), Fraction(1), Fraction(355, 113), Fraction(100)])
def test_a_whole_polya_is_the_discrete_laplace_to_the_last_digit(scale: Fraction) -> None:
    # Two different recurrences, one law: equal thresholds mean equal samples.
    for digits in (FIRST_DIGITS, DEEP):
        whole = threshold_level(Polya(scale, Fraction(1)), digits)
        assert whole.thresholds == threshold_level(DiscreteLaplace(scale), digits).thresholds


@pytest.mark.parametrize("x", ["0", "1/1000000000", "1/3", "1/2", "1", "7/5", "20", "123.456", "150", "1e9"])
@pytest.mark.parametrize("precision", [64, 200])
def test_exponentials_are_enclosed(x: str, precision: int) -> None:
    lower, upper = exp_minus(Fraction(x), precision)
    with mpmath.workdps(200):
        exact = mpmath.exp(-real(Fraction(x))) * 2**precision
        assert lower <= exact <= upper
    assert upper - lower <= 2


def draws_of(*words: int) -> UniformBelow:
    """Gives these words, one after another; asking for more is an error."""
    remaining = iter(words)

    def uniform_below(n: int) -> int:
        assert n == 2**64
        return next(remaining)

    return uniform_below


@Laws
def test_words_beside_every_boundary_fall_on_the_right_side(law: SymmetricLaw) -> None:
    thresholds = threshold_level(law, FIRST_DIGITS).thresholds
    for k, threshold in enumerate(thresholds):
        for number in {threshold - 1, threshold + 1} - set(thresholds) - {-1}:
            size = law.sample(draws_of(number << 1))
            assert size == sum(other > number for other in thresholds)
            assert (size > k) == (number < threshold)
            assert law.sample(draws_of(number << 1 | 1)) == -size


@Laws
def test_a_word_on_a_boundary_is_decided_by_further_words(law: SymmetricLaw) -> None:
    first, deep = threshold_level(law, FIRST_DIGITS).thresholds, threshold_level(law, DEEP).thresholds
    decided = 0
    for k, threshold in enumerate(first[:-1]):
        finer = deep[k] - (threshold << 64)  # the next 64 digits of S(k)
        assert 0 <= finer < 2**64
        if first.count(threshold) > 1:
            continue
        for further, size in ((finer - 1, k + 1), (finer + 1, k)):
            with pytest.raises(StopIteration):
                law.sample(draws_of(threshold << 1))
            assert law.sample(draws_of(threshold << 1, further)) == size
            words = np.array([threshold << 1, threshold << 1 | 1], dtype=np.uint64)
            assert law.from_words(words, repeat(further).__next__).tolist() == [size, -size]
            decided += 1
    assert decided > 0


@Laws
def test_the_tail_has_no_end(law: SymmetricLaw) -> None:
    # All digits zero lead further out, word after word, past every table.
    reached = [law.sample(draws_of(*[0] * zeros, 2**64 - 1)) for zeros in (1, 2, 3)]
    assert reached == sorted(reached)
    assert reached[0] >= len(threshold_level(law, FIRST_DIGITS).thresholds) - 1
    assert reached[2] > reached[0]


@Laws
def test_bulk_and_single_draws_agree_word_for_word(law: SymmetricLaw) -> None:
    words = Simulation("words").words(3000)
    one_by_one = [law.sample(draws_of(int(word))) for word in words]
    assert law.from_words(words, repeat(0).__next__).tolist() == one_by_one
    assert law.sample_array(3000, Simulation("words").words).tolist() == one_by_one


@Laws
def test_masses_and_pmf_are_those_of_the_law(law: SymmetricLaw) -> None:
    with mpmath.workdps(60):
        p = mass(law)
        masses = law.masses
        for k in range(len(masses)):
            assert masses[k] == pytest.approx(float(p(k)), rel=1e-14)
            assert law.pmf(k) == law.pmf(-k) == masses[k]
        for k in (len(masses), 2 * len(masses), 5 * len(masses)):
            assert law.pmf(k) == pytest.approx(float(p(k)), rel=1e-13)
    assert law.pmf(10**9) == 0
    assert masses[0] + 2 * math.fsum(masses[1:]) == pytest.approx(1, abs=1e-15)


@Laws
def test_variance_is_that_of_the_masses(law: SymmetricLaw) -> None:
    assert isinstance(law, DiscreteLaplace | DiscreteGaussian | Skellam | Polya)
    size = np.arange(len(law.masses), dtype=np.float64)
    assert float(law.variance) == pytest.approx(2 * math.fsum(size**2 * law.masses), rel=1e-12)


def matches(sample: NDArray[np.int64], law: SymmetricLaw) -> bool:
    """One exact binomial test for each likely value and for all others together; false alarm below ALPHA."""
    counts = Counter(sample.tolist())
    likely = [x for k in range(len(law.masses)) for x in {k, -k} if law.pmf(k) * sample.size >= 1]
    cells = [(counts[x], law.pmf(x)) for x in likely]
    rest = max(0.0, 1 - math.fsum(p for _, p in cells))
    cells.append((sample.size - sum(count for count, _ in cells), rest))
    return all(stats.binomtest(c, sample.size, p).pvalue >= ALPHA / len(cells) for c, p in cells)


SAMPLED: list[tuple[SymmetricLaw, SymmetricLaw]] = [  # a law, and a near one that must not pass for it
    (DiscreteLaplace(Fraction(3)), DiscreteLaplace(Fraction(291, 100))),
    (DiscreteGaussian(Fraction(9)), DiscreteGaussian(Fraction(84, 10))),
    (Skellam(Fraction(2)), Skellam(Fraction(194, 100))),
    (Polya(Fraction(3), Fraction(1, 5)), Polya(Fraction(3), Fraction(19, 100))),
]


@pytest.mark.parametrize(("law", "near"), SAMPLED, ids=str)
def test_samples_follow_their_law_and_no_near_one(law: SymmetricLaw, near: SymmetricLaw) -> None:
    sample = law.sample_array(400_000, Simulation("law").words)
    assert matches(sample, law)
    assert not matches(near.sample_array(400_000, Simulation("law").words), law)
    assert not matches(np.abs(sample), law)


def test_rounded_normals_do_not_pass_for_the_discrete_gaussian() -> None:
    normals = Simulation("rounded").normal(400_000, dtype=np.float64, scale=0.7)
    law = DiscreteGaussian(Fraction(49, 100))
    assert not matches(np.rint(normals).astype(np.int64), law)
    assert matches(law.sample_array(400_000, Simulation("rounded").words), law)


def matches_in_twenty_cells(sample: NDArray[np.int64], law: SymmetricLaw) -> bool:
    """As `matches`, for a law too wide to count single values: cells of about equal probability."""
    half = law.masses
    law_of_all = np.concatenate([half[:0:-1], half])
    cumulative = np.cumsum(law_of_all)
    cuts = np.searchsorted(cumulative, np.arange(1, 20) / 20)
    cells = np.diff(np.concatenate([[0.0], cumulative[cuts], [cumulative[-1]]]))
    edges = np.concatenate([[-np.inf], cuts - (len(half) - 1) + 0.5, [np.inf]])
    counts = np.histogram(sample, edges)[0]
    values = [stats.binomtest(int(c), sample.size, p).pvalue for c, p in zip(counts, cells, strict=True)]
    return bool(min(values) >= ALPHA / len(values))


WIDE = [
    (DiscreteGaussian(Fraction(10**8)), DiscreteGaussian(Fraction(94 * 10**6))),
    (Skellam(Fraction(10**8)), Skellam(Fraction(94 * 10**6))),
]


@pytest.mark.parametrize(("law", "near"), WIDE, ids=str)
def test_wide_laws_are_sampled_too(law: SymmetricLaw, near: SymmetricLaw) -> None:
    assert matches_in_twenty_cells(law.sample_array(200_000, Simulation("wide").words), law)
    assert not matches_in_twenty_cells(near.sample_array(200_000, Simulation("wide").words), law)
    # Both are the normal density up to terms of order (k / sigma)^4 / sigma^2.
    k = np.arange(0, 40_000, 1000)
    np.testing.assert_allclose(law.masses[k], stats.norm.pdf(k / 10**4) / 10**4, rtol=1e-6)
    assert isinstance(law.sample(Entropy().uniform_below), int)
    assert law.sample_array(0, Simulation("wide").words).shape == (0,)


def test_laplace_masses_keep_their_pure_epsilon() -> None:
    scale = Fraction(7, 2)
    masses = DiscreteLaplace(scale).masses
    ratios = masses[:-1] / masses[1:]
    assert float(ratios.max()) <= math.exp(1 / scale) * (1 + 1e-14)
    assert not np.all(
        DiscreteGaussian(Fraction(10)).masses[:-1] / DiscreteGaussian(Fraction(10)).masses[1:] < 2
    )


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "much", None, Fraction(0), 1j])
@pytest.mark.parametrize(
    "make", [DiscreteLaplace, DiscreteGaussian, Skellam, lambda v: Polya(v, Fraction(1, 2))]
)
def test_parameters_that_cannot_be_meant_are_refused(make: Callable[[object], object], value: object) -> None:
    with pytest.raises(BadInput, match="expected"):
        make(value)


@pytest.mark.parametrize("shape", [0, -1, Fraction(8, 7), float("nan"), True])
def test_a_polya_shape_is_a_part_of_one(shape: Fraction) -> None:
    with pytest.raises(BadInput, match="expected shape"):
        Polya(Fraction(1), shape)


@pytest.mark.parametrize(
    "law", [DiscreteLaplace(Fraction(10**7)), Skellam(Fraction(10) ** 700)], ids=lambda law: type(law).__name__
)
def test_laws_too_wide_for_a_table_are_refused_before_any_work(law: SymmetricLaw) -> None:
    with pytest.raises(BadInput, match="expected a law with at most"):
        law.sample_array(1, Simulation(1).words)
    with pytest.raises(BadInput, match="expected a law with at most"):
        law.sample(Entropy().uniform_below)
    with pytest.raises(BadInput, match="expected a law with at most"):
        law.pmf(0)


@pytest.mark.parametrize(
    "law",
    [DiscreteLaplace(Fraction(1, 10**400)), Skellam(Fraction(1, 10**400))],
    ids=lambda law: type(law).__name__,
)
def test_laws_too_narrow_to_notice_are_zero(law: SymmetricLaw) -> None:
    assert not np.any(law.sample_array(1000, Simulation(1).words))
    assert law.pmf(0) == 1
    assert law.pmf(1) == 0


def test_counts_and_places_are_whole() -> None:
    law = DiscreteLaplace(Fraction(1))
    for n in (-1, 1.5, True):
        with pytest.raises(BadInput, match="expected n"):
            law.sample_array(n, Simulation(1).words)  # type: ignore[arg-type]
    for x in (0.5, "1", True):
        with pytest.raises(BadInput, match="expected x"):
            law.pmf(x)  # type: ignore[arg-type]
