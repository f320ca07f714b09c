"""A cut of a tree: its leaves in blocks, of which the one that holds the person's context is disclosed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree


@dataclass(frozen=True)
class Block:
    """The leaves below a node, except those below the children of it that have blocks of their own."""

    node: str
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"rest of {self.node}" if self.without else self.node

    def leaves(self, tree: Tree) -> tuple[str, ...]:
        """All that disclosing this block leaves possible, from left to right."""
        if not self.without:
            return tree.leaves(self.node)
        return tuple(
            leaf
            for child in tree.children(self.node)
            if child not in self.without
            for leaf in tree.leaves(child)
        )


@dataclass(frozen=True)
class Cut:
    """Blocks that hold every leaf of the tree exactly once, else they are refused.

    Guarantee:  disclosing block `of(leaf)` tells that the context is one of the block's leaves, and nothing
                about which: every one of them discloses that same block. A whole node v tells "below v"; the
                rest of v tells "below v, and below none of the children of v that have blocks of their own".
    Neighbours: two contexts, leaves of one block.
    Assumes:    the cut was chosen without looking at the context, and one disclosure is seen: those of other
                moments, their times and the network address can say more. Contexts are leaves: an inner node
                that can be a context needs a leaf of its own, since it would otherwise stand above the cut. And
                every context is listed: one that is not is refused, and to be silent only there, or to fail,
                tells that the context is an unlisted one. Give the tree a leaf "other" for all of these, and
                read a context that is no leaf as it.
    Source:     Hardt and Nath, CCS 2012, section 2 (each leaf has exactly one ancestor on the cut); the rest of
                a node is ours.
    """

    tree: Tree
    blocks: tuple[Block, ...]
    _block_of: Mapping[str, Block] = field(init=False, compare=False, repr=False)  # by leaf

    def __init__(self, tree: Tree, blocks: Iterable[Block]) -> None:
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "blocks", tuple(blocks))
        object.__setattr__(self, "_block_of", _leaves_to_blocks(tree, self.blocks))

    def of(self, leaf: str) -> Block:
        """The block to disclose for this context, which the refusal does not repeat."""
        if leaf not in self._block_of:
            raise BadInput("expected a context that is a leaf of the tree, got another")
        return self._block_of[leaf]

    def is_at_least_as_fine_as(self, other: Cut) -> bool:
        """Whether each block lies within one block of the other cut."""
        if self.tree != other.tree:
            raise BadInput("expected two cuts of one tree, got cuts of two trees")
        within: dict[Block, Block] = {}
        return all(
            within.setdefault(block, other.of(leaf)) == other.of(leaf) for leaf, block in self._block_of.items()
        )


def _leaves_to_blocks(tree: Tree, blocks: tuple[Block, ...]) -> dict[str, Block]:
    starts: dict[str, Block] = {}
    for block in blocks:
        if starts.setdefault(block.node, block) is not block:
            raise BadInput(f"node {block.node!r}: expected one block that starts there, got two")
        children = set(tree.children(block.node))
        strangers = [node for node in block.without if node not in children]
        if strangers or len(set(block.without)) < len(block.without):
            raise BadInput(f"node {block.node!r}: expected a block without some of its children, got others")
        if children and len(block.without) == len(children):
            raise BadInput(f"node {block.node!r}: expected a rest with at least one child, got none")
    held: dict[str, Block] = {}  # by node; a child left out of its parent's block has to find its own
    found: dict[str, Block] = {}
    for node in tree.nodes:
        above = tree.parent(node)
        outer = None if above is None else held.get(above)
        if outer is not None and outer.node == above and node in outer.without:
            outer = None
        inner = starts.get(node)
        if outer is not None and inner is not None:
            raise BadInput(f"node {node!r}: expected blocks that do not overlap, got it in {str(outer)!r} too")
        block_here = inner or outer
        if block_here is not None:
            held[node] = block_here
        if not tree.children(node):
            if block_here is None:
                raise BadInput(f"node {node!r}: expected every leaf in a block, got it in none")
            found[node] = block_here
    return found
