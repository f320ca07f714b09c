"""Rényi divergences of a shuffled batch against the clones' pair, term by term, and enumerated batches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom

from tacit.privacy.shuffling.renyi import ORDERS, _binomial, local_divergences, shuffled_divergences

Floats = NDArray[np.float64]


def clone_divergences(epsilon: float, cohort: int) -> Floats:
    """The pair itself: every number of coins, every number of them that fell on the victim's side."""
    odds = math.exp(epsilon)
    moments = np.full(len(ORDERS), -np.inf)
    for coins in range(cohort):
        one_more = np.r_[0.0, binom.pmf(np.arange(coins + 1), coins, 0.5)]
        first = (one_more * odds + one_more[::-1]) / (odds + 1)
        second = first[::-1]
        seen = first > 0
        logs = np.log(second[seen]) + ORDERS[:, None] * np.log(first[seen] / second[seen])
        weight = binom.logpmf(coins, cohort - 1, 2 / (odds + 1))
        moments = np.logaddexp(moments, weight + logsumexp(logs, axis=1))
    found: Floats = moments / (ORDERS - 1)
    return found


def enumerated_divergences(epsilon: float, cohort: int) -> Floats:
    """Of binary randomized response, the worst over the others' answers and both directions."""
    truth = 1 / (1 + math.exp(-epsilon))
    row = {0: [truth, 1 - truth], 1: [1 - truth, truth]}
    worst = np.zeros(len(ORDERS))
    for others in itertools.combinations_with_replacement((0, 1), cohort - 1):
        law = np.array([1.0])
        for answer in others:
            law = np.convolve(law, row[answer])
        pair = [np.convolve(law, row[victim]) for victim in (0, 1)]
        for first, second in itertools.permutations(pair):
            logs = np.log(second) + ORDERS[:, None] * np.log(first / second)
            worst = np.maximum(worst, logsumexp(logs, axis=1) / (ORDERS - 1))
    return worst


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("cohort", [1, 2, 3, 10, 60, 300])
def test_never_below_the_pair_and_close_to_it(epsilon: float, cohort: int) -> None:
    found, exact = shuffled_divergences(epsilon, cohort), clone_divergences(epsilon, cohort)
    exact = np.minimum(exact, local_divergences(epsilon))
    assert (found >= exact).all()
    used = epsilon * ORDERS < 500  # beyond, what is charged outside of the windows shows
    assert (found[used] - 2e-8 / (ORDERS - 1)[used] <= exact[used] * 1.02).all()


def test_close_to_the_pair_where_counts_and_signs_are_read_in_blocks() -> None:
    """Some 1,600 coins: more than there are cells, and a window that leaves some out."""
    found, exact = shuffled_divergences(0.2, 1_800), clone_divergences(0.2, 1_800)
    assert (found >= exact).all()
    assert (found - 2e-8 / (ORDERS - 1) <= exact * 1.01).all()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("cohort", [2, 3, 8, 30])
def test_never_below_an_enumerated_batch(epsilon: float, cohort: int) -> None:
    assert (shuffled_divergences(epsilon, cohort) >= enumerated_divergences(epsilon, cohort)).all()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("cohort", [2, 3, 8, 30])
def test_the_same_check_catches_weaker_claims(epsilon: float, cohort: int) -> None:
    exact = enumerated_divergences(epsilon, cohort)
    assert (shuffled_divergences(epsilon, 2 * cohort) < exact).any()
    assert (shuffled_divergences(epsilon * 0.8, cohort) < exact).any()


@pytest.mark.parametrize("cohort", [2, 100, 3_000, 2**20])
def test_falls_with_the_cohort_and_rises_with_epsilon(cohort: int) -> None:
    for epsilon in (0.5, 3.0):
        here = shuffled_divergences(epsilon, cohort)
        assert (shuffled_divergences(epsilon, cohort + -(-cohort // 15)) <= here).all()
        assert (shuffled_divergences(epsilon * 1.002, cohort) >= here).all()
        assert (here <= local_divergences(epsilon)).all()


@pytest.mark.parametrize("epsilon", [1e-6, 50.0, 800.0, 1e5])
def test_any_epsilon_is_answered(epsilon: float) -> None:
    for cohort in (2, 1_000):
        found = shuffled_divergences(epsilon, cohort)
        assert np.isfinite(found).all()
        assert (found >= 0).all()


@pytest.mark.parametrize(("count", "rate"), [(1, 0.5), (7, 0.2), (2_000, 0.5), (300_000, 0.095)])
def test_binomial_probabilities_are_those_of_a_second_library(count: int, rate: float) -> None:
    mean, reach = count * rate, 30 * math.sqrt(count)
    low, high = max(0, int(mean - reach)), min(count, int(mean + reach))
    found = _binomial(count, low, high, math.log(rate) - math.log1p(-rate))
    exact = binom.pmf(np.arange(low, high + 1), count, rate)
    seen = exact > 1e-280
    assert np.abs(found[seen] / exact[seen] - 1).max() < 2e-9
    assert (found[~seen] * (1 + 2e-9) >= exact[~seen]).all()
