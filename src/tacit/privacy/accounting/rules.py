"""Which releases the accountant has a proof for, under which relations, and for groups of records where.

Guarantee:  what is readable here has a pair in `dominating_pairs` that is proved to dominate it, at the source
            that the pair names or in its own docstring; anything else raises, before a number is computed.
Neighbours: as named by the caller. A release that states a relation is read under that one alone.
Assumes:    what each record in `releases` says about itself.
Source:     composition: Zhu, Dong, Wang 2022 (arXiv 2106.08567); the pairs: `dominating_pairs` and
            `loss_distributions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.arrays import Floats
from tacit.errors import BadInput, NoFiniteGuarantee, RelationMismatch, UnknownRelease
from tacit.privacy.accounting import dominating_pairs, renyi
from tacit.privacy.accounting.dominating_pairs import LossPair, LossQuery
from tacit.privacy.accounting.loss_distributions import LARGEST_LOSS
from tacit.privacy.releases import (
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    FlippedLabels,
    GaussianStatistic,
    Leaf,
    LocalChoice,
    NoisyLabels,
    Release,
    SelectedPartitions,
    ShuffledChoice,
    SkellamCounts,
    SplitLabels,
    SubsampledGaussian,
    leaves,
)
from tacit.privacy.shuffling import mechanism
from tacit.privacy.units import ADD_LIKE, REPLACE_LIKE, Relation

ALL = frozenset(Relation)
NONE: frozenset[Relation] = frozenset()


def _rows_keep_epsilon(release: ShuffledChoice) -> None:
    if release.epsilon > LARGEST_LOSS:
        raise NoFiniteGuarantee(f"expected a local epsilon of at most {LARGEST_LOSS:g}, got {release.epsilon}")
    if release.mechanism:
        mechanism.check_rows(release.mechanism, release.epsilon)


@dataclass(frozen=True)
class Rule:
    """How one kind of release is read.

    `relations` is where a release that states none can be read; `grouped` is where a group of several records
    is covered too, and `otherwise` says what to do elsewhere. `pure` is epsilon at delta 0, `renyi` the
    divergences at `renyi.ORDERS`; both are for one publication, and absent where there is no such bound.
    `check` raises where a release is not what it says.
    """

    losses: Callable[[Any, LossQuery], LossPair]
    relations: frozenset[Relation] = NONE
    grouped: frozenset[Relation] = NONE
    otherwise: str = "state what a whole unit changes"
    pure: Callable[[Any], Fraction] | None = None
    renyi: Callable[[Any, Relation, int], Floats] | None = None
    check: Callable[[Any], None] | None = None


RULES: dict[type[Release], Rule] = {
    # A flipped label says nothing about features, so it also holds where features may change with it. Nothing
    # covers flips whose number of rows may change.
    FlippedLabels: Rule(
        dominating_pairs.flipped_labels,
        relations=REPLACE_LIKE,
        grouped=REPLACE_LIKE,
        pure=lambda release: Fraction(release.epsilon),
        renyi=renyi.flipped_labels,
    ),
    SplitLabels: Rule(
        dominating_pairs.split_labels,
        relations=REPLACE_LIKE,
        otherwise="it is stated for a whole unit already",
        pure=lambda release: release.epsilon,
        renyi=renyi.pure_dp,
    ),
    NoisyLabels: Rule(
        dominating_pairs.noisy_labels,
        relations=REPLACE_LIKE,
        otherwise="it is stated for a whole unit already",
        pure=lambda release: release.epsilon,
        renyi=renyi.pure_dp,
    ),
    # Replacing a label is a special case of replacing one.
    SubsampledGaussian: Rule(
        dominating_pairs.subsampled_gaussian,
        relations=ADD_LIKE | REPLACE_LIKE,
        grouped=ADD_LIKE,
        otherwise="no tight bound is proved there; clip per unit",
        renyi=renyi.subsampled_gaussian,
    ),
    GaussianStatistic: Rule(dominating_pairs.gaussian_statistic, grouped=ALL, renyi=renyi.gaussian_statistic),
    DiscreteLaplaceCounts: Rule(
        dominating_pairs.noisy_counts,
        pure=lambda release: sum(release.changes) / release.scale,
        renyi=renyi.discrete_laplace_counts,
    ),
    DiscreteGaussianCounts: Rule(dominating_pairs.noisy_counts, renyi=renyi.discrete_gaussian_counts),
    SkellamCounts: Rule(dominating_pairs.noisy_counts),
    SelectedPartitions: Rule(dominating_pairs.selected_partitions),
    LocalChoice: Rule(
        dominating_pairs.local_choice,
        relations=frozenset({Relation.REPLACE_ONE}),
        grouped=frozenset({Relation.REPLACE_ONE}),
        pure=lambda release: release.epsilon,
        renyi=renyi.pure_dp,
    ),
    ShuffledChoice: Rule(
        dominating_pairs.shuffled_choice,
        relations=frozenset({Relation.REPLACE_ONE}),
        otherwise="compose one batch per report",
        pure=lambda release: release.epsilon,
        check=_rows_keep_epsilon,
    ),
}


def readable_leaves(release: Release, relation: Relation) -> list[Leaf]:
    """What the release is made of, if every part of it can be read under the relation; raises otherwise."""
    if not isinstance(release, Release):
        raise BadInput(f"expected release to be a Release, got {release!r}")
    parts = list(leaves(release))
    for leaf in parts:
        _check(leaf, relation)
    return parts


def _check(leaf: Leaf, relation: Relation) -> None:
    name = type(leaf.release).__name__
    rule = RULES.get(type(leaf.release))
    if rule is None:
        raise UnknownRelease(f"expected a release that the accountant has a proof for, got {name}")
    stated = getattr(leaf.release, "relation", None)
    if stated is not None and stated is not relation:
        raise RelationMismatch(f"expected all releases under {relation}, got {name} stated under {stated}")
    if stated is None and relation not in rule.relations:
        allowed = ", ".join(sorted(rule.relations))
        raise RelationMismatch(f"expected {name} under one of {allowed}, got {relation}")
    if rule.check is not None:
        rule.check(leaf.release)
    if leaf.group > 1 and relation not in rule.grouped:
        raise UnknownRelease(
            f"expected single records in {name} under {relation}, got groups of {leaf.group}: {rule.otherwise}"
        )


def loss_terms(
    parts: list[Leaf], relation: Relation, grid: float, cut: float = dominating_pairs.FAR_OUT
) -> LossPair:
    """The losses of all parts on one grid, for `composition`."""
    sides = LossPair((), ())
    for leaf in parts:
        share = cut - math.log(leaf.count * len(parts))
        one = RULES[type(leaf.release)].losses(leaf.release, LossQuery(relation, grid, leaf.group, share))
        sides += one.times(leaf.count)
    return sides
