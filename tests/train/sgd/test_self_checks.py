"""Running tallies: exact tails, false alarms as rare as stated, and what is caught from how many draws on."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import mpmath
import numpy as np
import pytest
from scipy.special import gammainc, gammaincc
from scipy.stats import binom, binomtest, chi2

from tacit.entropy import Simulation
from tacit.errors import SelfCheckFailed
from tacit.train.sgd import self_checks
from tacit.train.sgd.draws import poisson_sample
from tacit.train.sgd.monitor import SamplingMonitor
from tacit.train.sgd.self_checks import (
    FALSE_ALARM,
    FIRST_DRAWS,
    MORE_DRAWS,
    TESTS,
    CountTally,
    LikenessTally,
    SquareTally,
    binomial_tails,
)
from tests.support.exact_tests import ALPHA


@pytest.mark.parametrize("chance", [Fraction(1, 7), Fraction(1, 2), Fraction(19, 20), Fraction(1)])
def test_binomial_tails_are_sums(chance: Fraction) -> None:
    trials = 30
    pmf = [comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(trials + 1)]
    for hits in range(trials + 1):
        low, high = binomial_tails(hits, trials, float(chance))
        assert low == pytest.approx(float(sum(pmf[: hits + 1])), rel=1e-10)
        assert high == pytest.approx(float(sum(pmf[hits:])), rel=1e-10)


def test_binomial_tails_of_long_runs() -> None:
    trials, chance = 10**10, 1e-4
    for hits in (993_000, 1_000_000, 1_007_000):
        low, high = binomial_tails(hits, trials, chance)
        assert low == pytest.approx(float(binom.cdf(hits, trials, chance)), rel=1e-6)
        assert high == pytest.approx(float(binom.sf(hits - 1, trials, chance)), rel=1e-6)


@pytest.mark.parametrize("draws", [1_000, 50_000])
def test_chi_square_tails_are_right_far_out(draws: int) -> None:
    """Against a library of many digits, where tests decide: chances of about 1e-18."""
    half = mpmath.mpf(draws) / 2
    for sds in (-8.8, 8.8):
        total = draws + sds * (2 * draws) ** 0.5
        low = mpmath.gammainc(half, 0, total / 2, regularized=True)
        high = mpmath.gammainc(half, total / 2, mpmath.inf, regularized=True)
        assert float(gammainc(draws / 2, total / 2)) == pytest.approx(float(low), rel=1e-6)
        assert float(gammaincc(draws / 2, total / 2)) == pytest.approx(float(high), rel=1e-6)


def stops(tally: SquareTally, draws: np.ndarray, at_once: int) -> int | None:
    """After which piece a stream was stopped, in draws."""
    for first in range(0, len(draws), at_once):
        try:
            tally.add(draws[first : first + at_once])
        except SelfCheckFailed:
            return first + at_once
    return None


def test_false_alarms_are_as_rare_as_stated() -> None:
    """900 honest streams at a chance of 1/4, in pieces of any size: at most a quarter is accused."""
    source, alpha = Simulation("tallies"), 0.25
    accused = sum(
        stops(SquareTally("noise", alpha), source.normal(700), at_once) is not None
        for at_once in (5, 64, 700)
        for _ in range(300)
    )
    assert binomtest(accused, 900, alpha, alternative="greater").pvalue > ALPHA
    # The twin that must fail: thresholds for one test, and eleven of them.
    careless = sum(
        stops(SquareTally("noise", alpha * TESTS), source.normal(700), 64) is not None for _ in range(500)
    )
    assert binomtest(careless, 500, alpha, alternative="greater").pvalue < ALPHA


def test_each_test_is_at_its_quantile() -> None:
    """At the first count: sums of squares just within and just beyond the quantiles of a chi-square law."""
    alpha = 1e-9
    for quantile, inside in ((chi2.ppf, 1.001), (chi2.isf, 0.999)):
        edge = float(quantile(alpha / (8 * TESTS), FIRST_DRAWS))
        for factor in (inside, 1 / inside):
            draws = np.full(FIRST_DRAWS, np.sqrt(edge * factor / FIRST_DRAWS))
            assert (stops(SquareTally("noise", alpha), draws, 3) is None) == (factor == inside)


@pytest.mark.parametrize(("share", "draws"), [(0.9, 8_100), (0.7, 710), (0.0, 8), (1.1, 8_100)])
def test_what_is_caught_from_how_many_draws_on(share: float, draws: int) -> None:
    """With the share of a false alarm that one of four parameters has. What the docs say."""
    source = Simulation(f"caught {share}")
    for _ in range(20):
        stopped = stops(SquareTally("noise", FALSE_ALARM / 24), share * source.normal(draws), 1)
        assert stopped is not None


def test_what_rounding_may_have_done_is_no_sign_of_wrong() -> None:
    draws = Simulation(3).normal(40_000)
    rough = draws * np.float32(0.99)
    assert stops(SquareTally("noise", 0.5), rough, 40_000) is not None
    SquareTally("noise", 0.5).add(rough, np.abs(draws) * np.float32(0.0101))


def test_what_is_not_a_number_is_stopped() -> None:
    with pytest.raises(SelfCheckFailed):
        SquareTally("noise", 1e-9).add(np.full(100, np.nan))


def test_what_was_added_since_the_last_test_is_tested_when_it_is_closed() -> None:
    """Whatever came before does not dilute it."""
    source, tally = Simulation("late"), SquareTally("noise", 1e-15)
    tally.add(source.normal(200_000))
    tally.close()
    tally.add(source.normal(2_000) * np.float32(0.7))
    with pytest.raises(SelfCheckFailed, match="over 2000 draws"):
        tally.close()


def test_closing_tests_share_half_of_the_chance() -> None:
    assert 0.99 < sum(self_checks.closing_share(k) for k in range(1, 1000)) < 1
    source, alpha = Simulation("closed"), 0.25

    def accused(alpha: float) -> int:
        found = 0
        for _ in range(300):
            tally = SquareTally("noise", alpha)
            try:
                for draws in source.normal((20, 16)):
                    tally.add(draws)
                    tally.close()
            except SelfCheckFailed:
                found += 1
        return found

    assert binomtest(accused(alpha), 300, alpha, alternative="greater").pvalue > ALPHA
    assert binomtest(accused(8 * alpha), 300, alpha, alternative="greater").pvalue < ALPHA  # its twin


def test_no_test_comes_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_checks, "TESTS", 3)
    tally = SquareTally("noise", 1e-9)
    tally.add(Simulation(1).normal(100))
    assert FIRST_DRAWS * MORE_DRAWS**3 < 100
    tally.add(np.zeros(10**6))


def test_unlike_draws_are_rarely_taken_for_like_ones() -> None:
    """600 streams of 20 comparisons at a chance of 1/4 in all; the twin's draws are correlated."""
    source, alpha = Simulation("alike"), 0.25

    def accused(shared: float) -> int:
        found = 0
        for _ in range(600):
            tally, last = LikenessTally(alpha), source.normal(256)
            try:
                for draws in source.normal((20, 256)):
                    tally.compare((1 - shared**2) ** 0.5 * draws + shared * last, last, 0.0)
                    last = draws
            except SelfCheckFailed:
                found += 1
        return found

    assert binomtest(accused(0.0), 600, alpha, alternative="greater").pvalue > ALPHA
    assert binomtest(accused(0.3), 600, alpha, alternative="greater").pvalue < ALPHA


