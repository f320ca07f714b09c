"""Skewed vocabularies of any size: ranks by a shifted power law, drawn without a table of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit import expect
from tacit.errors import BadInput

HEAD = 4096  # ranks whose probabilities are added up one by one; beyond them the sum is an integral
SCORE_POINTS = 2048


@dataclass(frozen=True)
class Zipf:
    """Rank r = 0, 1, ... of `values` has probability proportional to (r + shift)^-exponent.

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

    def expected_distinct(self, rows: int) -> float:
        """How many different values so many independent rows show, in the mean."""
        edges = np.unique(np.geomspace(1, self.values + 1, 20_000).astype(np.int64)) - 1
        first, past = edges[:-1], edges[1:]
        width = (past - first).astype(np.float64)
        mass = self.cdf(past - 1) - np.where(first > 0, self.cdf(np.maximum(first - 1, 0)), 0.0)
        return float(np.sum(width * -np.expm1(rows * np.log1p(-np.minimum(mass / width, 1 - 1e-12)))))

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
