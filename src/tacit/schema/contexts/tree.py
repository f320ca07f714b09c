"""A tree of named nodes, checked when it is made: one root, every parent a node, no node twice, no cycle.

>>> tree = Tree.of({"All": None, "Food": "All", "Coffee": "Food", "Tea": "Food", "Sport": "All"})
>>> tree.root, tree.height, tree.leaves("Food")
('All', 2, ('Coffee', 'Tea'))
>>> tree.path("Tea")
('Tea', 'Food', 'All')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tacit import expect
from tacit.errors import BadInput

MOST_NAMED = 12  # nodes of a cycle, in a refusal
ANYTHING = "*"  # the one value of the last level; as a parent it is a root that needs no line of its own


@dataclass(frozen=True)
class Tree:
    """`pairs` are (node, parent), the root's parent None; two trees are equal if their pairs are.

    `nodes` lists parents before their children, otherwise in the order of the pairs.
    """

    pairs: tuple[tuple[str, str | None], ...]
    root: str = field(init=False, compare=False, repr=False)
    nodes: tuple[str, ...] = field(init=False, compare=False, repr=False)
    height: int = field(init=False, compare=False, repr=False)  # steps from the deepest node up to the root
    _parent: dict[str, str | None] = field(init=False, compare=False, repr=False)
    _children: dict[str, tuple[str, ...]] = field(init=False, compare=False, repr=False)
    _depth: dict[str, int] = field(init=False, compare=False, repr=False)

    def __init__(self, pairs: Iterable[tuple[str, str | None]]) -> None:
        pairs = expect.several("pairs", pairs, tuple, list)
        parent = _check_pairs(tuple(pairs))
        root = _only_root(parent)
        children: dict[str, list[str]] = {node: [] for node in parent}
        for node, above in parent.items():
            if above is not None:
                children[above].append(node)
        depth, order = {root: 0}, [root]
        for node in order:  # grows as it is read: breadth first, without recursion, so that deep trees are fine
            for child in children[node]:
                depth[child] = depth[node] + 1
                order.append(child)
        values = {
            "pairs": tuple(sorted(parent.items())),
            "root": root,
            "nodes": tuple(order),
            "height": depth[order[-1]],
            "_parent": parent,
            "_children": {node: tuple(below) for node, below in children.items()},
            "_depth": depth,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @classmethod
    def of(cls, parent: Mapping[str, str | None]) -> Tree:
        """The tree in which `parent[node]` is above node; exactly one node has None."""
        expect.kind("parent", parent, Mapping)
        return cls(parent.items())

    @classmethod
    def of_paths(cls, paths: Iterable[str], separator: str = ">") -> Tree:
        """The tree of paths such as "Food>Coffee", from the top down, below a root that has no name but `*`."""
        paths = expect.several("paths", paths, str)
        above: dict[str, str] = {}
        for path in paths:
            node = ANYTHING
            for name in (part.strip() for part in path.split(separator)):
                if not name:
                    raise BadInput(f"path {path!r}: expected a name on each side of {separator!r}, got none")
                if above.setdefault(name, node) != node:
                    raise BadInput(
                        f"node {name!r}: expected it once in the tree, got it below {above[name]!r} and "
                        f"below {node!r}"
                    )
                node = name
        return cls(above.items())

    def __contains__(self, node: object) -> bool:
        return isinstance(node, str) and node in self._parent

    def __len__(self) -> int:
        return len(self._parent)

    def parent(self, node: str) -> str | None:
        """The node above; None for the root."""
        return self._parent[self._expect_node(node)]

    def children(self, node: str) -> tuple[str, ...]:
        return self._children[self._expect_node(node)]

    def depth(self, node: str) -> int:
        """Steps up to the root."""
        return self._depth[self._expect_node(node)]

    def path(self, node: str) -> tuple[str, ...]:
        """The node, its parent, and so on up to the root."""
        found = [self._expect_node(node)]
        while (above := self._parent[found[-1]]) is not None:
            found.append(above)
        return tuple(found)

    def leaves(self, node: str | None = None) -> tuple[str, ...]:
        """The leaves below a node (all by default), from left to right; a leaf is below itself."""
        found, waiting = [], [self.root if node is None else self._expect_node(node)]
        while waiting:
            here = waiting.pop()
            waiting.extend(reversed(self._children[here]))
            if not self._children[here]:
                found.append(here)
        return tuple(found)

    def _expect_node(self, node: str) -> str:
        """Refuses without repeating it: the tree's own nodes are public, another text may be a person's."""
        if node not in self._parent:
            raise BadInput("expected a node of the tree, got one that is not in it")
        return node


def _check_pairs(pairs: tuple[tuple[str, str | None], ...]) -> dict[str, str | None]:
    parent: dict[str, str | None] = {}
    for node, above in pairs:
        if not isinstance(node, str) or not node.strip():
            raise BadInput(f"expected the name of a node to be a text that is not empty, got {node!r}")
        if above is not None and not isinstance(above, str):
            raise BadInput(f"node {node!r}: expected its parent to be a text, got {above!r}")
        if node in parent:
            raise BadInput(f"node {node!r}: expected it once in the tree, got it twice")
        parent[node] = above
    if ANYTHING not in parent and ANYTHING in parent.values():
        parent = {ANYTHING: None, **parent}
    if not parent:
        raise BadInput("expected a tree of at least one node, got none")
    if parent.get(ANYTHING) is not None:
        raise BadInput(f"node {ANYTHING!r}: expected it to be the root, got a parent {parent[ANYTHING]!r}")
    for node, above in parent.items():
        if above is not None and above not in parent:
            raise BadInput(f"node {node!r}: expected its parent to be a node of the tree, got {above!r}")
    _refuse_cycles(parent)
    return parent


def _refuse_cycles(parent: Mapping[str, str | None]) -> None:
    """Walk up from every node; a walk that meets itself has found a cycle, which is named, if not too long."""
    walked: dict[str, int] = {}  # node -> the walk that passed it first
    for walk, start in enumerate(parent):
        node: str | None = start
        while node is not None and node not in walked:
            walked[node] = walk
            node = parent[node]
        if node is None or walked[node] != walk:
            continue
        cycle, above = [node], parent[node]
        while above is not None and above != node:
            cycle.append(above)
            above = parent[above]
        first = cycle.index(min(cycle))
        whole = [*cycle[first:], *cycle[:first], cycle[first]]
        if len(whole) > MOST_NAMED:
            whole[MOST_NAMED // 2 : -2] = [f"... {len(whole) - MOST_NAMED // 2 - 2} more ..."]
        named = " -> ".join(whole)
        raise BadInput(f"node {cycle[first]!r}: expected a way up to a root, got the cycle {named}")


def _only_root(parent: Mapping[str, str | None]) -> str:
    roots = [node for node, above in parent.items() if above is None]
    if len(roots) > 1:
        raise BadInput(
            f"expected one root, got {len(roots)}: {', '.join(map(repr, roots[:5]))}"
            f"{', ...' if len(roots) > 5 else ''} (write {ANYTHING!r} as the parent of several tops)"
        )
    return roots[0]
