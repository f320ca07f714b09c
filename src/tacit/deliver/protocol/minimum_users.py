"""A minimum number of users per disclosed block, from exact or noisy public counts.

With noisy counts a block must pass by a margin. Each margin function takes the standard deviation of one
count's noise, how many counts are added or subtracted, and a probability; it returns a margin that the noise
of the sum reaches with at most that probability. The noises are independent, alike, and symmetric around
zero. Discrete Laplace noise has far heavier tails than normal noise: at a probability of 1e-10 one count needs
6.4 deviations of normal noise, and 15.8 of discrete Laplace noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist

from tacit import expect
from tacit.deliver.protocol.cuts import CutBlock
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree

Margin = Callable[[float, int, float], float]  # (noise_sd, counts, probability)


def normal_margin(noise_sd: float, counts: int, probability: float) -> float:
    """The exact quantile of normal noise."""
    expect.positive("noise_sd", noise_sd)
    expect.whole("counts", counts, at_least=1)
    expect.probability("probability", probability)
    return -NormalDist().inv_cdf(probability) * noise_sd * math.sqrt(counts)


@lru_cache(maxsize=4096)  # a node with many children asks again and again
def discrete_laplace_margin(noise_sd: float, counts: int, probability: float) -> float:
    """The noise is a whole k with probability in proportion to exp(-|k| / scale), at the scale of `noise_sd`.

    One count reaches t with probability at most exp(-t / scale) / (1 + exp(-1 / scale)), with equality at whole
    t > 0; for several this is a Chernoff bound.
    """
    expect.positive("noise_sd", noise_sd)
    expect.whole("counts", counts, at_least=1)
    expect.probability("probability", probability)
    if counts == 1:
        scale = 0.5 / math.asinh(1 / (math.sqrt(2) * noise_sd))
        return max(0.0, -scale * math.log(probability * (1 + math.exp(-1 / scale))))
    return noise_sd * _least_reached(
        lambda deviations: _discrete_laplace_log_tail(deviations * noise_sd, counts, noise_sd**2), probability
    )


def _discrete_laplace_log_tail(reach: float, counts: int, variance: float) -> float:
    """ln of min over s of exp(-s reach) / (1 - variance (cosh s - 1))^counts; y is exp(s), a square's root."""
    middle = reach * (1 + variance)
    root = math.sqrt(reach * reach * (1 + 2 * variance) + (counts * variance) ** 2)
    y = (middle + root) / ((counts + reach) * variance)
    left = 1 - variance * (y - 1) ** 2 / (2 * y)
    return -math.log(y) * reach - counts * math.log(left)


def _least_reached(log_tail: Callable[[float], float], probability: float) -> float:
    """Where a falling tail comes down to the probability, rounded up."""
    wanted = math.log(probability)
    low, high = 0.0, 1.0
    while log_tail(high) > wanted:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_tail(middle) > wanted else (low, middle)
    return high


TRIES_A_NODE = 3


@dataclass(frozen=True, eq=False)
class MinimumUsers:
    """Safe are the blocks with at least `at_least` users, by public counts of users at every node of the tree.

    Pass it to `finest_cut_with_remainders`, or `whole` of it to `finest_cut`. A user may have been counted at
    several nodes, so counts of children do not add up. Of the rest of v at least the larger is known of: the
    users of v less those of each child left out, and the users of its largest child. Counts that carry noise of
    standard deviation `noise_sd`, each its own, must pass by a margin for their kind of noise (`normal_margin`,
    say). Counts without noise must be possible: none below zero, below one of its children, or above their sum.

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

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        expect.kind("tree", self.tree, Tree)
        expect.whole("at_least", self.at_least, at_least=1)
        object.__setattr__(self, "noise_sd", float(expect.at_least_zero("noise_sd", self.noise_sd)))
        object.__setattr__(self, "failure", float(expect.probability("failure", self.failure)))
        if self.noise_sd and self.noise is None:
            raise BadInput(
                "expected a kind of noise for noise_sd > 0, normal_margin or discrete_laplace_margin, got none"
            )
        for node in self.tree.nodes:
            if node not in self.users or not math.isfinite(self.users[node]):
                raise BadInput(f"node {node!r}: expected a finite count of users, got none")
        if not self.noise_sd:
            _refuse_impossible(self.tree, self.users)
        object.__setattr__(self, "_place", {node: place for place, node in enumerate(self.tree.nodes)})

    def __call__(self, block: CutBlock) -> bool:
        left_out = set(block.without)
        rest = [child for child in self.tree.children(block.node) if child not in left_out]
        count = self.users[block.node] - sum(self.users[child] for child in block.without)
        if count - self._margin_of_rest(block.without, rest) >= self.at_least:
            return True
        return max((self.users[child] for child in rest), default=-math.inf) - self._margin(1) >= self.at_least

    def whole(self, node: str) -> bool:
        return self(CutBlock(node))

    def size(self, node: str) -> float:
        """For rests to take in the child with the fewest users first."""
        return self.users[node]

    def _margin_of_rest(self, without: tuple[str, ...], rest: list[str]) -> float:
        counts = 1 + len(without)
        if without and max(map(self._rank, rest), default=(-math.inf, 0)) > min(map(self._rank, without)):
            return counts * self._margin(1)
        return self._margin(counts)

    def _margin(self, counts: int) -> float:
        """What the noise of `counts` counts, added or taken away, reaches in one try."""
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