RECORDS, SHARE, STEPS = 4000, 0.05, 60


def watched(records: int = RECORDS, share: float = SHARE, steps: int = STEPS) -> SamplingMonitor:
    return SamplingMonitor(records, share, steps, below=Simulation("spots").uniform_below)


def of_one_size(size: int) -> None:
    watch, generator = watched(), np.random.default_rng(size)
    for _ in range(40):
        watch.check_sample(np.sort(generator.choice(RECORDS, size, replace=False)))


def sampled(by: float = 1.0) -> None:
    watch, source = watched(), Simulation(f"sampled {by}")
    for _ in range(STEPS):
        watch.check_sample(poisson_sample(RECORDS, by * SHARE, source.words))
    watch.close()


def test_samples_are_counted() -> None:
    """12,000 are expected: a tenth more or less is seen, and a sampler that is right goes through."""
    sampled()
    for by in (0.9, 1.1):
        with pytest.raises(SelfCheckFailed, match=r"sampled with probability 0\.05"):
            sampled(by)


def test_fixed_sizes_are_seen_and_their_number_is_not_told() -> None:
    with pytest.raises(SelfCheckFailed, match="whose sizes differ") as stopped:
        of_one_size(200)
    assert "200" not in str(stopped.value)


@pytest.mark.parametrize(("records", "share"), [(50, 1.0), (5, 0.01), (1, 0.5), (100_000, 1e-5)])
def test_odd_samplers_go_through(records: int, share: float) -> None:
    watch, source = watched(records, share, 500), Simulation("odd")
    for _ in range(500):
        watch.check_sample(poisson_sample(records, share, source.words))
    watch.close()


def test_a_sampler_of_all_must_take_all() -> None:
    with pytest.raises(SelfCheckFailed, match="sampling"):
        watched(50, 1.0, 9).check_sample(np.arange(49))


def test_no_more_steps_than_were_paid_for() -> None:
    watch = watched(50, 1.0, 3)
    watch.begin(2)
    watch.check_sample(np.arange(50))
    with pytest.raises(SelfCheckFailed, match="expected 3 steps"):
        watch.check_sample(np.arange(50))


def test_a_count_of_chance_zero_or_one_is_exact() -> None:
    tally = CountTally("hits", 2, 1.0, 1e-9)
    tally.add(2)
    with pytest.raises(SelfCheckFailed):
        tally.add(1)


def test_many_counts_share_one_chance_of_a_false_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 honest streams of 20 counts at a chance of 1/4 in all, closed after every tenth step. Its twin has
    thresholds for one test."""
    generator, alpha = np.random.default_rng(8), 0.25

    def accused(alpha: float, streams: int) -> int:
        found = 0
        for _ in range(streams):
            tally = CountTally("hits", np.full(20, 60), 0.3, alpha)
            try:
                for step, hits in enumerate(generator.binomial(60, 0.3, (40, 20)), start=1):
                    tally.add(hits)
                    if step % 10 == 0:
                        tally.close()
            except SelfCheckFailed:
                found += 1
        return found

    assert binomtest(accused(alpha, 600), 600, alpha, alternative="greater").pvalue > ALPHA
    monkeypatch.setattr(self_checks, "NEAR", 0.0)  # exact tails everywhere
    assert binomtest(accused(alpha, 300), 300, alpha, alternative="greater").pvalue > ALPHA
    careless = accused(alpha * 20 * 2 * TESTS, 300)
    assert binomtest(careless, 300, alpha, alternative="greater").pvalue < ALPHA


def test_what_was_counted_since_the_last_test_is_tested_when_it_is_closed() -> None:
    tally = CountTally("hits", 1000, 0.1, 1e-15)
    for _ in range(100):
        tally.add(100)
    tally.close()
    for _ in range(3):
        tally.add(150)  # the next test would be after 104 steps or later
    with pytest.raises(SelfCheckFailed, match="too many over 3 steps"):
        tally.close()
