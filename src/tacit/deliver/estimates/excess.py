"""How much less a general context tells than its count suggests, because its requests came in a few kinds.

The rates of contexts below a node vary around the node's own. So the clicks at a node vary more than a
binomial: requests from one and the same child share that child's deviation. With n_c requests at child c, whose
rate has the variance s around its parent's, that adds sum_c n_c (n_c - 1) s to the variance of the clicks, at
each level below.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.statistics import Counts, Floats, Integers, LevelCounts


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
