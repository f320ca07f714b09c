"""The proof that no choice does better: how near to the value it comes, and that rounding never breaks it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import t as student

from tacit.privacy.choice.optimal_floors import QUANTILE, SHIFTS, Certificate, best_floors
from tests.support.local_programs import best_mechanism

Floats = NDArray[np.float64]

LAWS = ("uniform", "ties", "lognormal", "public order", "few clicks")


def draws_of(law: str, count: int, candidates: int, seed: int) -> Floats:
    rng, shape = np.random.default_rng(seed), (count, candidates)
    if law == "ties":
        return rng.integers(0, 3, size=shape).astype(float)
    if law == "lognormal":
        return rng.lognormal(sigma=3, size=shape)
    if law == "public order":
        return np.sort(rng.lognormal(size=candidates))[::-1] * np.exp(0.3 * rng.normal(size=shape))
    if law == "few clicks":
        return (rng.random(shape) < 0.1).astype(float)
    if law == "normal":
        return rng.normal(size=shape)
    return rng.random(shape)


@pytest.mark.parametrize("epsilon", [0.05, 1, 6, 12])
@pytest.mark.parametrize("law", LAWS)
def test_the_proof_comes_close_for_every_law_and_epsilon(law: str, epsilon: float) -> None:
    for count, candidates, seed in ((2, 6, 1), (2, 15, 2), (20, 6, 4), (100, 10, 5)):
        scores = draws_of(law, count, candidates, seed)
        plan, width = best_floors(scores, epsilon), float(np.ptp(scores)) or 1.0
        assert 0 <= plan.gain_bound - plan.gain <= 5e-6 * width
        assert 0 <= plan.upper_bound - plan.value <= 5e-6 * width


@pytest.mark.parametrize(
    ("epsilon", "law", "count", "candidates", "seed", "wide"),
    [
        (0.05, "ties", 20, 6, 4, 3e-3),
        (1, "normal", 2, 6, 45, 5e-2),
        (6, "normal", 20, 3, 51, 5e-5),
        (12, "lognormal", 100, 10, 5, 2e-4),
    ],
)
def test_the_proof_needs_all_that_is_known_of_floors(
    epsilon: float, law: str, count: int, candidates: int, seed: int, wide: float
) -> None:
    """The twin: E lambda + max(0, gains), which only knows that they sum to at most one, leaves this open."""
    scores = draws_of(law, count, candidates, seed)
    plan, width = best_floors(scores, epsilon), float(np.ptp(scores))
    assert plan.gain_bound - plan.gain <= 5e-6 * width
    ahead = scores - scores[:, :1]
    bounds = []
    for more in (-plan.certificate.shift, *(plan.certificate.spread * each for each in SHIFTS)):
        levels = plan.certificate.thresholds(ahead) + more
        above = ahead - levels[:, None]
        gains = (math.exp(epsilon) * np.maximum(above, 0) + np.minimum(above, 0)).mean(axis=0)
        bounds.append(float(levels.mean()) + max(0.0, float(gains.max())))
    assert min(bounds) - plan.gain >= wide * width


@pytest.mark.parametrize("epsilon", [0.05, 1, 12])
def test_scores_may_be_moved_and_scaled(epsilon: float) -> None:
    """By powers of two, and by what all candidates of a draw share, without a trace."""
    scores = draws_of("uniform", 20, 4, 1)
    whole = np.round(scores * 2**20)  # whole numbers, so that adding others is exact
    plain = best_floors(whole, epsilon)
    shared = np.random.default_rng(2).integers(0, 2**40, size=(20, 1)).astype(float)
    for moved, scale in ((whole * 2.0**60, 2.0**60), (whole + 1e12, 1.0), (whole + shared, 1.0)):
        found = best_floors(moved, epsilon)
        assert found.floors.tolist() == plain.floors.tolist()
        assert (found.gain, found.gain_bound) == (scale * plain.gain, scale * plain.gain_bound)
    larger = best_floors(1e12 * scores, epsilon)
    assert larger.gain == pytest.approx(1e12 * best_floors(scores, epsilon).gain, rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e12])
def test_a_small_stake_among_large_scores_is_planned_at_once(scale: float) -> None:
    """Scores of up to 1e12 that differ by a few thousandths: without end while seen from one origin, because
    rounding alone was above what the planes should prove."""
    rng = np.random.default_rng(3)
    scores = scale * (rng.random((200, 1)) + 1e-13 * rng.random((200, 6)))
    plan, stake = best_floors(scores, 1), (scores - scores[:, :1]).max(axis=1).mean()
    assert plan.cuts < 100
    assert 0 <= plan.gain_bound - plan.gain <= 2e-6 * stake
    assert plan.gain > 0.1 * stake


# The bound by its definition


def slow_gain_bound(certificate: Certificate, scores: Floats) -> float:
    """The least, over shifts, of E lambda and a program over all floors."""
    odds, ahead = math.exp(certificate.epsilon), scores - scores[:, :1]
    candidates, levels = scores.shape[1], certificate.thresholds(ahead)
    bounds = []
    for more in (-certificate.shift, *(certificate.spread * each for each in SHIFTS)):
        above = ahead - (levels + more)[:, None]
        gains = (odds * np.maximum(above, 0) + np.minimum(above, 0)).mean(axis=0)
        sums = np.array([[1.0] * candidates, [-1.0] * candidates])
        best = linprog(-gains, A_ub=sums, b_ub=[1.0, -1 / odds], bounds=(0, 1 / odds), method="highs")
        assert best.status == 0
        bounds.append(float(levels.mean()) + more - float(best.fun))
    return min(bounds)


def made_up(rng: np.random.Generator, candidates: int, epsilon: float) -> Certificate:
    caps = rng.dirichlet(np.ones(candidates), size=2) * rng.uniform(1, math.exp(epsilon), size=(2, 1))
    return Certificate(epsilon, caps, rng.dirichlet(np.ones(2)), float(rng.normal()), spread=1.0)


@pytest.mark.parametrize("epsilon", [0.05, 0.8, 2, 6])
def test_the_bound_by_its_definition(epsilon: float) -> None:
    rng = np.random.default_rng(1)
    for law in ("uniform", "ties"):
        scores = draws_of(law, 30, 5, 6)
        for certificate in (best_floors(scores, epsilon).certificate, made_up(rng, 5, epsilon)):
            expected = slow_gain_bound(certificate, scores)
            assert certificate.gain_bound(scores) == pytest.approx(expected, abs=1e-6 * np.ptp(scores))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.05, 0.5, 1.2, 3.0]), st.integers(2, 6))
def test_no_mechanism_is_above_the_bound_of_any_thresholds(seed: int, epsilon: float, candidates: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(5, candidates))
    anything, _ = best_mechanism(scores, epsilon)
    assert made_up(rng, candidates, epsilon).upper_bound(scores) >= anything - 1e-8


def test_caps_of_half_the_whole_would_give_a_wrong_bound() -> None:
    """The twin: with thresholds far too low the bound is loose, but not below what a mechanism reaches; it
    would be if a cap could not be more than a half."""
    scores, levels = np.array([[0.0, 1.0], [0.0, -1.0]]), -2.0
    anything, _ = best_mechanism(scores, 3)
    slopes = (scores - levels).mean(axis=0)  # all are above
    far = Certificate(3.0, np.ones((1, 2)), np.ones(1), shift=-3.0, spread=1e-9)
    assert far.gain_bound(scores) >= anything
    assert levels + slopes.sum() >= anything
    assert levels + 0.5 * slopes.sum() < anything - 0.4


# The limit from fresh draws, in doubles


@settings(max_examples=30, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e3), st.integers(2, 600), st.floats(0.05, 8))
def test_the_limit_is_not_rounded_below_what_is_certain(
    public: float, ahead: float, count: int, epsilon: float
) -> None:
    """All draws are alike, so what the second candidate gains is no estimate: the limit may not be below it.

    Without its margin it was, wherever a sum of equal doubles is rounded down: of 0.1, a thousand times, say.
    """
    scores = np.tile([public, public + ahead], (count, 1))
    truth = Fraction(float(scores[0, 1])) - Fraction(float(scores[0, 0]))
    certificate = Certificate(epsilon, np.array([[1.0, 1.0]]), np.ones(1), shift=0.0, spread=max(ahead, 1e-6))
    assert Fraction(certificate.gain_limit(scores)) >= truth
    low, high = float(scores.min()), float(scores.max())
    assert Fraction(certificate.gain_limit(scores, 0.99, (low, high))) >= truth
    assert certificate.gain_limit(scores) <= float(truth) * (1 + 1e-6 * math.exp(epsilon))


def test_a_thousand_tenths_are_rounded_down_and_the_limit_is_not() -> None:
    scores = np.tile([0.0, 0.1], (1000, 1))
    assert scores.mean(axis=0)[1] < 0.1
    certificate = Certificate(1.0, np.array([[1.0, 1.0]]), np.ones(1), shift=0.0, spread=0.1)
    assert 0.1 <= certificate.gain_limit(scores) <= 0.1 * (1 + 1e-9)


def exact_limit(certificate: Certificate, scores: Floats, confidence: float) -> mpmath.mpf:
    """The same limit with 50 digits, from the scores as they are."""
    count, candidates = scores.shape
    levels = certificate.thresholds(scores - scores[:, :1]).tolist()
    miss = (1 - mpmath.mpf(confidence)) / (len(SHIFTS) * (1 + candidates))
    quantile = _exact_quantile(miss, count - 1)
    odds, limits = mpmath.exp(certificate.epsilon), []
    for more in SHIFTS:
        level = [mpmath.mpf(one + certificate.spread * more) for one in levels]
        columns = [level]
        for place in range(candidates):
            above = [mpmath.mpf(x[place]) - x[0] - at for x, at in zip(scores.tolist(), level, strict=True)]
            columns.append([at + (odds * t if t > 0 else t) for at, t in zip(level, above, strict=True)])
        for column in columns:
            mean = mpmath.fsum(column) / count
            spread = mpmath.sqrt(mpmath.fsum((v - mean) ** 2 for v in column) / (count - 1))
            limits.append((more, mean + quantile * spread / mpmath.sqrt(count)))
    return min(max(limit for at, limit in limits if at == more) for more in SHIFTS)


def _exact_quantile(miss: mpmath.mpf, freedom: int) -> mpmath.mpf:
    """Where Student's tail is `miss`: its tail is half an incomplete beta function."""

    def log_tail_off(value: mpmath.mpf) -> mpmath.mpf:
        part = freedom / (freedom + value * value)
        tail = mpmath.betainc(mpmath.mpf(freedom) / 2, 0.5, 0, part, regularized=True) / 2
        return mpmath.log(tail / miss)

    return mpmath.findroot(log_tail_off, mpmath.mpf(float(student.isf(float(miss), freedom))))


