"""Loss distributions of whole-numbered noise on counts, from the exact laws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.special import ive

from tacit.errors import BadInput, UnknownRelease
from tacit.privacy.accounting.grid import Floats, LossPmf, from_atoms
from tacit.privacy.releases import DiscreteGaussianCounts, DiscreteLaplaceCounts, NoisyCounts, SkellamCounts

BEYOND = math.exp(-60.0)
"""More than the chance of noise outside of the atoms: `_reach` goes that far."""

MOST_VARIANCE = 1e9


def shifted(release: NoisyCounts, change: int, grid: float) -> LossPmf:
    """The loss of one count that differs by `change`; the same from both sides, as the laws are symmetric."""
    losses, mass = shift_atoms(release, change)
    # What lies beyond the atoms counts as a broken promise; the sum itself is only right to rounding.
    return from_atoms(grid, losses, mass, 0.0 if isinstance(release, DiscreteLaplaceCounts) else BEYOND)


def shift_atoms(release: NoisyCounts, change: int) -> tuple[Floats, Floats]:
    """The loss ln P(x) / P(x + change) and its probability under P, tails gathered or sent to infinity."""
    if isinstance(release, DiscreteLaplaceCounts):
        decay = float(1 / release.scale)
        inside = np.arange(1, change)
        # P(x <= 0), then each x in 1..change-1, then P(x >= change), for x = minus the noise.
        base = math.tanh(decay / 2)
        edge = 1 / (1 + math.exp(-decay))
        mass = np.r_[edge, base * np.exp(-decay * inside), edge * math.exp(-decay * change)]
        return decay * (change - 2 * np.r_[0, inside, change]).astype(float), mass
    if isinstance(release, DiscreteGaussianCounts):
        variance = _checked(release.sigma_squared)
        values = np.arange(-(reach := _reach(math.sqrt(variance), change)), reach + 1)
        mass = np.exp(-(values**2) / (2 * variance))
        losses = (2 * values * change + change**2) / (2 * variance)
        return losses.astype(float), mass / mass.sum()
    if isinstance(release, SkellamCounts):
        variance = _checked(release.variance)
        values = np.arange(-(reach := _reach(math.sqrt(variance), change)), reach + 1)
        mass = ive(np.abs(values), variance)
        values, mass = values[mass > 1e-290], mass[mass > 1e-290]
        # The neighbour's noise would have to be x + change; where its chance underflows the loss is infinite.
        shifted = ive(np.abs(values + change), variance)
        with np.errstate(divide="ignore"):
            losses = np.log(mass) - np.log(shifted)
        return np.where(shifted > 0, losses, math.inf), mass
    raise UnknownRelease(f"expected a known law of count noise, got {type(release).__name__}")


def _checked(variance: Fraction) -> float:
    if variance > MOST_VARIANCE:
        raise BadInput(f"expected count noise of variance at most {MOST_VARIANCE:g}, got {float(variance):g}")
    return float(variance)


def _reach(stddev: float, change: int) -> int:
    """Far enough that what lies beyond weighs less than e^-60 even for laws with exponential tails."""
    return math.ceil(max(12 * stddev, 80.0)) + 2 * change
