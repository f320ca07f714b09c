"""A block of a cut of contexts, as it is told to the server: a node, and which of its children it is not in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tacit.deliver.disclosure.blocks import Block
from tacit.deliver.disclosure.contexts import node_name
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.contexts.nodes import ContextNodes


class Told(NamedTuple):
    """What is disclosed: the context lies below `node`, and below none of `without`."""

    node: Node
    without: tuple[Node, ...]


def nodes_by_name(nodes: ContextNodes) -> dict[str, Node]:
    """Every node of the tree that `context_tree` makes, by the name that it has there."""
    every = (nodes.name(levels, at) for levels in nodes.levels for at in range(nodes.count(levels)))
    return {node_name(node): node for node in every}


def told(block: Block, by_name: Mapping[str, Node]) -> Told:
    """For `CandidateServer.answer(node, k, without=without)`; the device's `Here` discloses the same node."""
    for name in (block.node, *block.without):
        if name not in by_name:
            raise BadInput(f"node {name!r}: expected a node of the tree of contexts, got another")
    return Told(by_name[block.node], tuple(by_name[name] for name in block.without))
