"""The optimal choice: against a program over all mechanisms, its proof of optimality, and the known figures."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.privacy.choice.choice import Stakes, epsilon_min, expected_score
from tacit.privacy.choice.floors import Floors
from tacit.privacy.choice.optimal_floors import Certificate, best_floors
from tacit.privacy.choice.top_choice import best_exchangeable_plan, best_sums, best_top_plan, ordered_means
from tests.support.local_programs import all_rankings, best_mechanism

Floats = NDArray[np.float64]

PROVED = 2e-6  # of the gain at stake: where the cutting planes stop, twice


def uneven(draws: int, candidates: int, seed: int) -> Floats:
    """Public scores that fall, and private spreads that grow, so that no simple mechanism is the best."""
    spread = np.linspace(0.2, 1.0, candidates)
    noise = np.random.default_rng(seed).normal(size=(draws, candidates))
    return np.linspace(1, 0.6, candidates) * np.exp(spread * noise - spread**2 / 2)


# No mechanism does better


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("candidates", [2, 3, 4])
def test_no_mechanism_on_all_rankings_beats_the_floors(candidates: int, epsilon: float) -> None:
    """Every ranking is an input, with scores of its own that make it."""
    ranks = all_rankings(candidates).astype(int)
    rng = np.random.default_rng(candidates)
    scores = np.take_along_axis(np.sort(rng.exponential(size=ranks.shape), axis=1), ranks, axis=1)
    anything, _ = best_mechanism(scores, epsilon)
    plan = best_floors(scores, epsilon)
    at_stake = np.ptp(scores, axis=1).mean()
    assert plan.value == pytest.approx(anything, abs=PROVED * at_stake)
    assert plan.upper_bound >= anything - 1e-9
    assert expected_score(plan.mechanism(), scores) == pytest.approx(anything, abs=PROVED * at_stake)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("candidates", [2, 3, 4])
def test_no_mechanism_beats_top_response_where_candidates_are_alike(candidates: int, epsilon: float) -> None:
    values = np.sort(np.random.default_rng(7).lognormal(size=candidates))[::-1]
    scores = values[all_rankings(candidates).astype(int)]
    plan = best_exchangeable_plan(values, epsilon)
    anything, _ = best_mechanism(scores, epsilon)
    assert plan.value == pytest.approx(anything, abs=1e-8)
    assert expected_score(plan.mechanism(epsilon), scores) == pytest.approx(anything, abs=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_small_problems_against_a_program_over_all_mechanisms(seed: int) -> None:
    candidates, epsilon = 2 + seed % 4, (0.3, 1.0, 2.5)[seed % 3]
    scores = uneven(14, candidates, seed)
    anything, rows = best_mechanism(scores, epsilon)
    plan = best_floors(scores, epsilon)
    assert plan.value <= anything + 1e-9
    assert plan.value == pytest.approx(anything, abs=PROVED)
    # The floors of the program's own mechanism give back its value: nothing is lost by passing to floors.
    least = np.maximum(rows.min(axis=0), 0.0)
    assert expected_score(Floors.nearest(epsilon, least), scores) == pytest.approx(anything, abs=1e-7)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 8))
def test_complete_class(seed: int, candidates: int, inputs: int) -> None:
    """Whatever a mechanism does, pouring from its own floors does at least as well for every input, at its
    epsilon."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(candidates, rng.choice([0.5, 3.0])), size=inputs) + 1e-3
    rows /= rows.sum(axis=1, keepdims=True)
    epsilon = math.log((rows.max(axis=0) / rows.min(axis=0)).max()) + 1e-12
    scores = rng.normal(size=(inputs, candidates))
    floors = Floors.nearest(epsilon, rows.min(axis=0))
    assert floors.epsilon <= epsilon + 1e-15
    better = (floors.pmf(scores) * scores).sum(axis=1) - (rows * scores).sum(axis=1)
    assert better.min() >= -1e-12


def test_fifteen_candidates_converge() -> None:
    scores = uneven(500, 15, seed=1)
    plan = best_floors(scores, 5)
    stakes = Stakes.of(scores)
    assert stakes.share(plan.upper_bound) - stakes.share(plan.value) <= PROVED
    assert plan.cuts < 300
    assert best_top_plan(scores, 5).value < plan.value  # uneven spreads: here the simple plan is not the best
    assert plan.mechanism().epsilon <= 5
    lost = plan.value - expected_score(plan.mechanism(32), scores)
    assert lost <= plan.rounding_loss(32) * np.ptp(scores, axis=1).mean() <= 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1, 5])
