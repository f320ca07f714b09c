"""Small vocabularies whose shares are written down one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit import expect
from tacit.errors import BadInput


@dataclass(frozen=True)
class Histogram:
    """Rank r = 0, 1, ... has probability proportional to weights[r]."""

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
