"""Finer cuts for free: a node's safe children are disclosed by themselves, and the rest of it as such."""

from __future__ import annotations

from collections.abc import Callable

from tacit.deliver.disclosure.blocks import Block, Cut
from tacit.schema.contexts.tree import Tree

SafeBlock = Callable[[Block], bool]


def finest_cut_with_rests(
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
                tells more of their setting than one of whole nodes, since it has more shapes (see `menu`).
    Source:     ours, beyond Hardt and Nath, CCS 2012. Not the finest of all such cuts: a child that cannot be
                cut goes into the rest whole, safe grandchildren and all.
    """
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
        served[node] = bool(kept[node]) or safe(Block(node))
    if not served[tree.root]:
        return None
    blocks, waiting = [], [tree.root]
    while waiting:
        node = waiting.pop()
        if not kept[node] or len(kept[node]) < len(tree.children(node)):
            blocks.append(Block(node, kept[node]))
        waiting.extend(reversed(kept[node]))
    return Cut(tree, blocks)


def _kept_beside_a_safe_rest(
    node: str, able: tuple[str, ...], safe: SafeBlock, size: Callable[[str], float]
) -> tuple[str, ...]:
    """Which of the children that have a cut keep it; none if no rest but the whole node would do."""
    place = {child: i for i, child in enumerate(able)}
    stay = sorted(able, key=lambda child: (size(child), place[child]), reverse=True)
    taken: list[str] = []
    while stay and not safe(Block(node, _in_order(stay, place))):
        taken.append(stay.pop())
    for child in reversed(taken):
        if safe(Block(node, _in_order([*stay, child], place))):
            stay.append(child)
    return _in_order(stay, place)


def _in_order(children: list[str], place: dict[str, int]) -> tuple[str, ...]:
    return tuple(sorted(children, key=place.__getitem__))
