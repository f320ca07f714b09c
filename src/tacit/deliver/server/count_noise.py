"""Variance of counts: noise that was added for privacy, and clicks that vary more than a binomial.

Of noisy counts: how many opportunities there were, and how far clicks may be from their expectation.

The rates of contexts below a node vary around the node's own. So the clicks at a node vary more than a
binomial: requests from one and the same child share that child's deviation. With n_c requests at child c,
whose rate has the variance s around its parent's, that adds sum_c n_c (n_c - 1) s to the variance of the
clicks, at each level below. A general context therefore tells less than its count suggests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from tacit.arrays import Floats, Integers
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.counts import Counts, LevelCounts


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


def variance_after_clipping(variance: Floats, rate: Floats) -> Floats:
    """The mean square of an error that is normal, once the estimate around `rate` is clipped to 0..1."""
    sd = np.sqrt(np.maximum(variance, 1e-300))
    low, high = -rate / sd, (1 - rate) / sd
    density_low, density_high = (np.exp(-0.5 * at**2) / math.sqrt(2 * math.pi) for at in (low, high))
    within = ndtr(high) - ndtr(low) - (high * density_high - low * density_low)
    found: Floats = variance * within + rate**2 * ndtr(low) + (1 - rate) ** 2 * ndtr(-high)
    return found


def excess_variance(counts: Counts, share: Mapping[Levels, float], keep: float = 1.0) -> dict[Levels, Floats]:
    """The variance of a node's clicks above the binomial: by entry where `shown` is known, else by node.

    E(v) = sum over children c of keep E(c) + share n_c (n_c - 1), with `share` by the child's level. Under
    several levels of children (a lattice) the largest of them; noise is taken off n_c^2, and what is below 0
    is 0.
    """
    found: dict[Levels, Floats] = {}
    for levels in counts.levels:  # finest first
        level = counts.by_level[levels]
        most = np.zeros(level.nodes if level.shown is None else len(level.ad))
        for finer in counts.levels:
            if (finer, levels) in counts.parent:
                child = counts.by_level[finer]
                n = child.total if child.shown is None else child.shown
                parts = keep * found[finer] + share[finer] * (n**2 - n - child.opportunity_variance)
                most = np.maximum(most, _summed(child, level, counts.parent[finer, levels], parts))
        found[levels] = most
    return found


def _summed(child: LevelCounts, level: LevelCounts, above: Integers, parts: Floats) -> Floats:
    if level.shown is None and child.shown is None:
        summed: Floats = np.bincount(above, parts, minlength=level.nodes).astype(np.float64)
        return summed
    if level.shown is None or child.shown is None:  # one level by ads and the other not: they cannot be matched
        return np.zeros(level.nodes if level.shown is None else len(level.ad))
    key = above[child.entry_node] * child.ads + child.ad
    place = np.minimum(np.searchsorted(level.entry_key, key), len(level.entry_key) - 1)
    there = level.entry_key[place] == key if len(level.entry_key) else np.zeros(len(key), bool)
    matched: Floats = np.bincount(place[there], parts[there], minlength=len(level.ad)).astype(np.float64)
    return matched
