"""What one attribute of a context is, and how a tree of categories coarsens it; `places` coarsens points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tacit import expect
from tacit.errors import BadInput
from tacit.schema.contexts.tree import ANYTHING, Tree

BETWEEN, NONE = " + ", "-"  # how a set of values is written


class Attribute(Protocol):
    """One thing that is known about a moment, from exact (level 0) to nothing (the last level, ANYTHING).

    Levels nest: what a level says follows from what any finer level says. Two values that agree at one level
    agree at every coarser one, so disclosing a coarse level next to a fine one tells nothing more, and a
    node has one parent. A kind that breaks this (rounding to the nearest does) must not be one.

    A value is a person's own, so a refusal never repeats it.
    """

    @property
    def name(self) -> str: ...

    @property
    def levels(self) -> int:
        """How many there are, the last among them."""

    def check(self, value: Any) -> None:
        """Refuse a value that is not of this attribute."""

    def generalise(self, value: Any, level: int) -> str:
        """What may be said of the value at this level; refuses what `check` does."""

    def typed(self, text: str) -> Any:
        """The value that a person wrote so, which `check` may still refuse."""


@dataclass(frozen=True)
class Steps:
    """A node of a tree, inner or leaf. Level i keeps at most depths[i] steps below the root, which is ANYTHING.

    By default these are all depths, the deepest first: where all leaves are equally deep, level i goes i steps
    up from each. Where they are not, a value at depth d is told exactly at the levels that keep d steps or
    more, and goes up with its longer neighbours from there. So an inner node that leaves go up to is said by
    all that lies below it. Steps counted from each leaf would not do that: with a clinic at depth 2 and shops
    at depth 3, "Health" one step up would be said by the clinic alone, and mean the clinic.
    """

    name: str
    tree: Tree
    depths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        named(self.name)
        if self.depths is not None:
            object.__setattr__(self, "depths", falling(f"{self.name}: depths", self.depths, at_least=1))

    @property
    def levels(self) -> int:
        return len(self._depths) + 1

    def check(self, value: Any) -> None:
        if value not in self.tree:
            raise BadInput(f"{self.name}: expected a node of its tree, got a value that is not in it")

    def generalise(self, value: Any, level: int) -> str:
        self.check(value)
        return ANYTHING if is_last(self, level) else self.ancestor(value, level)

    def ancestor(self, node: str, level: int) -> str:
        """What a node of the tree becomes at a level before the last."""
        for _ in range(self.tree.depth(node) - self._depths[level]):
            node = self.tree.parent(node) or node
        return ANYTHING if node == self.tree.root else node

    def typed(self, text: str) -> str:
        return text.strip()

    @property
    def _depths(self) -> Sequence[int]:
        return range(self.tree.height, 0, -1) if self.depths is None else self.depths


@dataclass(frozen=True)
class SetOf:
    """Several nodes of a tree at once, at most `most`; each goes up by itself, and equals become one."""

    of: Steps
    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", expect.whole(f"{self.name}: most", self.most, at_least=1))
        for node in self.of.tree.nodes:
            if BETWEEN in node or node == NONE:
                raise BadInput(
                    f"{self.name}: expected no node named {NONE!r} or with {BETWEEN!r}, got {node!r}"
                )

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def levels(self) -> int:
        return self.of.levels

    def check(self, value: Any) -> None:
        if isinstance(value, str) or not isinstance(value, list | tuple | frozenset | set):
            raise BadInput(f"{self.name}: expected a list of nodes, got something else")
        if len(value) > self.most:
            raise BadInput(f"{self.name}: expected at most {self.most} values, got {len(value)}")
        tree = self.of.tree
        if not all(each in tree for each in value):
            raise BadInput(f"{self.name}: expected nodes of its tree, got a value that is not in it")

    def generalise(self, value: Any, level: int) -> str:
        self.check(value)
        if is_last(self, level):
            return ANYTHING
        return BETWEEN.join(sorted({self.of.ancestor(each, level) for each in value})) or NONE

    def typed(self, text: str) -> tuple[str, ...]:
        """With commas between them."""
        return tuple(part.strip() for part in text.split(",") if part.strip())


def is_last(attribute: Attribute, level: int) -> bool:
    """Whether nothing is said at this level; refuses one that is not there."""
    last = attribute.levels - 1
    if not 0 <= level <= last:
        raise BadInput(f"{attribute.name}: expected a level from 0 to {last}, got {level!r}")
    return level == last


def falling(name: str, numbers: Any, *, at_least: int) -> tuple[int, ...]:
    """Whole numbers, each less than the one before."""
    if isinstance(numbers, str) or not isinstance(numbers, Sequence) or not numbers:
        raise BadInput(f"expected {name} to be a list of whole numbers, got {numbers!r}")
    found = tuple(expect.whole(f"each of {name}", each, at_least=at_least) for each in numbers)
    if any(later >= earlier for earlier, later in itertools.pairwise(found)):
        raise BadInput(f"expected {name} to fall, the finest first, got {list(found)}")
    return found


def named(name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"expected an attribute's name to be a text that is not empty, got {name!r}")
