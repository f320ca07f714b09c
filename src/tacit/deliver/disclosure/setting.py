"""A person's privacy setting: a level of the hierarchy, or what every disclosure must leave open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tacit import expect
from tacit.deliver.disclosure.blocks import Block
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node
from tacit.schema.contexts.tree import Tree


@dataclass(frozen=True)
class Level:
    """Disclose every context at these levels, one an attribute.

    Guarantee:  the disclosure tells what the context is at these levels, and nothing finer; no number is
                promised for how many contexts that leaves.
    Neighbours: two contexts that agree at these levels.
    Assumes:    the level was chosen without looking at the context; one disclosure is seen (see the package).
                Where branches of a tree are of unequal length, a short one is told exactly until the level's
                depth reaches it (see `Steps`).
    Source:     Hardt and Nath, CCS 2012, section 2.
    """

    levels: Levels

    def disclose(self, hierarchy: Hierarchy, context: Sequence[Any]) -> Node:
        if self.levels not in hierarchy.levels():
            raise BadInput(f"expected a level of the hierarchy, got {self.levels}")
        return hierarchy.at(context, self.levels)


@dataclass(frozen=True)
class Requirement:
    """What each disclosure must leave open: enough leaves, and enough that are not sensitive.

    A block is safe if it has at least `min_descendants` leaves, and at least `ratio` leaves that are not
    sensitive for each that is. Two safe blocks together are safe.

    Guarantee:  with a cut whose every block is safe, a disclosure leaves at least `min_descendants` contexts
                possible, of which at most one in 1 + ratio is sensitive to this person.
    Neighbours: two leaves of one block.
    Assumes:    all leaves of a block are as likely to the reader; and see `Cut`. This is l-diversity over
                leaves, not differential privacy.
    Source:     Hardt and Nath, CCS 2012, section 2; Machanavajjhala et al., TKDD 2007.
    """

    min_descendants: int
    ratio: Fraction
    sensitive: frozenset[str] = field(repr=False)  # the person's own: not printed, and not in a refusal

    def __init__(self, min_descendants: int, ratio: expect.Number, sensitive: Iterable[str] = ()) -> None:
        if isinstance(sensitive, str):
            raise BadInput("expected sensitive to be several leaves, got one text")
        least = expect.whole("min_descendants", min_descendants, at_least=1)
        object.__setattr__(self, "min_descendants", least)
        object.__setattr__(self, "ratio", expect.at_least_zero("ratio", ratio))
        object.__setattr__(self, "sensitive", frozenset(sensitive))

    def holds(self, leaves: int, sensitive: int) -> bool:
        return leaves >= self.min_descendants and leaves - sensitive >= self.ratio * sensitive

    def on(self, tree: Tree) -> Callable[[Block], bool]:
        """Whether a block of this tree is safe; counting the tree's leaves takes O(nodes), once."""
        leaves: dict[str, int] = {}
        marked: dict[str, int] = {}
        for node in reversed(tree.nodes):
            children = tree.children(node)
            leaves[node] = sum(leaves[child] for child in children) if children else 1
            marked[node] = sum(marked[child] for child in children) if children else node in self.sensitive
        if marked[tree.root] != len(self.sensitive):
            strange = len(self.sensitive) - marked[tree.root]
            raise BadInput(f"expected sensitive to be leaves of the tree, got {strange} that are not")

        def safe(block: Block) -> bool:
            return self.holds(
                leaves[block.node] - sum(leaves[child] for child in block.without),
                marked[block.node] - sum(marked[child] for child in block.without),
            )

        return safe


Setting = Level | Requirement
