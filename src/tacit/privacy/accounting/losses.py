"""Each release as privacy loss distributions: the one place where a mechanism becomes numbers.

Guarantee:  `terms` gives pairs that dominate the release under the relation, rounded so that delta can only
            come out too large. A release or relation that no proof covers raises before anything is computed.
Neighbours: as named by the caller; a release that carries a relation is read under that one alone.
Assumes:    what each record in `releases` says about itself.
Source:     dominating pairs: Zhu, Dong, Wang 2022 (arXiv 2106.08567); connecting the dots: Doroshenko et al.
            2022 (arXiv 2207.04380); groups under Poisson sampling: Ganesh 2024 (arXiv 2401.10294).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.errors import RelationMismatch, UnknownRelease
from tacit.privacy import shuffling
from tacit.privacy.accounting import gaussian
from tacit.privacy.accounting.composition import Term
from tacit.privacy.accounting.counts import shifted
from tacit.privacy.accounting.grid import LossPmf, from_atoms
from tacit.privacy.budget import rounded_up
from tacit.privacy.relations import Relation
from tacit.privacy.releases import (
    Composed,
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    FlippedLabels,
    GaussianStatistic,
    Grouped,
    LocalChoice,
    NoisyCounts,
    Release,
    SelectedPartitions,
    ShuffledChoice,
    SkellamCounts,
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


def check(release: Release, relation: Relation, group: int = 1) -> None:
    """Raise `UnknownRelease` or `RelationMismatch` unless the release can be read under the relation."""
    if isinstance(release, Composed):
        for part in release.parts:
            check(part, relation, group)
        return
    if isinstance(release, Grouped):
        check(release.release, relation, group * release.size)
        return
    kind = type(release)
    if kind not in _READERS:
        raise UnknownRelease(f"expected a release that the accountant has a proof for, got {kind.__name__}")
    carried = getattr(release, "relation", None)
    if carried is not None and carried is not relation:
        raise RelationMismatch(
            f"expected all releases under {relation}, got {kind.__name__} stated under {carried}"
        )
    if carried is None and relation not in _READ_UNDER[kind]:
        allowed = ", ".join(sorted(_READ_UNDER[kind]))
        raise RelationMismatch(f"expected {kind.__name__} under one of {allowed}, got {relation}")
    if group > 1:
        _check_group(release, relation)


def _check_group(release: Release, relation: Relation) -> None:
    kind = type(release).__name__
    if isinstance(release, NoisyCounts | SelectedPartitions):
        raise UnknownRelease(
            f"expected {kind} to state what a whole unit changes, got one stated per record inside a group"
        )
    if isinstance(release, ShuffledChoice):
        raise UnknownRelease(f"expected one shuffled report per unit, got {kind} in a group: compose rounds")
    if isinstance(release, SubsampledGaussian) and relation not in _ADD_LIKE:
        raise UnknownRelease(
            f"expected add-remove or zero-out for groups of sampled records, got {relation}: no tight bound is "
            "proved there; clip per unit instead"
        )


@dataclass(frozen=True)
class Reading:
    """How a release is looked at. `cut` is the log of the probability that may be given up as infinite loss."""

    relation: Relation
    grid: float
    group: int = 1
    cut: float = FAR_OUT


def terms(release: Release, reading: Reading) -> Sides:
    """The loss terms of a whole release on one grid. Call `check` first."""
    if isinstance(release, Composed):
        each = replace(reading, cut=reading.cut - math.log(release.count * len(release.parts)))
        sides = Sides((), ())
        for part in release.parts:
            sides += terms(part, each)
        return sides.times(release.count)
    if isinstance(release, Grouped):
        return terms(release.release, replace(reading, group=reading.group * release.size))
    return _READERS[type(release)](release, reading)


# One reader per kind of release.


def _flipped_labels(release: FlippedLabels, at: Reading) -> Sides:
    lie = (1 - release.truth) / (release.classes - 1)
    rest = max(0.0, float(1 - release.truth - lie))
    loss = release.epsilon
    atoms = np.array([loss, 0.0, -loss]), np.array([float(release.truth), rest, float(lie)])
    return _both(from_atoms(at.grid, *atoms), at.group)


def _local_choice(release: LocalChoice, at: Reading) -> Sides:
    return _both(_pure(rounded_up(release.epsilon), at.grid), at.group)


def _selected(release: SelectedPartitions, at: Reading) -> Sides:
    kept = _pure(rounded_up(release.epsilon), at.grid, infinite=rounded_up(release.delta))
    return _both(kept, release.partitions)


def _shuffled(release: ShuffledChoice, at: Reading) -> Sides:
    atoms = shuffling.loss_atoms(release)
    return _both(from_atoms(at.grid, atoms.losses, atoms.mass, atoms.infinite), 1)


def _subsampled(release: SubsampledGaussian, at: Reading) -> Sides:
    steps, noise, share = release.steps, release.noise_multiplier, release.sampling_probability
    if share == 1.0:
        # Unsampled steps are one Gaussian with less noise; a group of records adds up its norms.
        difference = (1.0 if at.relation in _ADD_LIKE else 2.0) * at.group
        return _both(gaussian.plain(noise / math.sqrt(steps) / difference, at.grid, at.cut), 1)
    cut = at.cut - math.log(steps)
    if at.relation not in _ADD_LIKE:
        return _both(gaussian.replaced(noise, share, at.grid, cut), steps)
    removed, added = gaussian.added_or_removed(noise, share, at.group, at.grid, cut)
    return Sides((Term(removed, steps),), (Term(added, steps),))


def _statistic(release: GaussianStatistic, at: Reading) -> Sides:
    return _both(gaussian.plain(release.noise_stddev / (release.sensitivity * at.group), at.grid, at.cut), 1)


def _counts(release: NoisyCounts, at: Reading) -> Sides:
    # A larger shift of a log-concave law is easier to see, and counts carry independent noise: the pair that
    # moves every count by its bound dominates all others.
    sides = Sides((), ())
    for change, times in Counter(release.changes).items():
        sides += _both(shifted(release, change, at.grid), times)
    return sides


Reader = Callable[[Any, Reading], Sides]
_ADD_LIKE = frozenset({Relation.ADD_REMOVE, Relation.ZERO_OUT})
_REPLACE_LIKE = frozenset({Relation.REPLACE_ONE, Relation.REPLACE_LABEL})

_READERS: dict[type[Release], Reader] = {
    FlippedLabels: _flipped_labels,
    LocalChoice: _local_choice,
    ShuffledChoice: _shuffled,
    SelectedPartitions: _selected,
    SubsampledGaussian: _subsampled,
    GaussianStatistic: _statistic,
    DiscreteLaplaceCounts: _counts,
    DiscreteGaussianCounts: _counts,
    SkellamCounts: _counts,
}

# A flipped label says nothing about features, so it also holds where features may change with it; replacing
# a label is a special case of replacing one. Nothing here covers flips whose number of rows may change.
_READ_UNDER: dict[type[Release], frozenset[Relation]] = {
    FlippedLabels: _REPLACE_LIKE,
    LocalChoice: frozenset({Relation.REPLACE_ONE}),
    ShuffledChoice: frozenset({Relation.REPLACE_ONE}),
    SubsampledGaussian: _ADD_LIKE | _REPLACE_LIKE,
}


# Pairs that have the same loss from both sides.


def _both(pmf: LossPmf, count: int) -> Sides:
    """A pair whose loss has the same law from both neighbours."""
    return Sides((Term(pmf, count),), (Term(pmf, count),))


def _pure(epsilon: float, grid: float, infinite: float = 0.0) -> LossPmf:
    """The worst of all (epsilon, delta)-DP pairs: Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776)."""
    truth = 1 / (1 + math.exp(-epsilon))
    atoms = np.array([epsilon, -epsilon]), np.array([truth, 1 - truth]) * (1 - infinite)
    return from_atoms(grid, *atoms, infinite)