def test_fifteen_candidates_and_two_thousand_draws_converge(epsilon: int) -> None:
    for scores in (uneven(2000, 15, seed=2), np.random.default_rng(0).uniform(size=(2000, 15))):
        plan, stakes = best_floors(scores, epsilon), Stakes.of(scores)
        assert stakes.share(plan.upper_bound) - stakes.share(plan.value) <= PROVED


# The proof


def slow_bound(certificate: Certificate, scores: Floats) -> float:
    """The bound by its definition, one draw at a time."""
    odds = math.exp(certificate.epsilon)
    thresholds = certificate.thresholds(scores).tolist()
    gains = []
    for candidate in scores.T.tolist():
        above = [x - at for x, at in zip(candidate, thresholds, strict=True)]
        gains.append(math.fsum(odds * max(t, 0) - max(-t, 0) for t in above) / len(scores))
    return math.fsum(thresholds) / len(scores) + max(0.0, *gains)


@pytest.mark.parametrize("epsilon", [0.3, 1, 4])
def test_the_certificate_by_its_definition(epsilon: float) -> None:
    scores = uneven(300, 6, seed=3)
    plan = best_floors(scores, epsilon)
    assert plan.certificate.upper_bound(scores) == pytest.approx(slow_bound(plan.certificate, scores), rel=1e-9)
    assert plan.value - 1e-9 <= plan.upper_bound <= plan.value + PROVED


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_any_thresholds_bound_every_mechanism(seed: int) -> None:
    """The bound may be loose, but whatever the thresholds are no program over all mechanisms gets above it."""
    rng = np.random.default_rng(seed)
    scores, epsilon = rng.normal(size=(6, 3)), float(rng.uniform(0.1, 3))
    caps = rng.dirichlet(np.ones(3), size=2) * rng.uniform(1, math.exp(epsilon), size=(2, 1))
    made_up = Certificate(epsilon, caps, rng.dirichlet(np.ones(2)), float(rng.normal()), spread=1.0)
    anything, _ = best_mechanism(scores, epsilon)
    assert made_up.upper_bound(scores) >= anything - 1e-9


@pytest.mark.parametrize("origin", [0.0, 1e6, -1e6])
def test_in_doubles_too_no_value_is_above_its_bound(origin: float) -> None:
    """Without the margin some of these were, by an ulp; seen from zero, those near a million by 1e-10."""
    for seed in range(30):
        scores = origin + np.random.default_rng(seed).random((10, 3))
        plan = best_floors(scores, 1)
        assert plan.value <= plan.upper_bound <= plan.value + PROVED


def test_a_bound_that_forgot_the_gains_would_be_wrong() -> None:
    """The twin: E lambda alone, with thresholds that are a little too low, is below what floors reach."""
    scores = uneven(300, 6, seed=3)
    plan = best_floors(scores, 1)
    too_low = plan.certificate.thresholds(scores) - 0.01
    assert too_low.mean() < plan.value


def test_on_fresh_draws_the_limit_covers_the_truth() -> None:
    """Uniform scores, where the true optimum is known. The limit fails with probability at most .001 (Student's
    approximation is good here: thousands of bounded values), and the seed is fixed."""
    rng = np.random.default_rng(11)
    certificate = best_floors(rng.uniform(size=(1000, 6)), 1, tolerance=1e-4).certificate
    truth = best_exchangeable_plan(np.arange(6, 0, -1) / 7, 1).value - 0.5
    fresh = rng.uniform(size=(20_000, 6))
    limit = certificate.gain_limit(fresh, confidence=0.999)
    safe = certificate.gain_limit(fresh, confidence=0.999, score_range=(0, 1))
    assert truth <= limit <= truth + 0.04
    assert limit < safe <= truth + 0.08


# Candidates that are alike, and the known figures


def test_alike_candidates_by_planes_and_in_closed_form() -> None:
    """Draws in every order: exactly exchangeable, so both must agree."""
    some = np.random.default_rng(5).lognormal(size=(8, 4))
    scores = np.vstack([some[:, list(order)] for order in permutations(range(4))])
    for epsilon in (0.5, 1.5, 4):
        plan = best_exchangeable_plan(ordered_means(scores), epsilon)
        assert best_floors(scores, epsilon).value == pytest.approx(plan.value, abs=PROVED)
        assert best_top_plan(scores, epsilon).value == pytest.approx(plan.value, abs=1e-12)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0.01, 10))
def test_including_the_next_while_above_the_value_is_the_best_count(
    scores: list[float], epsilon: float
) -> None:
    means = np.sort(scores)[::-1]
    more, size = math.exp(epsilon) - 1, len(means)
    values = [(means.sum() + more * means[:m].sum()) / (size + more * m) for m in range(1, size + 1)]
    assert best_exchangeable_plan(means, epsilon).value == pytest.approx(max(values), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("candidates", "epsilon", "share"), [(15, 1, 0.262), (100, 5, 0.857)])
