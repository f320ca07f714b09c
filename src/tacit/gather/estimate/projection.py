"""Counts that are not negative: from the top down, each family on the simplex of its parent's count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.gather.estimate.consistency import NO_PARENT, Tier, expect_tree
from tacit.schema.statistics import Floats, Integers


def non_negative(tiers: Sequence[Tier]) -> tuple[Floats, ...]:
    """Counts >= 0 that add up, from consistent ones: nodes without a parent first, then family by family.

    Each family becomes the nearest point, in squares over variances, of the simplex {u >= 0, sum = parent}:
    u = max(0, value - shift variance), with the shift that makes them add up. No longer without bias: what is
    empty comes out above 0. But closer, the more so where most is empty. It costs no privacy.

    Source: the projection: Duchi, Shalev-Shwartz, Singer, Chandra 2008 (ICML), here with weights.
    """
    expect_tree(tiers)
    found: list[Floats] = []
    for tier in tiers:
        alone = tier.parent == NO_PARENT
        value: Floats = np.maximum(tier.value, 0.0)
        if not alone.all():
            has = np.flatnonzero(~alone)
            value[has] = on_simplices(tier.value[has], tier.variance[has], tier.parent[has], found[-1])
        found.append(value)
    return tuple(found)


def on_simplices(value: Floats, variance: Floats, family: Integers, total: Floats) -> Floats:
    """(nodes,) each family's point; `family` says whose, `total` (families,) what each adds up to, >= 0."""
    order = np.lexsort((-value / variance, family))
    key, one, weight = family[order], value[order], variance[order]
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    sizes = np.diff(np.r_[starts, len(key)])
    # With the k members of largest value / variance above zero, this shift makes them add up.
    shift = (_running(one, starts, sizes) - total[key]) / _running(weight, starts, sizes)
    above = one > shift * weight
    above[starts] = True  # where the total is 0 nobody is above; any shift that keeps the first at 0 will do
    # The flags fall from true to false once in each family: the last true one has the shift.
    last = starts + np.add.reduceat(above.astype(np.int64), starts) - 1
    found = np.empty(len(value))
    found[order] = np.maximum(one - np.repeat(shift[last], sizes) * weight, 0.0)
    return found


def _running(parts: Floats, starts: Integers, sizes: Integers) -> Floats:
    """Sums from each family's first member on."""
    summed = np.cumsum(parts)
    before = np.r_[0.0, summed][starts]
    running: Floats = summed - np.repeat(before, sizes)
    return running