@pytest.mark.parametrize("seed", range(6))
def test_the_limit_is_at_least_that_of_exact_arithmetic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    with mpmath.workdps(50):
        scores = rng.choice([1.0, 1e6, 1e-3]) + rng.random((20 + 10 * seed, 3))
        certificate = made_up(rng, 3, (0.05, 1.0, 6.0)[seed % 3])
        exact = exact_limit(certificate, scores, 0.99)
        found = certificate.gain_limit(scores, 0.99)
        assert exact <= found <= exact + 1e-8 * abs(exact)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_the_bounded_limit_counts_on_all_that_terms_can_differ_by(epsilon: float) -> None:
    """Draws that are all alike have no spread: the limit is a mean and 7 width ln(2 / miss) / 3 (n - 1).

    The width that follows is at least what two draws at corners of the range make of any term, at any shift.
    """
    low, high, count = -1.0, 3.0, 50
    corners = np.array(list(product((low, high), repeat=3)))
    rng = np.random.default_rng(4)
    for certificate in (made_up(rng, 3, epsilon), best_floors(corners, epsilon).certificate):
        same = np.tile(corners[3], (count, 1))
        miss = 0.01 / (len(SHIFTS) * 4)
        away = certificate.gain_limit(same, 0.99, (low, high)) - certificate.gain_limit(same, 0.99)
        width = away * 3 * (count - 1) / (7 * math.log(2 / miss))
        ahead = corners - corners[:, :1]
        widest = 0.0
        for more in SHIFTS:
            levels = certificate.thresholds(ahead)[:, None] + certificate.spread * more
            above = ahead - levels
            terms = np.hstack([levels, levels + np.where(above > 0, math.exp(epsilon) * above, above)])
            widest = max(widest, float(np.ptp(terms, axis=0).max()))
        assert widest <= width


@pytest.mark.parametrize("freedom", [1, 2, 5, 30, 1000, 20_000])
def test_quantiles_are_as_good_as_the_margin_says(freedom: int) -> None:
    with mpmath.workdps(40):
        for miss in (1e-2, 1e-4, 1e-6, 1e-9):
            exact = _exact_quantile(mpmath.mpf(miss), freedom)
            assert abs(student.isf(miss, freedom) / exact - 1) <= QUANTILE / 100
