"""Where the device is: its context at every level, and the one node of it that the server was told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser


@dataclass(frozen=True, eq=False)
class Here:
    """The device's own nodes, finest first as `Hierarchy.path` lists them, and the one it disclosed.

    The disclosed node is public: it went out with the request, and no differential privacy covers it. The
    others stay on the device, so they are not in the text of this object either.
    """

    path: tuple[Node, ...] = field(repr=False)
    disclosed: Node

    def __post_init__(self) -> None:
        if self._by_levels.get(self.disclosed.levels) != self.disclosed:
            raise BadInput("expected to disclose a node of the device's own context, got another")

    @classmethod
    def of(cls, hierarchy: Hierarchy, context: Sequence[Any], levels: Levels) -> Here:
        """Disclose the context at these levels."""
        return cls(hierarchy.path(context), hierarchy.at(context, levels))

    def at(self, levels: Levels) -> Node:
        """The device's node at these levels."""
        found = self._by_levels.get(levels)
        if found is None:
            raise BadInput(f"expected levels of the device's hierarchy, got {levels}")
        return found

    def finest(self, nodes: Iterable[Node]) -> Node | None:
        """The finest of these nodes that the device is in, if there is one; of a lattice, the path's first."""
        mine = [node for node in nodes if self._by_levels.get(node.levels) == node]
        return min(mine, key=self.path.index) if len(mine) > 1 else next(iter(mine), None)

    @cached_property
    def below(self) -> tuple[Node, ...]:
        """The device's nodes below the disclosed one, from coarse to fine."""
        places = _below(tuple(self._by_levels), self.disclosed.levels)
        return tuple(self.path[place] for place in places)

    @cached_property
    def _by_levels(self) -> dict[Levels, Node]:
        return {node.levels: node for node in self.path}


@lru_cache(maxsize=1024)
def _below(levels: tuple[Levels, ...], disclosed: Levels) -> tuple[int, ...]:
    finer = (place for place, each in enumerate(levels) if each != disclosed and is_coarser(disclosed, each))
    return tuple(finer)[::-1]
