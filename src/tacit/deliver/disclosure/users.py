"""A minimum of users: no block is disclosed in which too few people are ever found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tacit import expect
from tacit.deliver.disclosure.blocks import Block
from tacit.deliver.disclosure.noise import Margin
from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree

TRIES_A_NODE = 3


@dataclass(frozen=True, eq=False)
class MinimumUsers:
    """Safe are the blocks with at least so many users, by public counts of users at every node of the tree.

    Pass it to `finest_cut_with_rests`, or `whole` of it to `finest_cut`. A user may have been counted at
    several nodes, so counts of children do not add up. Of the rest of v at least the larger is known of: the
    users of v less those of each child left out, and the users of its largest child. Counts that carry noise of
    standard deviation `noise_sd`, each its own, must pass by a margin for their kind of noise (`normal`, say).
    Counts without noise must be possible: none below zero, below one of its children, or above their sum.

    Guarantee:  every block has at least `at_least` users. With noise: all blocks of the cut have, together,
                except with probability `failure`, of which each of 3 tries a node has an equal share.
    Neighbours: none: this hides one person among those counted, not their part in the counts.
    Assumes:    counts that are public or released with differential privacy of their own; noise of the kind and
                deviation given, symmetric, independent between nodes; one set of noisy counts and the cuts made
                of it (counts that are drawn anew try anew); the people counted are those who are there later.
    Source:     ours; k-anonymity with a lower confidence bound. The tries at a node with m children: all of it;
                the rests without its 1, 2, ... m - 1 largest children by noisy count; its noise far below zero.
                In all that is fewer than 3 times the nodes, whatever a recursion asks for. Which children are
                the largest depends on their noise, but for the better: given the others, the noise of the
                largest is cut off from below, and it is taken away. Any other rest may have been picked for its
                noise, so there each single count has a whole margin.
    """

    tree: Tree
    users: Mapping[str, float]  # by node
    at_least: int
    noise_sd: float = 0.0
    noise: Margin | None = None  # the kind: there is no default, since tails differ
    failure: float = 1e-6
    _place: Mapping[str, int] = field(init=False, repr=False)  # by node; between equal counts

    def __post_init__(self) -> None:
        expect.whole("at_least", self.at_least, at_least=1)
        object.__setattr__(self, "noise_sd", float(expect.at_least_zero("noise_sd", self.noise_sd)))
        object.__setattr__(self, "failure", float(expect.probability("failure", self.failure)))
        if self.noise_sd and self.noise is None:
            raise BadInput(
                "expected a kind of noise for noise_sd > 0, such as noise.normal or laplace, got none"
            )
        for node in self.tree.nodes:
            if node not in self.users or not math.isfinite(self.users[node]):
                raise BadInput(f"node {node!r}: expected a finite count of users, got none")
        if not self.noise_sd:
            _refuse_impossible(self.tree, self.users)
        object.__setattr__(self, "_place", {node: place for place, node in enumerate(self.tree.nodes)})

    def __call__(self, block: Block) -> bool:
        left_out = set(block.without)
        rest = [child for child in self.tree.children(block.node) if child not in left_out]
        count = self.users[block.node] - sum(self.users[child] for child in block.without)
        if count - self._margin_of_rest(block.without, rest) >= self.at_least:
            return True
        return max((self.users[child] for child in rest), default=-math.inf) - self._margin(1) >= self.at_least

    def whole(self, node: str) -> bool:
        return self(Block(node))

    def size(self, node: str) -> float:
        """For rests to take in the child with the fewest users first."""
        return self.users[node]

    def _margin_of_rest(self, without: tuple[str, ...], rest: list[str]) -> float:
        counts = 1 + len(without)
        if without and max(map(self._rank, rest), default=(-math.inf, 0)) > min(map(self._rank, without)):
            return counts * self._margin(1)
        return self._margin(counts)

    def _margin(self, counts: int) -> float:
        """What the noise of so many counts, added or taken away, reaches in one try."""
        if self.noise is None or not self.noise_sd:
            return 0.0
        return self.noise(self.noise_sd, counts, self.failure / (TRIES_A_NODE * len(self.tree)))

    def _rank(self, node: str) -> tuple[float, int]:
        return self.users[node], self._place[node]


def _refuse_impossible(tree: Tree, users: Mapping[str, float]) -> None:
    for node in tree.nodes:
        if users[node] < 0:
            raise BadInput(f"node {node!r}: expected a count of users >= 0, got {users[node]:g}")
    for node in tree.nodes:
        children = tree.children(node)
        for child in children:
            if users[child] > users[node]:
                raise BadInput(
                    f"node {child!r}: expected at most the {users[node]:g} users of {node!r} above it, "
                    f"got {users[child]:g}"
                )
        most = math.fsum(users[child] for child in children) * (1 + 1e-12)  # counts may be fractions
        if children and users[node] > most:
            raise BadInput(
                f"node {node!r}: expected at most the {most:g} users of its children together, "
                f"got {users[node]:g}"
            )
