"""Noisy contests as choices: the worst case by enumeration, calibration, and the whole numbers sampled."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from tacit import expect
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax, calibrated_rate, nominal_rate, worst_case_epsilon
from tacit.privacy.choice.scores import Clipped, Scaled, ScoreRule
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tests.privacy.choice.test_top_choice import law_by_words
from tests.support.exact_tests import assert_matches_pmf

Floats = NDArray[np.float64]

RULES: list[ScoreRule] = [
    *(Scaled(a) for a in range(2, 7)),
    Clipped((1.0, 0.9, 0.8, 0.4), 0.25),
    Clipped((5.0, 5.0, 1.0), 0.5),
    Clipped((3.0, 2.9, 2.8, 2.7, 2.6, 0.0), 0.3),
    Clipped((10.0, 9.0), 0.01),
]


def corners(rule: ScoreRule) -> Floats:
    """Every candidate at one end of its range, (2^a, a)."""
    return np.array(list(product(*zip(rule.low.tolist(), rule.high.tolist(), strict=True))))


def inside(rule: ScoreRule, count: int, seed: int) -> Floats:
    """Inputs anywhere: in the box, on its edges, and private scores far outside."""
    draws = np.random.default_rng(seed)
    box = rule.low + draws.random((count, rule.candidates)) * (rule.high - rule.low)
    edge = np.where(draws.random(box.shape) < 0.5, rule.low, box)
    return np.concatenate([box, edge, 100 * draws.normal(size=box.shape)])


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("rate", [0.3, 2.5, 8.0])
def test_no_pair_of_inputs_tells_more_than_the_worst_case(noise: Noise, rule: ScoreRule, rate: float) -> None:
    """All 2^a x 2^a pairs of corners at once: the largest ratio is largest over smallest, output by output."""
    law = noise.log_pmf(rate * corners(rule))
    claimed = worst_case_epsilon(noise, rule, rate)
    spread = law.max(axis=0) - law.min(axis=0)
    assert spread.max() == pytest.approx(claimed, rel=1e-12, abs=0)
    within = noise.log_pmf(rate * rule(inside(rule, 300, seed=rule.candidates)))
    assert np.all(within <= law.max(axis=0) + 1e-12)
    assert np.all(within >= law.min(axis=0) - 1e-12)


def test_the_worst_pair_of_scaled_scores_is_reached_by_real_inputs() -> None:
    """Scaled vectors have a 0 and a 1, or are all 0: not all corners, but the worst two are among them."""
    choice = NoisyMax.nominal("gumbel", Scaled(4), 5)
    best, worst = choice.pmf([[9, 1, 1, 1], [1, 9, 9, 9]])[:, 0]
    assert math.log(best / worst) == pytest.approx(choice.epsilon, abs=1e-12)


SPENT_AT_NOMINAL_5 = {
    2: (2.50, 3.15, 2.29),
    4: (3.41, 3.76, 3.61),
    15: (4.38, 4.68, 4.55),
    100: (4.88, 5.00, 5.00),
}
SPENT_AT_TWICE_THE_RATE = {2: (4.43, 5.69), 4: (6.08, 6.38), 15: (7.55, 7.66), 100: (9.08, 9.29)}


@pytest.mark.parametrize("candidates", SPENT_AT_NOMINAL_5)
def test_what_a_nominal_epsilon_of_5_spends(candidates: int) -> None:
    rule = Scaled(candidates)
    spent = [NoisyMax.nominal(noise, rule, 5).epsilon for noise in Noise]
    assert spent == pytest.approx(SPENT_AT_NOMINAL_5[candidates], abs=0.0051)
    equal = Clipped((7.0,) * candidates, 0.125)
    assert [NoisyMax.nominal(noise, equal, 5).epsilon for noise in Noise] == pytest.approx(
        spent, rel=1e-9, abs=0
    )
    twice = [worst_case_epsilon(noise, rule, 5.0) for noise in Noise]
    assert (min(twice), max(twice)) == pytest.approx(SPENT_AT_TWICE_THE_RATE[candidates], abs=0.0051)


def test_calibration_gains_signal_with_few_candidates() -> None:
    gains = {noise: calibrated_rate(noise, Scaled(4), 5) / nominal_rate(Scaled(4), 5) for noise in Noise}
    assert gains[Noise.EXPONENTIAL] == pytest.approx(1.46, abs=0.005)
    assert gains[Noise.GUMBEL] == pytest.approx(1.58, abs=0.005)
    assert calibrated_rate(Noise.GUMBEL, Scaled(2), 5) == pytest.approx(
        5, rel=1e-12, abs=0
    )  # then ln odds = rate


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("epsilon", [0.01, 1, 5, 20])
@pytest.mark.parametrize("rule", [*RULES, Scaled(100)], ids=str)
def test_calibration_spends_what_was_asked_from_below(noise: Noise, epsilon: float, rule: ScoreRule) -> None:
    rate = calibrated_rate(noise, rule, epsilon)
    assert worst_case_epsilon(noise, rule, rate) <= epsilon
    assert worst_case_epsilon(noise, rule, rate) == pytest.approx(epsilon, rel=1e-11, abs=0)
    assert rate >= nominal_rate(rule, epsilon) * (1 - 1e-12)
    if math.exp(-epsilon) > 1e-6:  # further out, one word more or less shows
        assert NoisyMax.calibrated(noise, rule, epsilon).epsilon <= epsilon


class Normal:
    """The twin, a noise that is none of ours: its tail falls ever faster, so its hazard rate is above 1."""

    def log_pmf(self, signals: Floats) -> Floats:
        own_noise = np.linspace(-15.0, 25.0, 2001)[:, None]  # smooth on all of it: the trapezoid rule is exact
        law = np.empty_like(signals)
        for own in range(signals.shape[1]):
            ahead = signals[:, own, None] - np.delete(signals, own, axis=1)  # (n, a - 1)
            others_below = log_ndtr(own_noise[:, :, None] + ahead).sum(axis=2)  # (nodes, n)
            law[:, own] = logsumexp(others_below - own_noise**2 / 2, axis=0)
        return law + math.log(0.02 / math.sqrt(2 * math.pi))


NORMAL: Any = Normal()


@pytest.mark.parametrize("epsilon", [0.1, 1, 5, 20, 100])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_nominal_rate_is_enough_for_every_noise_of_ours(rule: ScoreRule, epsilon: float) -> None:
    for noise in Noise:
        assert worst_case_epsilon(noise, rule, nominal_rate(rule, epsilon)) <= epsilon * (1 + 1e-9)


def test_the_nominal_rate_is_not_enough_for_a_normal_noise_and_calibration_finds_what_is() -> None:
    """Also where the answer lies below the nominal rate, and far above it."""
    rule = Scaled(4)
    assert np.exp(NORMAL.log_pmf(np.array([[0.0, -1.0, -9.0, 2.0]]))).sum() == pytest.approx(1, rel=1e-12)
    assert worst_case_epsilon(NORMAL, rule, nominal_rate(rule, 20)) == pytest.approx(43.9, abs=0.1)
    for epsilon in (0.5, 20.0):
        rate = calibrated_rate(NORMAL, rule, epsilon)
        spent = worst_case_epsilon(NORMAL, rule, rate)
        assert spent <= epsilon
        assert spent == pytest.approx(epsilon, rel=1e-9)
    assert rate < 0.7 * nominal_rate(rule, 20)


@pytest.mark.parametrize("noise", Noise)
def test_calibration_works_where_probabilities_underflow(noise: Noise) -> None:
    """A candidate far behind has a chance of e^-5000: its ratio still counts in the real law."""
    rule = Clipped((100.0, 99.9, 0.0), 0.05)
    rate = calibrated_rate(noise, rule, 5)
    assert worst_case_epsilon(noise, rule, rate) == pytest.approx(5, rel=1e-9, abs=0)
    assert noise.pmf(rate * (rule.low - 100)[None, :])[0, 2] == 0
    choice = NoisyMax.calibrated(noise, rule, 5)
    assert choice.weights([100.0, 99.9, 0.0])[2] == 1
    assert choice.epsilon <= 5


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("rule", [*RULES, Scaled(40)], ids=str)
@pytest.mark.parametrize("calibrated", [False, True])
def test_the_whole_numbers_keep_the_promise(noise: Noise, rule: ScoreRule, calibrated: bool) -> None:
    epsilon = 3
    make = NoisyMax.calibrated if calibrated else NoisyMax.nominal
    choice = make(noise, rule, epsilon)
    inputs = inside(rule, 12, seed=1)
    extremes = np.where(np.eye(rule.candidates, dtype=bool), rule.high, rule.low)
    inputs = np.concatenate([inputs, extremes, rule.low + rule.high - extremes])
    rows = [choice.weights(scores) for scores in inputs]
    assert all(sum(row) == WHOLE for row in rows)
    ratios = [Fraction(max(column), min(column)) for column in zip(*rows, strict=True)]
    assert max(ratios) <= exp_rounded_down(Fraction(epsilon))
    # The claim is reached, to the precision of doubles: it is the worst case and not only a bound.
    assert math.log(max(ratios)) <= choice.epsilon <= math.log(max(ratios)) + 1e-11
    if min(choice.bounds.floors) > 2**40:  # else cutting to whole words makes it a little less
        assert choice.epsilon == pytest.approx(worst_case_epsilon(noise, rule, choice.rate), abs=1e-11)
    far = np.abs(np.array(rows, dtype=object) / WHOLE - choice.pmf(inputs)).max()
    assert far <= 2.0**-44 + rule.candidates * 2.0**-63


@settings(max_examples=60)
@given(
    st.sampled_from(list(Noise)),
    st.lists(st.floats(0, 1e3), min_size=2, max_size=8),
    st.floats(0.05, 10),
    st.floats(1e-3, 60),
    st.data(),
)
def test_any_contest_keeps_its_limit(
    noise: Noise, public: list[float], bound: float, epsilon: float, data: st.DataObject
) -> None:
    """Public scores wide apart, tiny and huge epsilons, private scores anywhere."""
    choice = NoisyMax.nominal(noise, Clipped(tuple(public), bound), epsilon)
    row = st.lists(st.floats(-1e5, 1e5), min_size=len(public), max_size=len(public))
    odds = exp_rounded_down(expect.exact("epsilon", epsilon))
    for scores in data.draw(st.lists(row, min_size=2, max_size=4)):
        weights = choice.weights(scores)
        assert sum(weights) == WHOLE
        for low, weight, cap in zip(choice.bounds.floors, weights, choice.bounds.caps, strict=True):
            assert 1 <= low <= weight <= cap <= odds * low
    assert choice.epsilon <= math.nextafter(epsilon, math.inf)


@pytest.mark.parametrize("noise", Noise)
def test_signals_may_be_as_far_apart_as_stated(noise: Noise) -> None:
    """Doubles then lose six digits, the promise none; one step further is refused."""
    rule = Clipped((3.9e5, 3.9e5 - 1 / 3, 0.1), 0.5)
    for choice in (NoisyMax.nominal(noise, rule, 5), NoisyMax.calibrated(noise, rule, 5)):
        rows = [choice.weights(scores) for scores in inside(rule, 20, seed=2)]
        ratios = [Fraction(max(column), min(column)) for column in zip(*rows, strict=True)]
        assert all(sum(row) == WHOLE for row in rows)
        assert max(ratios) <= exp_rounded_down(Fraction(5))
    with pytest.raises(BadInput, match="times the noise of each other"):
        NoisyMax.nominal(noise, Clipped((4.1e5, 0.1), 0.5), 5)


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("rule", [Scaled(2), Scaled(5), Clipped((1.0, 0.9, 0.8, 0.4), 0.25)], ids=str)
def test_the_sampler_is_its_weights_by_enumeration(noise: Noise, rule: ScoreRule) -> None:
    choice = NoisyMax.calibrated(noise, rule, 2)
    for scores in inside(rule, 4, seed=3):
        assert law_by_words(choice, scores) == list(choice.weights(scores))


@pytest.mark.parametrize("noise", Noise)
def test_draws_match_the_law_and_a_bolder_twin_does_not(noise: Noise) -> None:
    scores = np.tile([0.3, 0.9, 0.2, 0.5], (40_000, 1))
    choice, twin = (NoisyMax.nominal(noise, Scaled(4), epsilon) for epsilon in (3, 3.4))
    pmf = dict(enumerate(choice.pmf(scores[0]).tolist()))
    assert_matches_pmf(Counter(choice.choose(scores, Simulation(1).words).tolist()), pmf)
    with pytest.raises(AssertionError, match="p_value"):
        assert_matches_pmf(Counter(twin.choose(scores, Simulation(1).words).tolist()), pmf)


def test_requests_of_a_batch_do_not_mix() -> None:
    choice = NoisyMax.nominal("laplace", Scaled(3), 4)
    scores = np.random.default_rng(0).normal(size=(30, 3))
    words = Simulation(4).words(30)
    together = choice.choose(scores, lambda _: words)
    alone = [int(choice.choose(scores[i : i + 1], lambda _, i=i: words[i : i + 1])[0]) for i in range(30)]  # type: ignore[misc]
    assert together.tolist() == alone


def test_a_single_candidate_tells_nothing() -> None:
    choice = NoisyMax.calibrated("gumbel", Scaled(1), 5)
    assert choice.epsilon == 0
    assert choice.weights([3.0]) == (WHOLE,)
    assert choice.choose([[3.0]], lambda _: pytest.fail("no word is needed")).tolist() == [0]
    assert choice.pmf([[3.0], [4.0]]).tolist() == [[1], [1]]


@pytest.mark.parametrize("make", [NoisyMax.nominal, NoisyMax.calibrated])
@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "x", None])
def test_bad_epsilons_are_refused(make: type[NoisyMax], epsilon: float) -> None:
    with pytest.raises(BadInput, match="expected epsilon"):
        make(Noise.GUMBEL, Scaled(3), epsilon)


def test_bad_contests_are_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match="expected Noise to be one of"):
        NoisyMax.nominal("normal", Scaled(3), 1)
    with pytest.raises(BadInput, match="expected rate > 0"):
        NoisyMax(Noise.GUMBEL, Scaled(3), 0.0)
    with pytest.raises(BadInput, match=r"expected a rate that spends at most 5, got one of 6\.08"):
        NoisyMax(Noise.GUMBEL, Scaled(4), 5.0, Fraction(5))  # the rate epsilon / Delta
    with pytest.raises(BadInput, match=r"expected scores within 1e[+]06 times the noise"):
        NoisyMax.nominal("gumbel", Clipped((1e9, 0.0), 1.0), 5)
    with pytest.raises(BadInput, match="expected a larger epsilon"):
        _ = NoisyMax.nominal("gumbel", Scaled(4), "1e-30").epsilon


@pytest.mark.parametrize("scores", [[[1.0, math.nan]], [[1.0, 2.0, 3.0]], [1.0, 2.0], [[]]], ids=str)
def test_bad_scores_are_refused(scores: list[list[float]]) -> None:
    with pytest.raises(BadInput, match=r"expected (finite scores|scores of shape)"):
        NoisyMax.nominal("gumbel", Scaled(2), 1).choose(scores, Simulation(1).words)
