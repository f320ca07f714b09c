"""The laws of noisy contests against slow definitions: enumeration, fractions, fine integration, draws."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import permutations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.privacy.choice.noise import Noise, others_stay_below, ragged_pmf, unit_nodes
from tests.support.exact_tests import assert_matches_pmf

Floats = NDArray[np.float64]

RELATIVE = 2.0**-45
"""What `noisy_max` says of the laws in doubles."""

signals_of = st.integers(1, 6).flatmap(lambda a: st.lists(st.floats(-50, 50), min_size=a, max_size=a))


def one(noise: Noise, signals: list[float]) -> Floats:
    law: Floats = noise.pmf(np.array([signals]))[0]
    return law


def random_signals(candidates: int, spread: float, seed: int) -> list[float]:
    drawn: list[float] = (np.random.default_rng(seed).random(candidates) * spread).tolist()
    return drawn


@given(signals_of)
def test_gumbel_is_softmax(signals: list[float]) -> None:
    with mpmath.workdps(40):
        odds = [mpmath.exp(mpmath.mpf(t)) for t in signals]
        truth = [float(w / mpmath.fsum(odds)) for w in odds]
    assert one(Noise.GUMBEL, signals) == pytest.approx(truth, rel=RELATIVE, abs=0)


def permute_and_flip_by_enumeration(odds: list[Fraction]) -> list[Fraction]:
    """In random order, each candidate is taken with probability odds_i, else the next one has its turn."""
    law = [Fraction(0)] * len(odds)
    orders = list(permutations(range(len(odds))))
    for order in orders:
        reached = Fraction(1, len(orders))
        for candidate in order:
            law[candidate] += reached * odds[candidate]
            reached *= 1 - odds[candidate]
    return law


@settings(max_examples=40)
@given(st.integers(1, 5).flatmap(lambda a: st.lists(st.floats(0, 12), min_size=a, max_size=a)))
def test_exponential_noise_is_permute_and_flip(signals: list[float]) -> None:
    odds = [Fraction(math.exp(t - max(signals))) for t in signals]
    truth = permute_and_flip_by_enumeration(odds)
    assert one(Noise.EXPONENTIAL, signals) == pytest.approx([float(p) for p in truth], rel=1e-13, abs=0)


@pytest.mark.parametrize("candidates", [2, 15, 100])
def test_the_quadrature_is_exact_against_fractions(candidates: int) -> None:
    """Every coefficient of the polynomial, exactly: what doubles could not add up without loss."""
    odds = np.exp(-np.array(random_signals(candidates, 5.0, seed=candidates)))
    scale = 2**60
    exact = [Fraction(round(w * scale), scale) for w in odds.tolist()]  # doubles below 1 with 60 bits: exact
    found = others_stay_below(np.array([[float(w) for w in exact]]))[0]
    for own in (0, candidates // 2, candidates - 1):
        coefficients = [1]  # of prod (scale - W_j y), whole numbers
        for j, w in enumerate(exact):
            if j != own:
                times = int(w * scale)
                longer, shifted = [*coefficients, 0], [0, *coefficients]
                coefficients = [scale * a - times * b for a, b in zip(longer, shifted, strict=True)]
        truth = sum(Fraction(c, n + 1) for n, c in enumerate(coefficients)) / Fraction(scale) ** (
            candidates - 1
        )
        assert found[own] == pytest.approx(float(truth), rel=RELATIVE, abs=0)


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("candidates", [2, 15, 100, 300])
def test_laws_sum_to_one(noise: Noise, candidates: int) -> None:
    signals = np.array([random_signals(candidates, spread, 7) for spread in (0.0, 0.1, 2.5, 30.0)])
    assert np.abs(noise.pmf(signals).sum(axis=1) - 1).max() <= 5e-14


def test_expanding_the_product_would_not_do() -> None:
    """The twin: the alternating sum over elementary symmetric polynomials loses its digits."""
    odds = np.exp(-np.array(random_signals(100, 2.5, seed=1)))
    others = np.polynomial.polynomial.polyfromroots(1 / odds[1:]) * np.prod(-odds[1:])
    expanded = float((others / np.arange(1, 101)).sum())
    assert abs(expanded / others_stay_below(odds[None, :])[0, 0] - 1) > 1e-9


def laplace_by_mpmath(signals: list[float], own: int) -> float:
    """∫ f(z - t_own) prod F(z - t_j) dz, piece by piece."""
    with mpmath.workdps(30):
        t = [mpmath.mpf(x) for x in signals]

        def integrand(z: mpmath.mpf) -> mpmath.mpf:
            value = mpmath.exp(-abs(z - t[own])) / 2
            for j, at in enumerate(t):
                if j != own:
                    value *= 1 - mpmath.exp(at - z) / 2 if z > at else mpmath.exp(z - at) / 2
            return value

        edges = [min(t) - 60, *sorted(set(t)), max(t) + 90]
        return float(mpmath.quad(integrand, edges, maxdegree=8))


@pytest.mark.parametrize(
    "signals",
    [[0.0], [0.0, 0.0], [0.0, -3.0], [1.0, 1.0, -2.0, 0.5], [0.0, -30.0, -12.0], random_signals(8, 5.0, 3),
     [0.0, 0.0, -27.5, -32.5]],  # between the last two lies e^-28 of their chances: still seen
    ids=lambda signals: f"{len(signals)}",
)  # fmt: skip
def test_laplace_against_high_precision(signals: list[float]) -> None:
    found = one(Noise.LAPLACE, signals)
    for own in {0, len(signals) - 1}:
        assert found[own] == pytest.approx(laplace_by_mpmath(signals, own), rel=RELATIVE, abs=0)


def laplace_finely(signals: Floats) -> Floats:
    """Gauss-Legendre on panels of at most a hundredth, in plain doubles."""
    grid = np.arange(signals.min() - 40, signals.max() + 40, 0.01)
    edges = np.unique(np.concatenate([grid, signals]))
    nodes, weights = leggauss(6)
    width = np.diff(edges)[:, None]
    z = (edges[:-1, None] + width * (1 + nodes) / 2).ravel()[:, None]
    measure = (width * weights / 2).ravel()
    beyond = np.exp(-np.abs(z - signals)) / 2
    under = np.where(z > signals, 1 - beyond, beyond)
    law: Floats = measure @ (under.prod(axis=1, keepdims=True) * beyond / under)
    return law


@pytest.mark.parametrize(("candidates", "spread"), [(2, 9.0), (15, 2.5), (40, 0.0), (100, 2.5), (100, 12.0)])
def test_laplace_against_fine_integration(candidates: int, spread: float) -> None:
    signals = random_signals(candidates, spread, seed=candidates)
    assert one(Noise.LAPLACE, signals) == pytest.approx(laplace_finely(np.array(signals)), rel=1e-10, abs=0)


def drawn(noise: Noise, shape: tuple[int, int]) -> Floats:
    draws = np.random.default_rng(5)
    if noise is Noise.EXPONENTIAL:
        return draws.exponential(1.0, shape)
    return (draws.gumbel if noise is Noise.GUMBEL else draws.laplace)(0.0, 1.0, shape)


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("signals", [[0.0, -1.0], [2.5, 0.0, 2.0, 2.0, 1.0]], ids=len)
def test_the_laws_are_those_of_the_contest(noise: Noise, signals: list[float]) -> None:
    sums = np.array(signals) + drawn(noise, (200_000, len(signals)))
    counts = Counter(sums.argmax(axis=1).tolist())
    assert_matches_pmf(counts, dict(enumerate(one(noise, signals).tolist())))
    with pytest.raises(AssertionError, match="p_value"):  # the twin: a tenth less noise
        assert_matches_pmf(counts, dict(enumerate(one(noise, [1.1 * t for t in signals]).tolist())))


@pytest.mark.parametrize("behind", [1.0, 700.0, 20_000.0])
def test_no_chance_underflows_in_logarithms(behind: float) -> None:
    """Two candidates have closed forms, as far behind as one may be."""
    truth = {
        Noise.GUMBEL: -behind - math.log1p(math.exp(-behind)),
        Noise.EXPONENTIAL: -behind - math.log(2),
        Noise.LAPLACE: -behind + math.log((1 + behind / 2) / 2),
    }
    for noise, expected in truth.items():
        found = noise.log_pmf(np.array([[0.0, -behind]]))[0, 1]
        assert found == pytest.approx(expected, abs=1e-15 * (100 + 4 * behind))


@pytest.mark.parametrize("noise", Noise)
def test_batches_are_rows_and_a_shift_changes_nothing(noise: Noise) -> None:
    signals = np.random.default_rng(2).normal(0, 3, (50, 7))
    law = noise.pmf(signals)
    assert np.allclose(law, np.concatenate([noise.pmf(row[None, :]) for row in signals]), rtol=1e-14, atol=0)
    assert np.allclose(law, noise.pmf(signals + 1000), rtol=1e-11, atol=0)
    order = np.random.default_rng(3).permutation(7)
    assert np.allclose(law[:, order], noise.pmf(signals[:, order]), rtol=1e-12, atol=0)


def test_nodes_are_exact_to_the_last_digits() -> None:
    for count in (1, 2, 8, 50):
        nodes, weights = unit_nodes(count)
        for power in range(2 * count):
            assert weights @ nodes**power == pytest.approx(1 / (power + 1), rel=2e-14, abs=0)


def test_nodes_next_to_the_end_against_high_precision() -> None:
    """Where laws of many candidates have their mass; NumPy's weights are off by up to 1e-12 there."""
    count = 50
    nodes, weights = unit_nodes(count)
    with mpmath.workdps(40):
        for place in (0, 1, 5):
            root = mpmath.findroot(lambda x: mpmath.legendre(count, x), mpmath.mpf(2 * float(nodes[place]) - 1))
            slope = count * mpmath.legendre(count - 1, root) / (1 - root**2)
            assert nodes[place] == pytest.approx(float((1 + root) / 2), rel=1e-15, abs=0)
            assert weights[place] == pytest.approx(float(1 / ((1 - root**2) * slope**2)), rel=1e-15, abs=0)


@pytest.mark.parametrize("noise", Noise)
def test_ragged_requests_have_their_own_laws(noise: Noise) -> None:
    signals = [np.array(random_signals(size, 4.0, size)) for size in (3, 1, 7, 3, 2)]
    offsets = np.array([0, 3, 4, 11, 14, 16])
    law = ragged_pmf(noise, np.concatenate(signals), offsets)
    for i, own in enumerate(signals):
        assert np.allclose(law[offsets[i] : offsets[i + 1]], noise.pmf(own[None, :])[0], rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 2, 2, 3], "expected at least one candidate per request, got none for request 1"),
        ([0, 2], "expected offsets from 0 to 3"),
        ([1, 3], "expected offsets from 0 to 3"),
        ([], "expected offsets to be a list of whole numbers"),
        ([0.0, 3.0], "expected offsets to be a list of whole numbers"),
    ],
)
def test_bad_offsets_are_refused(offsets: list[int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ragged_pmf(Noise.GUMBEL, np.zeros(3), np.array(offsets))


def test_an_unknown_noise_is_refused_by_naming_the_known() -> None:
    with pytest.raises(BadInput, match="expected Noise to be one of gumbel, exponential, laplace"):
        Noise("gaussian")
