"""Random trees, and everything about cuts the slow and obvious way: by sets of leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import numpy as np
from hypothesis import strategies as st

from tacit.deliver.protocol.cuts import Cut, CutBlock
from tacit.deliver.protocol.disclosure import Requirement
from tacit.schema.contexts.tree import Tree

Leaves = frozenset[str]


def random_tree(rng: np.random.Generator, nodes: int) -> Tree:
    """Each node below a random earlier one."""
    return tree_of([int(rng.integers(0, i)) for i in range(1, nodes)])


def tree_of(above: Iterable[int]) -> Tree:
    parents: list[tuple[str, str | None]] = [("0", None)]
    parents += [(str(i), str(up)) for i, up in enumerate(above, start=1)]
    return Tree(parents)


@st.composite
def trees(draw: st.DrawFn, most: int = 12) -> Tree:
    nodes = draw(st.integers(1, most))
    return tree_of([draw(st.integers(0, i - 1)) for i in range(1, nodes)])


@st.composite
def wanted(draw: st.DrawFn, tree: Tree) -> Requirement:
    sensitive = [leaf for leaf in tree.leaves() if draw(st.integers(0, 3)) == 0]
    return Requirement(draw(st.integers(1, 4)), draw(st.sampled_from(["0", "0.5", "1", "2", "3"])), sensitive)


def safe_set(requirement: Requirement, leaves: Leaves) -> bool:
    """The definition, on a set of leaves."""
    bad = len(leaves & requirement.sensitive)
    return len(leaves) >= requirement.min_descendants and len(leaves) - bad >= requirement.ratio * bad


def all_cuts(tree: Tree, node: str) -> list[tuple[str, ...]]:
    """Every antichain that has exactly one ancestor of each leaf below the node."""
    found: list[tuple[str, ...]] = [(node,)]
    below = [all_cuts(tree, child) for child in tree.children(node)]
    if below:
        found += [tuple(n for part in parts for n in part) for parts in product(*below)]
    return found


def as_sets(cut: Cut) -> list[Leaves]:
    return [frozenset(block.leaves(cut.tree)) for block in cut.blocks]


def is_partition(tree: Tree, parts: list[Leaves]) -> bool:
    """Each leaf in exactly one part, and no part empty."""
    return sorted(leaf for part in parts for leaf in part) == sorted(tree.leaves()) and all(parts)


def is_finer(parts: list[Leaves], than: list[Leaves]) -> bool:
    return all(any(part <= other for other in than) for part in parts)


def what_each_disclosure_fits(tree: Tree, disclose: Callable[[str], object]) -> list[Leaves]:
    """For each thing that may be disclosed, the contexts that disclose it: what its reader is left with."""
    fits: dict[object, set[str]] = {}
    for leaf in tree.leaves():
        fits.setdefault(disclose(leaf), set()).add(leaf)
    return [frozenset(leaves) for leaves in fits.values()]


def deep_tree(depth: int) -> Tree:
    """One long branch, with a leaf beside each of its nodes."""
    pairs: list[tuple[str, str | None]] = [("b0", None)]
    for i in range(1, depth):
        pairs += [(f"b{i}", f"b{i - 1}"), (f"l{i}", f"b{i - 1}")]
    return Tree(pairs)


def whole(safe: Callable[[CutBlock], bool]) -> Callable[[str], bool]:
    return lambda node: safe(CutBlock(node))
