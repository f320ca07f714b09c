"""What noisy counts say: how many opportunities there were, and how far clicks may be from their
expectation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from tacit.schema.statistics import Floats, LevelCounts


@dataclass(frozen=True, eq=False)
class Opportunities:
    """The true number behind a noisy one, any number >= 0 being as likely beforehand: a normal cut off at 0."""

    mean: Floats
    square: Floats  # the mean of the square
    error: Floats  # the mean of (noisy - true)^2

    @classmethod
    def behind(cls, noisy: Floats, variance: float) -> Opportunities:
        if not variance:
            return cls(noisy, noisy**2, np.zeros_like(noisy))
        sd = math.sqrt(variance)
        at = noisy / sd
        pull = np.exp(-0.5 * at**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(at))  # phi / Phi, far tails too
        mean = np.maximum(noisy + sd * pull, 0.0)
        return cls(mean, variance + noisy * mean, variance - noisy * sd * pull)


def residual(level: LevelCounts, rate: Floats, error: Floats) -> Floats:
    """The mean square of what noise adds to clicks - rate * opportunities, given the noisy opportunities.

    Without conditioning, that is sd^2 ((1-rate)^2 + rate^2) where clicks and no-clicks are counted, and
    sd^2 (1 + rate^2) where clicks and totals are. `error` is the mean square of the noise in the opportunities;
    half of the noise in clicks + no-clicks is that of the clicks, give or take sd^2 / 2.
    """
    variance = level.noise_sd**2
    if level.shown is None:
        return variance + rate**2 * error
    return variance / 2 + (0.5 - rate) ** 2 * error


def plain_residual(level: LevelCounts, rate: Floats) -> Floats:
    """The same before the noisy opportunities are looked at."""
    if not level.noise_sd:
        return np.zeros((1, 1))
    other = rate if level.shown is not None else np.zeros_like(rate)
    return level.noise_sd**2 * ((1 - other) ** 2 + rate**2)


def after_clipping(variance: Floats, rate: Floats) -> Floats:
    """The mean square of an error that is normal, once the estimate around `rate` is clipped to 0..1."""
    sd = np.sqrt(np.maximum(variance, 1e-300))
    low, high = -rate / sd, (1 - rate) / sd
    density_low, density_high = (np.exp(-0.5 * at**2) / math.sqrt(2 * math.pi) for at in (low, high))
    within = ndtr(high) - ndtr(low) - (high * density_high - low * density_low)
    found: Floats = variance * within + rate**2 * ndtr(low) + (1 - rate) ** 2 * ndtr(-high)
    return found
