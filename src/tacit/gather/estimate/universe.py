"""The contexts that a run may ask about: all combinations of public values, whatever devices hold.

Which nodes exist must not depend on private data: a node that is there because somebody was in it tells that by
being asked about. So nodes come from lists that anybody could write down (the map's cells, the tree of
categories), not from a log. A device whose context is on no list adds to the coarser nodes that it is in, and
to none below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Levels
from tacit.schema.contexts.nodes import ContextNodes

MOST_CONTEXTS = 5_000_000


def public_nodes(
    hierarchy: Hierarchy, values: Mapping[str, Sequence[Any]], levels: Iterable[Levels] | None = None
) -> ContextNodes:
    """The nodes of every combination of these exact values, by attribute; by default at all levels.

    Guarantee:  none needed: what is made here is the same whatever anybody's device holds.
    Neighbours: any two sets of devices.
    Assumes:    the values were listed without looking at private data.
    Source:     declared keys, as in Chrome's Aggregation Service.
    """
    names = [attribute.name for attribute in hierarchy.attributes]
    if set(values) != set(names):
        raise BadInput(f"expected public values for {', '.join(names)}, got {', '.join(values) or 'none'}")
    contexts = math.prod(len(values[name]) for name in names)
    if not 1 <= contexts <= MOST_CONTEXTS:
        raise BadInput(
            f"expected from 1 to {MOST_CONTEXTS:,} combinations of public values, got {contexts:,}: "
            "list fewer, one for each of the finest nodes that are asked about is enough"
        )
    columns = zip(*itertools.product(*(values[name] for name in names)), strict=True)
    return ContextNodes.of(hierarchy, dict(zip(names, map(list, columns), strict=True)), levels)
