"""Dominating pairs: each kind of release as privacy loss distributions, rounded against ourselves.

Source: Zhu, Dong, Wang 2022 (arXiv 2106.08567). `rules` says what may be read under which relation.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tacit.privacy import shuffling
from tacit.privacy.accounting import loss_distributions
from tacit.privacy.accounting.composition import Term
from tacit.privacy.accounting.loss_distributions import LossPmf, count_noise_pmf, pmf_from_atoms
from tacit.privacy.budget import rounded_up
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
from tacit.privacy.units import ADD_LIKE, Relation

FAR_OUT = -60.0
"""Tails of losses below e^-60 count as broken promises instead of being followed, unless one says otherwise."""


@dataclass(frozen=True)
class LossPair:
    """The losses seen from both neighbours: one composes all of the first, or all of the second."""

    there: tuple[Term, ...]
    back: tuple[Term, ...]

    def __add__(self, other: LossPair) -> LossPair:
        return LossPair(self.there + other.there, self.back + other.back)

    def times(self, count: int) -> LossPair:
        return LossPair(
            tuple(Term(term.pmf, term.count * count) for term in self.there),
            tuple(Term(term.pmf, term.count * count) for term in self.back),
        )


@dataclass(frozen=True)
class LossQuery:
    """How a release is looked at. `cut` is the log of the probability that may be given up as infinite loss."""

    relation: Relation
    grid: float
    group: int = 1
    cut: float = FAR_OUT


def flipped_labels(release: FlippedLabels, at: LossQuery) -> LossPair:
    lie = (1 - release.truth) / (release.classes - 1)
    rest = max(0.0, float(1 - release.truth - lie))
    loss = release.epsilon
    atoms = np.array([loss, 0.0, -loss]), np.array([float(release.truth), rest, float(lie)])
    return _symmetric_pair(pmf_from_atoms(at.grid, *atoms), at.group)


def split_labels(release: SplitLabels, at: LossQuery) -> LossPair:
    # However the labels share it, together they are epsilon-DP, and nothing epsilon-DP is worse than this pair.
    return _symmetric_pair(_pure_dp_pmf(rounded_up(release.epsilon), at.grid), at.group)


def noisy_labels(release: NoisyLabels, at: LossQuery) -> LossPair:
    return _symmetric_pair(_pure_dp_pmf(rounded_up(release.epsilon), at.grid), at.group)


def local_choice(release: LocalChoice, at: LossQuery) -> LossPair:
    return _symmetric_pair(_pure_dp_pmf(rounded_up(release.epsilon), at.grid), at.group)


def selected_partitions(release: SelectedPartitions, at: LossQuery) -> LossPair:
    kept = _pure_dp_pmf(rounded_up(release.epsilon), at.grid, infinite=rounded_up(release.delta))
    return _symmetric_pair(kept, release.partitions)


def shuffled_choice(release: ShuffledChoice, at: LossQuery) -> LossPair:
    atoms = shuffling.loss_atoms(release)
    return _symmetric_pair(pmf_from_atoms(at.grid, atoms.losses, atoms.mass, atoms.infinite), 1)


def subsampled_gaussian(release: SubsampledGaussian, at: LossQuery) -> LossPair:
    steps, noise, share = release.steps, release.noise_multiplier, release.sampling_probability
    if share == 1.0:
        # Unsampled steps are one Gaussian with less noise; a group of records adds up its norms.
        difference = (1.0 if at.relation in ADD_LIKE else 2.0) * at.group
        return _symmetric_pair(
            loss_distributions.gaussian_pmf(noise / math.sqrt(steps) / difference, at.grid, at.cut), 1
        )
    cut = at.cut - math.log(steps)
    if at.relation not in ADD_LIKE:
        return _symmetric_pair(loss_distributions.sampled_gaussian_replace(noise, share, at.grid, cut), steps)
    removed, added = loss_distributions.sampled_gaussian_add_remove(noise, share, at.group, at.grid, cut)
    return LossPair((Term(removed, steps),), (Term(added, steps),))


def gaussian_statistic(release: GaussianStatistic, at: LossQuery) -> LossPair:
    return _symmetric_pair(
        loss_distributions.gaussian_pmf(
            release.noise_stddev / (release.sensitivity * at.group), at.grid, at.cut
        ),
        1,
    )


def noisy_counts(release: NoisyCounts, at: LossQuery) -> LossPair:
    # A larger shift of a log-concave law is easier to see, and counts carry independent noise: the pair that
    # moves every count by its bound dominates all others.
    sides = LossPair((), ())
    for change, times in Counter(release.changes).items():
        sides += _symmetric_pair(count_noise_pmf(release, change, at.grid), times)
    return sides


def _symmetric_pair(pmf: LossPmf, count: int) -> LossPair:
    """A pair whose loss has the same law from both neighbours."""
    return LossPair((Term(pmf, count),), (Term(pmf, count),))


def _pure_dp_pmf(epsilon: float, grid: float, infinite: float = 0.0) -> LossPmf:
    """The worst of all (epsilon, delta)-DP pairs: Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776)."""
    truth = 1 / (1 + math.exp(-epsilon))
    atoms = np.array([epsilon, -epsilon]), np.array([truth, 1 - truth]) * (1 - infinite)
    return pmf_from_atoms(grid, *atoms, infinite)
