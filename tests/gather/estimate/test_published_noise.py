"""Published noise, thresholds against it, and (alpha, beta): predicted by exact laws, checked by simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, norm

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.gather.estimate.published_noise import (
    AboveNoise,
    LargestTotals,
    PublishedNoise,
    beta_of_cell,
    both_within,
    gaussian_bound,
    paper_bound,
    support_threshold,
)
from tacit.gather.protocol.noise import ServerNoise, UserNoise
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy.noise.shares import PolyaShares, SkellamShares

ALPHA = 1e-9  # the chance that an honest simulation fails a test here
GAUSSIAN = ServerNoise(DiscreteGaussian(Fraction(1142)))
LAPLACE = ServerNoise(DiscreteLaplace(Fraction(4)))
SKELLAM = UserNoise(SkellamShares(Fraction(300), 100, Fraction(1, 4)))
POLYA = UserNoise(PolyaShares(Fraction(5), 100, Fraction(1, 4)))


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE, ServerNoise(Skellam(Fraction(9))), SKELLAM, POLYA])
@pytest.mark.parametrize("answered", [100, 60, 10])
def test_the_published_law_has_the_published_variance(noise: ServerNoise | UserNoise, answered: int) -> None:
    law = PublishedNoise.of(noise, answered)
    x = np.arange(len(law.masses))
    assert 2 * law.masses.sum() - law.masses[0] == pytest.approx(1, rel=1e-12)
    assert 2 * (law.masses * x**2).sum() == pytest.approx(noise.published_variance(answered), rel=1e-9)


def test_the_published_law_of_shares_is_that_of_all_parts_drawn_one_by_one() -> None:
    """Eight devices of ten answer: eight shares, and what each server adds for two; by convolution."""
    shares = PolyaShares(Fraction(3), 10, Fraction(1, 5))
    parts = [shares.share] * 8 + [shares.missing_law(8)] * 2
    by_hand = np.ones(1)
    for part in parts:
        assert part is not None
        by_hand = np.convolve(by_hand, np.r_[part.masses[:0:-1], part.masses])
    law = PublishedNoise.of(UserNoise(shares), 8)
    middle = len(by_hand) // 2
    assert np.allclose(law.pmf(40), by_hand[middle - 40 : middle + 41], rtol=1e-9)
    with pytest.raises(BadInput, match="answered"):
        PublishedNoise.of(UserNoise(shares), 11)


def test_draws_follow_the_published_law() -> None:
    law = PublishedNoise.of(LAPLACE, 5)
    n = 200_000
    drawn = law.sample(n, Simulation("published").words)
    for alpha in (0, 3, 10, 30):
        outside = int((np.abs(drawn) > alpha).sum())
        assert _likely(outside, n, law.outside(alpha))
    # The twin: one server's noise instead of both.
    alone = LAPLACE.law.sample_array(n, Simulation("alone").words)
    assert not _likely(int((np.abs(alone) > 10).sum()), n, law.outside(10))


def test_tails_and_thresholds() -> None:
    law = PublishedNoise.of(GAUSSIAN, 5)
    sd = math.sqrt(2 * 1142)
    assert law.above(0) == pytest.approx((1 - law.masses[0]) / 2)
    assert law.outside(-1) == 1
    assert law.above(10**9) < 1e-17
    for chance in (0.3, 1e-2, 1e-5, 1e-9):
        least = law.threshold(chance)
        assert law.above(least) <= chance < law.above(least - 1)
        assert least == pytest.approx(sd * norm.isf(chance), abs=1.5)  # nearly normal, being wide
    heavy = PublishedNoise.of(LAPLACE, 5)
    assert heavy.threshold(1e-5) > 1.2 * math.sqrt(LAPLACE.published_variance(5)) * norm.isf(1e-5)


def test_support_is_held_against_noise() -> None:
    law = PublishedNoise.of(GAUSSIAN, 5)
    sd = math.sqrt(2 * 1142)
    assert support_threshold(law, 100_000, 1) == pytest.approx(sd * norm.isf(1e-5), abs=1.5)
    assert support_threshold(law, 4, 4) == 0
    nodes = 200_000
    empty = law.sample(nodes, Simulation("empty nodes").words).astype(np.float64)
    # A threshold of 2 expands nearly half of them; the calibrated one expands as many as it says, in the mean.
    assert (empty > 2).mean() == pytest.approx(0.48, abs=0.01)
    expected = 40.0
    expanded = int(AboveNoise(expected).expand(empty, law).sum())
    assert _likely(expanded, nodes, expected / nodes, slack=0.05)
    assert not _likely(int(AboveNoise(4 * expected).expand(empty, law).sum()), nodes, expected / nodes)
    assert AboveNoise().expand(np.zeros(0), law).shape == (0,)
    assert LargestTotals(2).expand(np.array([3.0, 9.0, 3.0, 1.0]), law).tolist() == [True, True, False, False]
    for wrong in (lambda: LargestTotals(0), lambda: AboveNoise(0)):
        with pytest.raises(BadInput):
            wrong()


def test_totals_that_passed_are_biased_and_their_children_are_not() -> None:
    law, source = PublishedNoise.of(GAUSSIAN, 5), Simulation("winners")
    nodes, true = 40_000, 100.0
    sd = math.sqrt(2 * 1142)
    totals = (true + law.sample(nodes, source.words)).astype(np.float64)
    passed = AboveNoise(1000).expand(totals, law)
    children = true + law.sample(nodes, source.words)[passed]
    noise_of_mean = sd / math.sqrt(passed.sum())
    assert totals[passed].mean() - true > 10 * noise_of_mean
    assert abs(children.mean() - true) < 6 * noise_of_mean


CELLS = [(0, 400), (3, 997), (80, 320), (200, 200), (390, 10), (400, 0)]


@pytest.mark.parametrize("noise", [LAPLACE, ServerNoise(DiscreteGaussian(Fraction(64))), SKELLAM])
def test_beta_is_what_simulation_finds(noise: ServerNoise | UserNoise) -> None:
    law, n = PublishedNoise.of(noise, 90), 40_000
    source = Simulation("accuracy")
    sd = math.sqrt(noise.published_variance(90))
    small = (1, math.ceil(1.5 * sd))  # whose noisy impressions are often below zero
    for clicks, no_clicks in [*CELLS, small]:
        x, y = law.sample(n, source.words), law.sample(n, source.words)
        for alpha in (0.7 * sd,) if (clicks, no_clicks) == small else (0.7 * sd, 1.5 * sd, 2.5 * sd):
            kept = int(_accurate(clicks, no_clicks, x, y, alpha).sum())
            beta = beta_of_cell(law, alpha, clicks, no_clicks)
            assert _likely(kept, n, beta), (clicks, no_clicks, alpha, kept / n, beta)
            assert both_within(law, alpha) <= beta + 1e-12
    # The twin: noise that is a tenth wider is told apart somewhere.
    x, y = (np.rint(1.1 * law.sample(n, source.words)) for _ in range(2))
    kept = int(_accurate(3, 997, x, y, 1.5 * sd).sum())
    assert not _likely(kept, n, beta_of_cell(law, 1.5 * sd, 3, 997))


def test_uncut_rates_do_not_keep_the_bounds() -> None:
    """Both counts within alpha is not enough for a cell with fewer clicks than alpha, unless rates are cut."""
    alpha, clicks, no_clicks = 10, 0, 400
    estimate = (clicks - alpha) / (clicks + no_clicks - alpha + alpha)
    assert estimate < (clicks - alpha) / (clicks + no_clicks + 2 * alpha)
    assert _accurate(clicks, no_clicks, np.array([-alpha]), np.array([alpha]), alpha).all()


def test_the_printed_bound_promises_too_much() -> None:
    parties, away = 10_000, 0.25
    planned = (1 - away) * parties - 1
    sd = math.sqrt(1142 * parties / planned)  # with everybody there
    law = PublishedNoise((Skellam(Fraction(sd**2)),))
    for ratio in (1.0, 2.0, 3.0):
        alpha = ratio * sd
        printed = paper_bound(noise_sd=math.sqrt(1142), alpha=alpha, parties=parties, away=away)
        kept = beta_of_cell(law, alpha, 400, 2_000_000)  # a large cell of a low rate
        assert gaussian_bound(sd, alpha) <= both_within(law, alpha) + 2e-3 <= kept + 2e-3
        assert printed > kept
        assert printed > both_within(law, alpha)
    # Far out, how often the bounds fail against how often the print says: .80 against .48.
    failing = 1 - beta_of_cell(law, 4 * sd, 400, 2_000_000)
    printed = paper_bound(noise_sd=math.sqrt(1142), alpha=4 * sd, parties=parties, away=away)
    assert failing / (1 - printed) == pytest.approx(math.sqrt(2 / math.pi) / (3 / (2 * math.pi)), rel=0.1)


def test_what_accuracy_refuses() -> None:
    law = PublishedNoise.of(LAPLACE, 5)
    with pytest.raises(BadInput, match="more than 2 alpha"):
        beta_of_cell(law, 10, 5, 15)
    with pytest.raises(BadInput, match=r"\(1 - away\) parties"):
        paper_bound(noise_sd=1, alpha=1, parties=2, away=0.6)
    with pytest.raises(BadInput, match="alpha"):
        gaussian_bound(1, 0)


def _accurate(clicks: int, no_clicks: int, x: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    """The two bounds of the appendix, by their text; rates cut to [0, 1]."""
    shown = clicks + no_clicks
    n = shown + x + y
    rate = np.clip((clicks + x) / np.where(n > 0, n, 1), 0, 1)
    low, high = (clicks - alpha) / (shown + 2 * alpha), (clicks + alpha) / (shown - 2 * alpha)
    inside: np.ndarray = (n > 0) & (rate >= low - 1e-12) & (rate <= high + 1e-12)
    return inside


def _likely(hits: int, n: int, probability: float, slack: float = 0.0) -> bool:
    """Whether an exact binomial test accepts; `slack` allows for a probability that is rounded down."""
    low, high = probability * (1 - slack), probability * (1 + slack)
    return bool(binom.sf(hits - 1, n, high) > ALPHA / 2 and binom.cdf(hits, n, low) > ALPHA / 2)