def test_shares_of_the_gain_for_uniform_scores(candidates: int, epsilon: float, share: float) -> None:
    means = np.arange(candidates, 0, -1) / (candidates + 1)  # exact
    value = best_exchangeable_plan(means, epsilon).value
    assert Stakes(0.5, float(means[0])).share(value) == pytest.approx(share, abs=5e-4)  # as it was rounded


@pytest.mark.parametrize("epsilon", [0.5, 1, 3, 5])
def test_many_uniform_candidates_tend_to_tanh(epsilon: float) -> None:
    candidates = 20_000
    means = np.arange(candidates, 0, -1) / (candidates + 1)
    plan = best_exchangeable_plan(means, epsilon)
    assert Stakes(0.5, float(means[0])).share(plan.value) == pytest.approx(math.tanh(epsilon / 4), abs=2e-4)
    assert plan.top / candidates == pytest.approx(1 / (1 + math.exp(epsilon / 2)), abs=2e-4)


def test_share_of_the_gain_for_lognormal_scores() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(10):
        draws = rng.lognormal(size=(10_000, 15))
        means = ordered_means(draws)
        shares.append(
            Stakes(float(means.mean()), float(means[0])).share(best_exchangeable_plan(means, 1).value)
        )
    error = np.std(shares, ddof=1) / math.sqrt(len(shares))
    assert abs(np.mean(shares) - 0.141) <= 5 * error + 5e-4  # five standard errors, and the figure's rounding
    assert error < 1e-3


def request_gains(requests: int, draws: int, epsilon: float, seed: int) -> Floats:
    """Gains of the planned trunc and of greedy over the public best, (requests, 2), measured on other draws.

    Public scores are lognormal (0, 1), a new set for each request; private ones are public × lognormal (.3) of
    mean one. The tail is heavy: over a few dozen requests the share moves by hundredths.
    """
    rng = np.random.default_rng(seed)
    gains = np.empty((requests, 2))
    for request in range(requests):
        public = np.sort(rng.lognormal(size=15))[::-1]
        plan_on, measure_on = public * np.exp(0.3 * rng.normal(size=(2, draws, 15)) - 0.045)
        plan, stakes = best_top_plan(plan_on, epsilon), Stakes.of(measure_on)
        value = expected_score(plan.mechanism(epsilon), measure_on)
        gains[request] = value - stakes.public_best, stakes.private_best - stakes.public_best
    return gains


def ratio_and_error(gains: Floats) -> tuple[float, float]:
    """The ratio of the sums, and its standard error over requests by the jackknife."""
    total, count = gains.sum(axis=0), len(gains)
    left_out = (total - gains)[:, 0] / (total - gains)[:, 1]
    return total[0] / total[1], math.sqrt((count - 1) * float(np.var(left_out)))


def test_share_of_the_gain_with_public_scores() -> None:
    share, error = ratio_and_error(request_gains(60, 300, 5, seed=4))
    assert abs(share - 0.90) <= 4 * error
    assert error < 0.03


@pytest.mark.slow
def test_share_of_the_gain_with_public_scores_and_many_requests() -> None:
    share, error = ratio_and_error(request_gains(1500, 1000, 5, seed=4))
    assert abs(share - 0.90) <= 4 * error
    assert error < 0.006


def test_with_like_spreads_the_simple_plan_is_within_a_few_thousandths_of_the_optimum() -> None:
    rng = np.random.default_rng(8)
    public = np.sort(rng.lognormal(sigma=0.5, size=10))[::-1]
    scores = public * np.exp(0.3 * rng.normal(size=(600, 10)) - 0.045)
    stakes, plan = Stakes.of(scores), best_top_plan(scores, 4)
    bound = best_floors(scores, 4).upper_bound
    assert stakes.share(bound) - 0.005 <= stakes.share(plan.value) <= stakes.share(bound)


# What to plan


