"""A sequence of levels as one tree, so that contexts of several attributes can be cut."""

from __future__ import annotations

from itertools import pairwise

from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node, is_coarser
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import ANYTHING, Tree


def node_name(node: Node) -> str:
    """What a node is called in the tree: its levels too, since two levels can say the same.

    Values are quoted, or a value that reads like two could make two nodes one.
    """
    return f"{Node(node.levels, tuple(map(_quoted, node.values)), node.names)} {node.levels}"


def context_tree(nodes: ContextNodes) -> Tree:
    """The tree of all known contexts; its leaves are those of the finest level.

    Which contexts there are becomes public with it: take them from a public list, not from people's logs.
    """
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
