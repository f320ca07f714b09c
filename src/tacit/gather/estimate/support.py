"""Which contexts have enough support to look below them: decided on noisy totals, so on released numbers only.

A fixed threshold of a few events expands nearly half of all empty contexts, as noise alone exceeds it: at a
standard deviation of 34, a threshold of 2 expands 48%. Calibrated to the noise it expands as few as one likes.

What is asked next gets noise of its own, so counts of children are without bias, however the parents were
chosen. The totals that decided are not: given that it passed, a total's noise is positive in the mean.
`Largest` asks a stated number of questions instead, and no count is ever held against a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.gather.estimate.published import PublishedNoise
from tacit.schema.statistics import Floats


class Support(Protocol):
    """A way of choosing; deterministic, and by its arguments alone."""

    def expanded(self, totals: Floats, noise: PublishedNoise) -> NDArray[np.bool_]:
        """(nodes,) whether to ask about a node's children next."""


@dataclass(frozen=True)
class AboveNoise:
    """Nodes whose total is above what noise alone gives to `false_expansions` of them, if all were empty."""

    false_expansions: float = 0.1

    def __post_init__(self) -> None:
        expect.positive("false_expansions", self.false_expansions)

    def expanded(self, totals: Floats, noise: PublishedNoise) -> NDArray[np.bool_]:
        above: NDArray[np.bool_] = totals > threshold(noise, max(len(totals), 1), self.false_expansions)
        return above


@dataclass(frozen=True)
class AtLeast:
    """Nodes with a total above `min_support`, whatever the noise: the paper's way.

    Source: Hardt and Nath, CCS 2012, algorithm 3.
    """

    min_support: float = 2.0

    def expanded(self, totals: Floats, noise: PublishedNoise) -> NDArray[np.bool_]:  # noqa: ARG002
        above: NDArray[np.bool_] = totals > self.min_support
        return above


@dataclass(frozen=True)
class Largest:
    """The `most` nodes with the largest totals; the first of equals. How much is asked is known beforehand."""

    most: int

    def __post_init__(self) -> None:
        expect.whole("most", self.most, at_least=1)

    def expanded(self, totals: Floats, noise: PublishedNoise) -> NDArray[np.bool_]:  # noqa: ARG002
        chosen = np.zeros(len(totals), np.bool_)
        chosen[np.argsort(-totals, kind="stable")[: self.most]] = True
        return chosen


def threshold(noise: PublishedNoise, nodes: int, false_expansions: float) -> int:
    """The least total that at most so many of so many empty nodes exceed, in the mean, by the exact law."""
    expected = float(expect.positive("false_expansions", false_expansions))
    share = expected / expect.whole("nodes", nodes, at_least=1)
    return noise.threshold(share) if share < 0.5 else 0
