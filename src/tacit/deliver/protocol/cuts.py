"""Cuts of a tree of contexts: which generalised context is disclosed for each exact one.

A cut puts the leaves of the tree in blocks, and the block that holds the person's context is disclosed. Here
are the cut itself, the finest cut whose every block is safe (for any test of safe), cuts that are levels, a
finer form in which a node's safe children are disclosed by themselves and its other children as the
remainder, the tree of a sequence of levels (so that contexts of several attributes can be cut), and a block
as it is sent to the server: a node, and the children of it that are excluded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tacit import expect
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node, is_coarser
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import ANYTHING, Tree


@dataclass(frozen=True)
class CutBlock:
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
    blocks: tuple[CutBlock, ...]
    _block_of: Mapping[str, CutBlock] = field(init=False, compare=False, repr=False)  # by leaf

    def __init__(self, tree: Tree, blocks: Iterable[CutBlock]) -> None:
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "blocks", tuple(blocks))
        object.__setattr__(self, "_block_of", _leaves_to_blocks(tree, self.blocks))

    def of(self, leaf: str) -> CutBlock:
        """The block to disclose for this context, which the refusal does not repeat."""
        if leaf not in self._block_of:
            raise BadInput("expected a context that is a leaf of the tree, got another")
        return self._block_of[leaf]

    def is_at_least_as_fine_as(self, other: Cut) -> bool:
        """Whether each block lies within one block of the other cut."""
        if self.tree != other.tree:
            raise BadInput("expected two cuts of one tree, got cuts of two trees")
        within: dict[CutBlock, CutBlock] = {}
        return all(
            within.setdefault(block, other.of(leaf)) == other.of(leaf) for leaf, block in self._block_of.items()
        )


def _leaves_to_blocks(tree: Tree, blocks: tuple[CutBlock, ...]) -> dict[str, CutBlock]:
    starts: dict[str, CutBlock] = {}
    for block in blocks:
        if starts.setdefault(block.node, block) is not block:
            raise BadInput(f"node {block.node!r}: expected one block that starts there, got two")
        children = set(tree.children(block.node))
        strangers = [node for node in block.without if node not in children]
        if strangers or len(set(block.without)) < len(block.without):
            raise BadInput(f"node {block.node!r}: expected a block without some of its children, got others")
        if children and len(block.without) == len(children):
            raise BadInput(f"node {block.node!r}: expected a rest with at least one child, got none")
    held: dict[str, CutBlock] = {}  # by node; a child left out of its parent's block has to find its own
    found: dict[str, CutBlock] = {}
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


def finest_cut(tree: Tree, safe: Callable[[str], bool]) -> Cut | None:
    """The finest cut of whole nodes that are all safe; None if there is none: then disclose nothing.

    A node is cut into the cuts of its children where all of them have one; else it is a block itself if it is
    safe; else it leaves the matter to its parent. Asks `safe` at most once per node and takes O(nodes). Any
    other valid cut is at most as fine: below every node the valid cuts of the children are free of each other.

    Guarantee:  a disclosure leaves all leaves of a safe node possible, and each of them would be disclosed so.
    Neighbours: two leaves below one node of the cut.
    Assumes:    `safe` does not look at the person's context; and see `Cut`.
    Source:     Hardt and Nath, CCS 2012, section 2, asks for such a cut; the recursion is ours. Not "the lowest
                safe ancestor of each leaf": there, a disclosed v also says "below no safe child of v", and what
                is then left possible need not be safe.
    """
    expect.kind("tree", tree, Tree)
    split: dict[str, bool] = {}
    served: dict[str, bool] = {}  # has a cut of its own
    for node in reversed(tree.nodes):  # children before parents
        children = tree.children(node)
        split[node] = bool(children) and all(served[child] for child in children)
        served[node] = split[node] or safe(node)
    if not served[tree.root]:
        return None
    blocks, waiting = [], [tree.root]
    while waiting:
        node = waiting.pop()
        if split[node]:
            waiting.extend(reversed(tree.children(node)))
        else:
            blocks.append(CutBlock(node))
    return Cut(tree, blocks)


def depth_cut(tree: Tree, depth: int) -> Cut:
    """The nodes `depth` steps below the root, and the leaves that end before: depth 0 discloses nothing."""
    depth = expect.whole("depth", depth, at_least=0)
    return Cut(
        tree,
        [
            CutBlock(node)
            for node in tree.nodes
            if tree.depth(node) == depth or (tree.depth(node) < depth and not tree.children(node))
        ],
    )


def root_cut(tree: Tree) -> Cut:
    """The cut that tells nothing: everyone is below the root."""
    return depth_cut(tree, 0)


SafeBlock = Callable[[CutBlock], bool]


def finest_cut_with_remainders(
    tree: Tree, safe: SafeBlock, size: Callable[[str], float] | None = None
) -> Cut | None:
    """A cut of nodes and rests of nodes, all safe, at least as fine as `finest_cut`; None if there is none.

    Where only some children of a node have a cut, those keep it and the others form the rest, which must be
    safe as well: until it is, it takes in the smallest child that was kept (by `size`, the number of leaves
    unless told), and at last gives back, the largest first, those it turns out not to need.

    Guarantee:  a disclosure leaves all leaves of its block possible: all below v, or all below v but not below
                its children with blocks of their own; `safe` held for exactly that set of leaves.
    Neighbours: two leaves of one block.
    Assumes:    `safe` and `size` do not look at the person's context; and see `Cut`. A cut made for one person
                tells more of their setting than one of whole nodes, since it has more shapes (see
                `disclosure`).
    Source:     ours, beyond Hardt and Nath, CCS 2012. Not the finest of all such cuts: a child that cannot be
                cut goes into the rest whole, safe grandchildren and all.
    """
    expect.kind("tree", tree, Tree)
    leaves: dict[str, float] = {}
    kept: dict[str, tuple[str, ...]] = {}
    served: dict[str, bool] = {}
    for node in reversed(tree.nodes):  # children before parents
        children = tree.children(node)
        leaves[node] = sum(leaves[child] for child in children) if children else 1
        kept[node] = tuple(child for child in children if served[child])
        if children and len(kept[node]) == len(children):
            served[node] = True
            continue
        kept[node] = _kept_beside_a_safe_rest(node, kept[node], safe, size or leaves.__getitem__)
        served[node] = bool(kept[node]) or safe(CutBlock(node))
    if not served[tree.root]:
        return None
    blocks, waiting = [], [tree.root]
    while waiting:
        node = waiting.pop()
        if not kept[node] or len(kept[node]) < len(tree.children(node)):
            blocks.append(CutBlock(node, kept[node]))
        waiting.extend(reversed(kept[node]))
    return Cut(tree, blocks)


def _kept_beside_a_safe_rest(
    node: str, able: tuple[str, ...], safe: SafeBlock, size: Callable[[str], float]
) -> tuple[str, ...]:
    """Which of the children that have a cut keep it; none if no rest but the whole node would do."""
    place = {child: i for i, child in enumerate(able)}
    stay = sorted(able, key=lambda child: (size(child), place[child]), reverse=True)
    taken: list[str] = []
    while stay and not safe(CutBlock(node, _in_order(stay, place))):
        taken.append(stay.pop())
    for child in reversed(taken):
        if safe(CutBlock(node, _in_order([*stay, child], place))):
            stay.append(child)
    return _in_order(stay, place)


def _in_order(children: list[str], place: dict[str, int]) -> tuple[str, ...]:
    return tuple(sorted(children, key=place.__getitem__))


def node_name(node: Node) -> str:
    """What a node is called in the tree: its levels too, since two levels can say the same.

    Values are quoted, or a value that reads like two could make two nodes one.
    """
    expect.kind("node", node, Node)
    return f"{Node(node.levels, tuple(map(_quoted, node.values)), node.names)} {node.levels}"


def context_tree(nodes: ContextNodes) -> Tree:
    """The tree of all known contexts; its leaves are those of the finest level.

    Which contexts there are becomes public with it: take them from a public list, not from people's logs.
    """
    expect.kind("nodes", nodes, ContextNodes)
    chain = sorted(nodes.levels, key=sum)
    for finer, coarser in pairwise(chain):
        if not is_coarser(coarser, finer):
            raise BadInput(f"expected levels of a sequence, got {finer} and {coarser}")
    if nodes.count(chain[-1]) != 1:
        raise BadInput(
            f"expected one context at the coarsest level, got {nodes.count(chain[-1])} at {chain[-1]}"
        )
    names = {each: [node_name(nodes.name(each, i)) for i in range(nodes.count(each))] for each in chain}
    for each in chain:
        if len(set(names[each])) < len(names[each]):
            raise BadInput(f"expected contexts with names of their own, got two of one name at {each}")
    parent: dict[str, str | None] = {names[chain[-1]][0]: None}
    for finer, coarser in pairwise(chain):
        parent.update(
            (name, names[coarser][above])
            for name, above in zip(names[finer], nodes.parent(finer, coarser), strict=True)
        )
    return Tree.of(parent)


def _quoted(value: str) -> str:
    return value if value == ANYTHING else repr(value)


class Disclosure(NamedTuple):
    """What is disclosed: the context lies below `node`, and below none of `without`."""

    node: Node
    without: tuple[Node, ...]


def nodes_by_name(nodes: ContextNodes) -> dict[str, Node]:
    """Every node of the tree that `context_tree` makes, by the name that it has there."""
    expect.kind("nodes", nodes, ContextNodes)
    every = (nodes.name(levels, at) for levels in nodes.levels for at in range(nodes.count(levels)))
    return {node_name(node): node for node in every}


def disclose_block(block: CutBlock, by_name: Mapping[str, Node]) -> Disclosure:
    """The block as nodes, for `CandidateServer.answer(node, k, without=without)`.

    The device's `DeviceContext` discloses the same node.
    """
    expect.kind("block", block, CutBlock)
    for name in (block.node, *block.without):
        if name not in by_name:
            raise BadInput(f"node {name!r}: expected a node of the tree of contexts, got another")
    return Disclosure(by_name[block.node], tuple(by_name[name] for name in block.without))


def cut_as_json(cut: Cut, by_name: Mapping[str, Node]) -> dict[str, Any]:
    """A published cut for devices without Python: the levels at which the block of each context is told, by the
    context as [levels, values] in JSON. With it a device discloses what `CutDisclosure` does."""
    expect.kind("cut", cut, Cut)
    told = {}
    for leaf in cut.tree.leaves():
        block = disclose_block(cut.of(leaf), by_name)
        node = disclose_block(CutBlock(leaf), by_name).node
        name = json.dumps([node.levels, node.values], ensure_ascii=False, separators=(",", ":"))
        told[name] = list(block.node.levels)
    return {"version": 1, "told": told}
