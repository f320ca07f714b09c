"""A minimum of users: no block is disclosed in which too few people are ever found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tacit import expect
from tacit.deliver.disclosure.blocks import Block
from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree


@dataclass(frozen=True, eq=False)
class MinimumUsers:
    """Safe are the blocks with at least so many users, by public counts of users at every node of the tree.

    Pass it to `finest_cut_with_rests`, or `whole` of it to `finest_cut`. A user may have been counted at
    several nodes, so counts of children do not add up. Of the rest of v at least the larger is known of: the
    users of v less those of each child left out, and the users of its largest child. Counts that carry noise of
    standard deviation `noise_sd`, each its own, must pass by `z` deviations of the sum.

    Guarantee:  every block has at least `at_least` users. With noise: a block that has fewer passes with
                probability at most 1 - Phi(z) by each count it is tried by (z = 4: 3.2e-5), so a cut has such a
                block with probability at most that, times the nodes of the tree and their tries.
    Neighbours: none: this hides one person among those counted, not their part in the counts.
    Assumes:    counts that are public or released with differential privacy of their own; normal noise,
                independent between nodes; the people counted are those who are there later.
    Source:     ours; k-anonymity with a lower confidence bound.
    """

    tree: Tree
    users: Mapping[str, float]  # by node
    at_least: int
    noise_sd: float = 0.0
    z: float = 4.0

    def __post_init__(self) -> None:
        expect.whole("at_least", self.at_least, at_least=1)
        expect.at_least_zero("noise_sd", self.noise_sd)
        expect.at_least_zero("z", self.z)
        for node in self.tree.nodes:
            if node not in self.users or not math.isfinite(self.users[node]):
                raise BadInput(f"node {node!r}: expected a finite count of users, got none")

    def __call__(self, block: Block) -> bool:
        if self._passes(
            self.users[block.node] - sum(self.users[c] for c in block.without), 1 + len(block.without)
        ):
            return True
        rest = (c for c in self.tree.children(block.node) if c not in block.without)
        return any(self._passes(self.users[child], 1) for child in rest)

    def whole(self, node: str) -> bool:
        return self(Block(node))

    def size(self, node: str) -> float:
        """For rests to take in the child with the fewest users first."""
        return self.users[node]

    def _passes(self, count: float, counts: int) -> bool:
        return count - self.z * self.noise_sd * math.sqrt(counts) >= self.at_least
