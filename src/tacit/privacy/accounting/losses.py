"""Each release as privacy loss distributions on a grid: a pair that dominates it, rounded against ourselves.

Source: dominating pairs: Zhu, Dong, Wang 2022 (arXiv 2106.08567). `rules` says who may be read under what.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tacit.privacy import shuffling
from tacit.privacy.accounting import gaussian
from tacit.privacy.accounting.composition import Term
from tacit.privacy.accounting.counts import shifted
from tacit.privacy.accounting.grid import LossPmf, from_atoms
from tacit.privacy.budget import rounded_up
from tacit.privacy.relations import ADD_LIKE, Relation
from tacit.privacy.releases import (
    FlippedLabels,
    GaussianStatistic,
    LocalChoice,
    NoisyCounts,
    NoisyLabels,
    SelectedPartitions,
    ShuffledChoice,
    SplitLabels,
    SubsampledGaussian,
)

FAR_OUT = -60.0
"""Tails of losses below e^-60 count as broken promises instead of being followed, unless one says otherwise."""


@dataclass(frozen=True)
class Sides:
    """The losses seen from both neighbours: one composes all of the first, or all of the second."""

    there: tuple[Term, ...]
    back: tuple[Term, ...]

    def __add__(self, other: Sides) -> Sides:
        return Sides(self.there + other.there, self.back + other.back)

    def times(self, count: int) -> Sides:
        return Sides(
            tuple(Term(term.pmf, term.count * count) for term in self.there),
            tuple(Term(term.pmf, term.count * count) for term in self.back),
        )


@dataclass(frozen=True)
class Reading:
    """How a release is looked at. `cut` is the log of the probability that may be given up as infinite loss."""

    relation: Relation
    grid: float
    group: int = 1
    cut: float = FAR_OUT


def flipped_labels(release: FlippedLabels, at: Reading) -> Sides:
    lie = (1 - release.truth) / (release.classes - 1)
    rest = max(0.0, float(1 - release.truth - lie))
    loss = release.epsilon
    atoms = np.array([loss, 0.0, -loss]), np.array([float(release.truth), rest, float(lie)])
    return _both(from_atoms(at.grid, *atoms), at.group)


def split_labels(release: SplitLabels, at: Reading) -> Sides:
    # However the labels share it, together they are epsilon-DP, and nothing epsilon-DP is worse than this pair.
    return _both(_pure(rounded_up(release.epsilon), at.grid), at.group)


def noisy_labels(release: NoisyLabels, at: Reading) -> Sides:
    return _both(_pure(rounded_up(release.epsilon), at.grid), at.group)


def local_choice(release: LocalChoice, at: Reading) -> Sides:
    return _both(_pure(rounded_up(release.epsilon), at.grid), at.group)


def selected_partitions(release: SelectedPartitions, at: Reading) -> Sides:
    kept = _pure(rounded_up(release.epsilon), at.grid, infinite=rounded_up(release.delta))
    return _both(kept, release.partitions)


def shuffled_choice(release: ShuffledChoice, at: Reading) -> Sides:
    atoms = shuffling.loss_atoms(release)
    return _both(from_atoms(at.grid, atoms.losses, atoms.mass, atoms.infinite), 1)


def subsampled_gaussian(release: SubsampledGaussian, at: Reading) -> Sides:
    steps, noise, share = release.steps, release.noise_multiplier, release.sampling_probability
    if share == 1.0:
        # Unsampled steps are one Gaussian with less noise; a group of records adds up its norms.
        difference = (1.0 if at.relation in ADD_LIKE else 2.0) * at.group
        return _both(gaussian.plain(noise / math.sqrt(steps) / difference, at.grid, at.cut), 1)
    cut = at.cut - math.log(steps)
    if at.relation not in ADD_LIKE:
        return _both(gaussian.replaced(noise, share, at.grid, cut), steps)
    removed, added = gaussian.added_or_removed(noise, share, at.group, at.grid, cut)
    return Sides((Term(removed, steps),), (Term(added, steps),))


def gaussian_statistic(release: GaussianStatistic, at: Reading) -> Sides:
    return _both(gaussian.plain(release.noise_stddev / (release.sensitivity * at.group), at.grid, at.cut), 1)


def noisy_counts(release: NoisyCounts, at: Reading) -> Sides:
    # A larger shift of a log-concave law is easier to see, and counts carry independent noise: the pair that
    # moves every count by its bound dominates all others.
    sides = Sides((), ())
    for change, times in Counter(release.changes).items():
        sides += _both(shifted(release, change, at.grid), times)
    return sides


def _both(pmf: LossPmf, count: int) -> Sides:
    """A pair whose loss has the same law from both neighbours."""
    return Sides((Term(pmf, count),), (Term(pmf, count),))


def _pure(epsilon: float, grid: float, infinite: float = 0.0) -> LossPmf:
    """The worst of all (epsilon, delta)-DP pairs: Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776)."""
    truth = 1 / (1 + math.exp(-epsilon))
    atoms = np.array([epsilon, -epsilon]), np.array([truth, 1 - truth]) * (1 - infinite)
    return from_atoms(grid, *atoms, infinite)
