"""Distributions of a field's values, as ranks: Zipf, a table of shares, and log-normal counts.

`Zipf` covers vocabularies of any size without a table of them, `Histogram` small ones whose shares are
written down, and `LogNormalCounts` whole numbers over many orders of magnitude (counts, ages, amounts).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tacit import expect
from tacit.errors import BadInput

HEAD = 4096  # ranks whose probabilities are added up one by one; beyond them the sum is an integral
SCORE_POINTS = 2048


@dataclass(frozen=True)
class Zipf:
    """The Zipf law: rank r = 0, 1, ... of `values` has probability proportional to (r + shift)^-exponent.

    Beyond the first 4096 ranks the mass of a stretch of ranks is the integral of that law over it (each rank
    reaching half a rank to both sides), so that ten million values cost no more memory than ten.
    """

    values: int
    exponent: float = 1.05
    shift: float = 2.0

    def __post_init__(self) -> None:
        expect.whole("values", self.values, at_least=1)
        expect.positive("exponent", self.exponent)
        expect.positive("shift", self.shift)
        if self.exponent == 1:
            raise BadInput("expected exponent != 1 (take .9999 or 1.0001), got 1")

    def ranks(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """The quantiles of the law at these levels in [0, 1)."""
        mass = uniform * self._whole
        ranks = np.searchsorted(self._head, mass, side="right").astype(np.int64)
        if self.values > HEAD:
            beyond = np.flatnonzero(mass >= self._head[-1])
            ranks[beyond] = self._tail_ranks(mass[beyond] - self._head[-1])
        return np.minimum(ranks, self.values - 1)

    def cdf(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability of this rank or a lower one."""
        mass = self._head[np.minimum(ranks, len(self._head) - 1)]
        if self.values > HEAD:
            mass = np.where(ranks < HEAD, mass, self._head[-1] + self._tail_mass(ranks.astype(np.float64)))
        below: NDArray[np.float64] = mass / self._whole
        return below

    def probability(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        lower = np.where(ranks > 0, self.cdf(np.maximum(ranks - 1, 0)), 0.0)
        probability: NDArray[np.float64] = self.cdf(ranks) - lower
        return probability

    def scores(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        """Where a rank lies in the law, as a standard normal would: low for frequent values, high for rare.

        Interpolated in the logarithm of the rank between 2048 points, whatever the size of the vocabulary.
        """
        at, score = self._score_curve
        scores: NDArray[np.float64] = np.interp(np.log(ranks + self.shift), at, score)
        return scores

    @cached_property
    def _head(self) -> NDArray[np.float64]:
        ranks = np.arange(min(self.values, HEAD), dtype=np.float64)
        head: NDArray[np.float64] = np.cumsum((ranks + self.shift) ** -self.exponent)
        return head

    @cached_property
    def _whole(self) -> float:
        tail = self._tail_mass(np.array([self.values - 1.0]))[0] if self.values > HEAD else 0.0
        return float(self._head[-1] + tail)

    def _tail_mass(self, ranks: NDArray[np.float64]) -> NDArray[np.float64]:
        """The integral from the end of the head to the end of each rank."""
        start, power = HEAD - 0.5 + self.shift, 1 - self.exponent
        mass: NDArray[np.float64] = ((ranks + 0.5 + self.shift) ** power - start**power) / power
        return mass

    def _tail_ranks(self, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        start, power = HEAD - 0.5 + self.shift, 1 - self.exponent
        at = (start**power + mass * power) ** (1 / power) - self.shift
        ranks: NDArray[np.int64] = np.floor(at + 0.5).astype(np.int64)
        return ranks

    @cached_property
    def _score_curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        ranks = np.unique(np.geomspace(1, self.values, SCORE_POINTS).astype(np.int64)) - 1
        middle = self.cdf(ranks) - self.probability(ranks) / 2
        return np.log(ranks + self.shift), ndtri(np.clip(middle, 1e-9, 1 - 1e-9))


@dataclass(frozen=True)
class Histogram:
    """A law by its table: rank r = 0, 1, ... has probability proportional to weights[r]."""

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.weights:
            raise BadInput("expected weights to hold at least one number, got none")
        for weight in self.weights:
            expect.at_least_zero("weight", weight)

    @property
    def values(self) -> int:
        return len(self.weights)

    def ranks(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """The quantiles of the law at these levels in [0, 1]."""
        return np.searchsorted(self._cdf[:-1], uniform, side="right").astype(np.int64)

    def probability(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        probability: NDArray[np.float64] = np.diff(self._cdf, prepend=0.0)[ranks]
        return probability

    def scores(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        """Where a rank lies in the law, as a standard normal would; ranks past the end score as the last."""
        scores: NDArray[np.float64] = self._scores[np.minimum(ranks, self.values - 1)]
        return scores

    @cached_property
    def _cdf(self) -> NDArray[np.float64]:
        weights = np.array(self.weights)
        cdf: NDArray[np.float64] = np.cumsum(weights / weights.sum())
        return cdf

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        middle = self._cdf - np.diff(self._cdf, prepend=0.0) / 2
        return np.asarray(ndtri(np.clip(middle, 1e-9, 1 - 1e-9)))


SINGLE = 4  # numbers below this are levels of their own; above, a level reaches half as far again
REACH = 5.0  # standard normals beyond this belong to the last level


@dataclass(frozen=True)
class LogNormalCounts:
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
