"""The finest cut whose every node is safe, for any idea of safe; and the cuts that are levels."""

from __future__ import annotations

from collections.abc import Callable

from tacit import expect
from tacit.deliver.disclosure.blocks import Block, Cut
from tacit.schema.contexts.tree import Tree


def finest_cut(tree: Tree, safe: Callable[[str], bool]) -> Cut | None:
    """The finest cut of whole nodes that are all safe; None if there is none: then disclose nothing.

    A node is cut into the cuts of its children where all of them have one; else it is a block itself if it is
    safe; else it leaves the matter to its parent. Asks `safe` at most once a node and takes O(nodes). Any other
    valid cut is at most as fine: below every node the valid cuts of the children are free of each other.

    Guarantee:  a disclosure leaves all leaves of a safe node possible, and each of them would be disclosed so.
    Neighbours: two leaves below one node of the cut.
    Assumes:    `safe` does not look at the person's context; and see `Cut`.
    Source:     Hardt and Nath, CCS 2012, section 2, asks for such a cut; the recursion is ours. Not "the lowest
                safe ancestor of each leaf": there, a disclosed v also says "below no safe child of v", and what
                is then left possible need not be safe.
    """
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
            blocks.append(Block(node))
    return Cut(tree, blocks)


def depth_cut(tree: Tree, depth: int) -> Cut:
    """The nodes so many steps below the root, and the leaves that end before: depth 0 discloses nothing."""
    depth = expect.whole("depth", depth, at_least=0)
    return Cut(
        tree,
        [
            Block(node)
            for node in tree.nodes
            if tree.depth(node) == depth or (tree.depth(node) < depth and not tree.children(node))
        ],
    )


def nothing(tree: Tree) -> Cut:
    """The cut that tells nothing: everyone is below the root."""
    return depth_cut(tree, 0)
