"""Small hierarchies and logs for tests: what people clicked in a few places."""

from __future__ import annotations

from collections.abc import Sequence as Values

from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Levels, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.counts import Counts

PLACES = Tree.of_paths(["Food>Coffee", "Food>Tea", "Sport>Yoga", "Sport>Run"])
LEAF, TOP, ANY = (0,), (1,), (2,)


def places() -> Sequence:
    return Sequence([Steps("place", PLACES)], [LEAF, TOP, ANY])


def nodes_of(clicks: Values[tuple[str, int]]) -> ContextNodes:
    return ContextNodes.of(places(), {"place": [place for place, _ in clicks]})


def counts_of(clicks: Values[tuple[str, int]], ads: int, levels: Values[Levels] | None = None) -> Counts:
    """Each row a click: where, and on which ad."""
    return Counts.of_rows(nodes_of(clicks), [ad for _, ad in clicks], ads, levels=levels)


def lattice() -> Lattice:
    """Two attributes of two levels: four levels, the finest with two parents."""
    where = Tree.of_paths(["North", "South"])
    what = Tree.of_paths(["Coffee", "Tea", "Yoga"])
    return Lattice([Steps("where", where), Steps("what", what)])
