"""What every estimator gives, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.statistics import Counts, Floats, Integers

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Rates, and the expected squares of their errors; both (nodes, ads) as they were asked for."""

    rate: Floats
    variance: Floats


class Estimator(Protocol):
    """A way from counts to rates. Refuses nodes that are unknown or have no statistics, by name."""

    def rates(self, counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> Estimate: ...


def expect_asked(counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> tuple[Integers, Integers]:
    """Nodes and ads as whole numbers of 64 bits; refuses unknown ones, and nodes without any statistics.

    Those have a total of 0 (or less, by noisy counts), and so have all their ancestors.
    """
    level = counts.at(levels)
    nodes, ads = np.asarray(nodes), np.asarray(ads)
    for name, ids, most in (("nodes", nodes, level.nodes), ("ads", ads, level.ads)):
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise BadInput(
                f"expected {name} to be a list of whole numbers, got {ids.dtype} of shape {ids.shape}"
            )
        strange = ids[(ids < 0) | (ids >= most)]
        if strange.size:
            raise BadInput(
                f"level {levels}: expected {name} from 0 to {most - 1}, got {strange[0]}"
                + (", a context that is unknown here: ask at a coarser level" if name == "nodes" else "")
            )
    nodes, ads = nodes.astype(np.int64), ads.astype(np.int64)
    bare = nodes[~has_statistics(counts, levels)[nodes]]
    if bare.size:
        raise BadInput(
            f"context {counts.name(levels, int(bare[0]))}: expected statistics of it or of a more general one, "
            "got a total of 0 for all"
        )
    return nodes, ads


def has_statistics(counts: Counts, levels: Levels) -> Flags:
    """(nodes,) whether a node or one of its ancestors has a total above 0."""
    found: dict[Levels, Flags] = {}
    for each in reversed(counts.levels):
        found[each] = counts.by_level[each].total > 0
        for coarser in counts.parents(each):
            found[each] = found[each] | found[coarser][counts.parent[each, coarser]]
    return found[levels]
