"""Whole numbers that span many orders of magnitude: counts, ages, amounts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tacit import expect
from tacit.data.generators.histogram import Histogram

SINGLE = 4  # numbers below this are levels of their own; above, a level reaches half as far again
REACH = 5.0  # standard normals beyond this belong to the last level


@dataclass(frozen=True)
class Counts:
    """lowest + floor(exp(location + spread z)), z ~ N(0, 1), with one spread for z < 0 and one for z >= 0.

    The label sees the level of a number (0, 1, 2, 3, 4-5, 6-8, ...), which is this law's rank; within its level
    a number is uniform.
    """

    location: float
    spread_below: float
    spread_above: float
    lowest: int = 0

    def __post_init__(self) -> None:
        expect.exact("location", self.location)
        expect.positive("spread_below", self.spread_below)
        expect.positive("spread_above", self.spread_above)
        expect.integer("lowest", self.lowest)

    @property
    def values(self) -> int:
        return self._levels.values

    def ranks(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        return self._levels.ranks(uniform)

    def scores(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._levels.scores(ranks)

    def probability(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._levels.probability(ranks)

    def numbers(self, ranks: NDArray[np.int64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """A number of each of these levels; levels past the last one give numbers of the last."""
        level = np.minimum(ranks, self.values - 1)
        first, past = self._edges[:-1][level], self._edges[1:][level]
        numbers: NDArray[np.int64] = self.lowest + first + (uniform * (past - first)).astype(np.int64)
        return numbers

    @cached_property
    def _edges(self) -> NDArray[np.int64]:
        """Where each level begins, and where the last one ends."""
        end = np.exp(self.location + self.spread_above * REACH)
        edges = [0, 1]
        while edges[-1] < end:
            edges.append(edges[-1] + max(1, edges[-1] // 2 if edges[-1] >= SINGLE else 1))
        return np.array(edges, dtype=np.int64)

    @cached_property
    def _levels(self) -> Histogram:
        at = np.log(self._edges[1:-1]) - self.location
        below = ndtr(np.where(at < 0, at / self.spread_below, at / self.spread_above))
        return Histogram(tuple(float(share) for share in np.diff(below, prepend=0.0, append=1.0)))
