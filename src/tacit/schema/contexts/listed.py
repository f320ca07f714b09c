"""Contexts that a hierarchy's own words list: all nodes of some levels, and the node above one.

Trees list their values, and what is said of nothing is one value. Places do not: there are as many as there are
cells on the globe, and the cell above one does not follow from its name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from tacit.arrays import Flags
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import BETWEEN, NONE, Attribute, SetOf, Steps
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser
from tacit.schema.contexts.tree import ANYTHING

MOST_KEPT = 10_000


def list_nodes(hierarchy: Hierarchy, levels: Iterable[Levels], most: int) -> list[Node]:
    """What is said of some leaf of every tree, at each of these levels, in the order of the file.

    Refused where an attribute is no tree and is told at all, and where there are more than `most`.
    """
    names, found = tuple(each.name for each in hierarchy.attributes), list[Node]()
    for each in levels:
        hierarchy.parents(each)  # refuses levels that are not there
        choices = [
            _values(attribute, level) for attribute, level in zip(hierarchy.attributes, each, strict=True)
        ]
        count = len(found) + math.prod(len(values) for values in choices)
        if count > most:
            raise BadInput(f"levels: expected at most {most} contexts, got {count} up to {list(each)}")
        found += [Node(tuple(each), values, names) for values in itertools.product(*choices)]
    return found


def _values(attribute: Attribute, level: int) -> tuple[str, ...]:
    if level == attribute.levels - 1:
        return (ANYTHING,)
    if not isinstance(attribute, Steps):
        raise BadInput(
            f"levels: expected attributes whose values are listed, got {attribute.name} at level {level}, "
            "which is no single node of a tree"
        )
    return tuple(dict.fromkeys(attribute.generalise(leaf, level) for leaf in attribute.tree.leaves()))


def node_above(hierarchy: Hierarchy, node: Node, levels: Levels) -> Node | None:
    """The node in which this one lies at levels that are as coarse or coarser; None where that cannot be said.

    That is: it is no node of the hierarchy, the levels are finer, or a cell's name does not tell it.
    """
    attributes = hierarchy.attributes
    if not len(attributes) == len(node.levels) == len(levels) or not is_coarser(levels, node.levels):
        return None
    if levels == node.levels:
        return node
    values = []
    for attribute, value, own, level in zip(attributes, node.values, node.levels, levels, strict=True):
        said = _coarser_value(attribute, value, own, level)
        if said is None:
            return None
        values.append(said)
    return Node(tuple(levels), tuple(values), tuple(each.name for each in attributes))


def _coarser_value(attribute: Attribute, value: str, own: int, level: int) -> str | None:
    if not own <= level < attribute.levels:
        return None
    if level == attribute.levels - 1 or value == ANYTHING:
        return ANYTHING
    if level == own:
        return value
    try:
        if isinstance(attribute, Steps):
            return attribute.generalise(value, level)
        if isinstance(attribute, SetOf):
            return attribute.generalise(() if value == NONE else tuple(value.split(BETWEEN)), level)
    except BadInput:
        return None  # no value of this tree
    return None


class ListedNodes:
    """A list of nodes of a hierarchy: which of them lie in another node, and which have something in common
    with it. Answers are flags in the order of the list."""

    def __init__(self, hierarchy: Hierarchy, nodes: Sequence[Node]) -> None:
        self.hierarchy, self.nodes = hierarchy, tuple(nodes)
        self.place = {node: place for place, node in enumerate(self.nodes)}
        if len(self.place) < len(self.nodes):
            raise BadInput("expected each context once, got one twice")
        self._flags: dict[tuple[int, int, str], tuple[Flags, Flags]] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def inside(self, node: Node) -> Flags:
        """Those at the node or below it."""
        return self._both(node, 0)

    def overlapping(self, node: Node) -> Flags:
        """Those at the node, below it, above it, or beside it with contexts in common."""
        return self._both(node, 1)

    def _both(self, node: Node, which: int) -> Flags:
        attributes = self.hierarchy.attributes
        found: Flags = np.full(len(self.nodes), len(node.levels) == len(attributes))
        if len(node.levels) == len(attributes):
            for place, (level, value) in enumerate(zip(node.levels, node.values, strict=True)):
                found &= self._of_value(place, level, value)[which]
        return found

    def _of_value(self, place: int, level: int, value: str) -> tuple[Flags, Flags]:
        known = self._flags.get((place, level, value))
        if known is None:
            attribute = self.hierarchy.attributes[place]
            if isinstance(attribute, Steps) and value != ANYTHING and value not in attribute.tree:
                nowhere: Flags = np.zeros(len(self.nodes), np.bool_)
                return nowhere, nowhere
            inside: Flags = np.zeros(len(self.nodes), np.bool_)
            overlaps = inside.copy()
            for at, node in enumerate(self.nodes):
                own, said = node.levels[place], node.values[place]
                inside[at] = own <= level and _coarser_value(attribute, said, own, level) == value
                overlaps[at] = inside[at] or (
                    level <= own and _coarser_value(attribute, value, level, own) == said
                )
            if len(self._flags) >= MOST_KEPT:  # of texts that anybody can make up
                self._flags.clear()
            known = self._flags[place, level, value] = inside, overlaps
        return known
