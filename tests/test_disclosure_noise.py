"""Margins against exact tails: enough for the probability asked for, and not far more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, norm

from tacit.deliver.disclosure.noise import Margin, discrete_laplace, laplace, normal

PROBABILITIES = (1e-3, 1e-6, 2e-11)


def normal_tail(noise_sd: float, counts: int, margin: float) -> float:
    return float(norm.sf(margin / noise_sd / np.sqrt(counts)))


def laplace_tail(noise_sd: float, counts: int, margin: float) -> float:
    """A sum of n Laplace noises is the difference of two gamma variables of shape n."""
    reach = margin / (noise_sd / np.sqrt(2))
    below = gamma.isf(1e-17, counts)
    inside = quad(
        lambda y: gamma.pdf(y, counts) * gamma.sf(reach + y, counts), 0, below, limit=500, epsabs=0, epsrel=1e-9
    )
    return float(inside[0])


def discrete_laplace_tail(noise_sd: float, counts: int, margin: float) -> float:
    """By adding up: the variance is 2 a / (1 - a)^2 for weights a^|k|."""
    variance = noise_sd**2
    a = (variance + 1 - np.sqrt(2 * variance + 1)) / variance
    most = int(np.ceil(np.log(1e-18) / np.log(a)))
    one = a ** np.abs(np.arange(-most, most + 1)) * (1 - a) / (1 + a)
    spread = (one * np.arange(-most, most + 1) ** 2).sum()
    assert spread == pytest.approx(variance, rel=1e-6)
    law = np.array([1.0])
    for _ in range(counts):
        law = np.convolve(law, one)
    return float(law[np.arange(len(law)) - len(law) // 2 >= margin - 1e-9].sum())


KINDS: dict[str, tuple[Margin, Margin, float]] = {
    "normal": (normal, normal_tail, 10.0),
    "laplace": (laplace, laplace_tail, 10.0),
    "discrete laplace": (discrete_laplace, discrete_laplace_tail, 10.0),
    "narrow discrete laplace": (discrete_laplace, discrete_laplace_tail, 0.7),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counts", [1, 2, 5, 30])
@pytest.mark.parametrize("probability", PROBABILITIES)
def test_noise_reaches_its_margin_as_rarely_as_said(kind: str, counts: int, probability: float) -> None:
    margin, tail, noise_sd = KINDS[kind]
    needed = margin(noise_sd, counts, probability)
    assert tail(noise_sd, counts, needed) <= probability * (1 + 1e-6)
    enough = 0.99 if margin is normal or counts == 1 else 0.7  # exact, or a bound
    less = enough * needed - (margin is discrete_laplace)  # whole numbers have steps
    assert tail(noise_sd, counts, less) > probability


@pytest.mark.parametrize("heavy", [laplace_tail, discrete_laplace_tail])
def test_the_margins_of_normal_noise_do_not_do_for_another_kind(heavy: Margin) -> None:
    """The twin: Laplace noise of the same deviation reaches them a million times as often."""
    assert heavy(10.0, 1, normal(10.0, 1, 2e-11)) > 1e6 * 2e-11


@pytest.mark.parametrize("margin", [normal, laplace, discrete_laplace])
def test_margins_grow_with_counts_and_with_rarity(margin: Margin) -> None:
    by_counts = [margin(3.0, counts, 1e-9) for counts in range(1, 40)]
    assert by_counts == sorted(by_counts)
    assert by_counts[-1] < 39 * by_counts[0] / 2  # less than each by itself
    by_rarity = [margin(3.0, 7, 10.0**-power) for power in range(1, 15)]
    assert by_rarity == sorted(by_rarity)