def test_plans_by_brute_force() -> None:
    scores = uneven(40, 5, seed=9)
    sorted_means = [np.sort(scores[:, :k], axis=1)[:, ::-1].mean(axis=0) for k in range(1, 6)]
    sums = best_sums(np.stack([scores.T, 2 * scores.T], axis=1))  # of two requests
    for k, means in enumerate(sorted_means, start=1):
        np.testing.assert_allclose(sums[0, k - 1, :k], np.cumsum(means), rtol=1e-12)
        np.testing.assert_array_equal(sums[1], 2 * sums[0])
    for epsilon in (0.2, 1, 5):
        odds, values = math.exp(epsilon), {}
        for k, means in enumerate(sorted_means, start=1):
            for m in range(1, k + 1):
                values[k, m] = (means.sum() + (odds - 1) * means[:m].sum()) / (k + (odds - 1) * m)
        plan = best_top_plan(scores, epsilon)
        assert (plan.kept, plan.top) == max(values, key=lambda at: values[at])
        assert plan.value == pytest.approx(expected_score(plan.mechanism(epsilon), scores), rel=1e-12)


def test_below_epsilon_min_nothing_is_won_and_above_it_something_is() -> None:
    for seed in range(4):
        scores = uneven(60, 4, seed) * np.array([1.6, 1, 1, 1])
        least = epsilon_min(scores)
        assert 0 < least < 10
        below, above = best_floors(scores, 0.98 * least), best_floors(scores, 1.02 * least)
        public = float(scores[:, 0].mean())
        assert below.upper_bound == pytest.approx(public, abs=1e-9)
        assert above.value > public + 1e-9
        assert best_mechanism(scores, 0.98 * least)[0] == pytest.approx(public, abs=1e-8)
        assert not best_top_plan(scores, 0.98 * least).personal


def test_a_prior_that_overstates_the_spread_can_lose() -> None:
    """And one that understates it did not, in any of these requests."""
    rng = np.random.default_rng(12)
    gains: dict[float, list[float]] = {0.1: [], 0.9: []}
    for _ in range(30):
        public, noise = np.sort(rng.lognormal(sigma=0.5, size=8))[::-1], rng.normal(size=(2, 400, 8))
        truth = public * np.exp(0.3 * noise[0] - 0.045)
        for spread, found in gains.items():
            plan = best_top_plan(public * np.exp(spread * noise[1] - spread**2 / 2), 2)
            found.append(expected_score(plan.mechanism(2), truth) - float(truth[:, 0].mean()))
    assert sum(gain < 0 for gain in gains[0.9]) > 10
    assert min(gains[0.1]) > -1e-12


def test_epsilon_min_at_its_ends() -> None:
    assert epsilon_min([[2.0, 1.0], [3.0, 1.0]]) == math.inf  # never behind: nothing to win
    assert epsilon_min([[1.0], [2.0]]) == math.inf
    assert epsilon_min([[1.0, 2.0], [1.0, 2.0]]) == 0  # the public order is wrong: another public choice wins
    assert epsilon_min([[3.0, 0.0], [0.0, 1.0]]) == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: best_floors([[1.0, math.nan]], 1), "finite draws"),
        (lambda: best_floors([1.0, 2.0], 1), r"\(draws, candidates\)"),
        (lambda: best_floors(np.zeros((0, 3)), 1), r"\(draws, candidates\)"),
        (lambda: best_floors([["a", "b"]], 1), "numbers"),
        (lambda: best_floors([[1.0, 2.0]], 0), "epsilon > 0"),
        (lambda: best_floors([[1.0, 2.0]], 51), "epsilon <= 50"),
        (lambda: best_floors([[1.0, 2.0]], 1, tolerance=0), "tolerance"),
        (lambda: best_floors([[1.0, 2.0]], 1, most_cuts=0), "most_cuts"),
        (lambda: best_top_plan([[1.0, 2.0]], math.inf), "finite"),
        (lambda: best_exchangeable_plan([1.0, 2.0], 1), "largest down"),
        (lambda: epsilon_min([[math.inf, 1.0]]), "finite draws"),
        (lambda: best_floors([[1.0, 2.0]], 1).certificate.upper_bound([[1.0]]), "of 2 candidates"),
        (lambda: best_floors([[1.0, 2.0]], 1).certificate.gain_limit([[1.0, 2.0]]), "2 draws"),
        (lambda: best_floors([[1.0, 2.0]] * 2, 1).certificate.gain_limit([[1.0, 2.0]] * 2, 1), "confidence"),
        (
            lambda: best_floors([[1.0, 2.0]] * 2, 1).certificate.gain_limit([[1.0, 2.0]] * 2, 0.9, (0, 1)),
            "within score_range",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(make: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_degenerate_priors() -> None:
    for scores in ([[1.0]], [[2.0, 2.0], [2.0, 2.0]], [[1.0, 2.0]], [[3.0, 1.0]]):
        plan = best_floors(scores, 1)
        assert plan.value == pytest.approx(np.max(scores), abs=PROVED)
        assert plan.upper_bound == pytest.approx(plan.value, abs=PROVED)
        assert plan.mechanism().epsilon <= 1
