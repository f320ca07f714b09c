"""Counts that add up: the least-squares tree of noisy counts, whatever its shape and variances.

A tree comes as tiers, the top first; each node names its parent in the tier above, or none, so several trees
may stand side by side. Every node that has children has all of them here: their sum is the node's own count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.errors import BadInput
from tacit.schema.statistics import Floats, Integers

NO_PARENT = -1


@dataclass(frozen=True, eq=False)
class Tier:
    """The counts of one level; a variance of infinity says that a node was not counted itself."""

    value: Floats  # (nodes,)
    variance: Floats  # (nodes,)
    parent: Integers  # (nodes,) places in the tier above; NO_PARENT: none

    def __post_init__(self) -> None:
        shape = self.value.shape
        if len(shape) != 1 or self.variance.shape != shape or self.parent.shape != shape:
            raise BadInput(f"expected value, variance and parent of one length, got {shape} and others")
        if not (self.variance > 0).all() or not np.isfinite(self.value).all():
            raise BadInput("expected finite counts with variances > 0, got others")

    def sums(self, parts: Floats, above: int) -> Floats:
        """(above,) of the nodes above, what their children have together."""
        has = self.parent >= 0
        summed: Floats = np.bincount(self.parent[has], parts[has], minlength=above).astype(np.float64)
        return summed


def consistent(tiers: Sequence[Tier]) -> tuple[Tier, ...]:
    """The counts that add up and are nearest to these, in squares over variances; and their variances.

    Upward, a node's own count and the sum of its children's are averaged by inverse variance; downward, what a
    family is short of its parent is shared in proportion to the children's variances. Where noise is Gaussian
    this is the best that can be done without bias. Post-processing: it costs no privacy.

    Source: Hay, Rastogi, Miklau, Suciu 2010 (arXiv 0904.0942), section 4, for unequal variances and families.
    """
    expect_tree(tiers)
    upward: list[Tier] = []
    for at in range(len(tiers) - 1, -1, -1):
        upward.insert(0, _averaged(tiers[at], upward[0] if upward else None))
    downward: list[Tier] = []
    for tier in upward:
        downward.append(_shared(tier, downward[-1]) if downward else tier)
    return tuple(downward)


def expect_tree(tiers: Sequence[Tier]) -> None:
    if not tiers:
        raise BadInput("expected at least one tier of counts, got none")
    above = 0
    for at, tier in enumerate(tiers):
        if len(tier.parent) and not NO_PARENT <= tier.parent.min() <= tier.parent.max() < above:
            raise BadInput(f"tier {at}: expected parents among {above} nodes or none, got others")
        above = len(tier.value)
    for at, tier in enumerate(tiers):
        bare = ~np.isfinite(tier.variance)
        if at + 1 < len(tiers):
            below = tiers[at + 1]
            bare &= below.sums(np.ones(len(below.value)), len(bare)) == 0
        if bare.any():
            raise BadInput(f"tier {at}: expected counts of all nodes without children, got none of one")


def _averaged(tier: Tier, below: Tier | None) -> Tier:
    """A node's own count with the sum of its children's, which were averaged before."""
    if below is None:
        return tier
    nodes = len(tier.value)
    family = below.sums(np.ones(len(below.value)), nodes) > 0
    total, variance = below.sums(below.value, nodes), below.sums(below.variance, nodes)
    own = 1 / tier.variance
    theirs = np.where(family, 1 / np.where(family, variance, 1.0), 0.0)
    together = own + theirs
    return Tier((tier.value * own + total * theirs) / together, 1 / together, tier.parent)


def _shared(tier: Tier, above: Tier) -> Tier:
    """Children moved so that they add up to their parents, which are final."""
    nodes = len(above.value)
    total, variance = tier.sums(tier.value, nodes), tier.sums(tier.variance, nodes)
    has = tier.parent >= 0
    up = np.where(has, tier.parent, 0)
    if not nodes:
        return tier
    share = np.where(has, tier.variance / np.where(has, variance[up], 1.0), 0.0)
    value = tier.value + share * (above.value - total)[up]
    return Tier(value, tier.variance - share**2 * (variance - above.variance)[up], tier.parent)
