"""The ways of running greedy choice, for tests to try each of them, and the best set by trying all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.kernels import greedy, reference_greedy
from tacit.kernels.greedy import SparseValues

WAYS = ("wide", "narrow", "sketched", "narrow sketched", "twin")


class Narrow:
    """The compiled module, told to do without wide instructions."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._module, name), wide=False)


@contextmanager
def served(way: str) -> Iterator[None]:
    """Within this, greedy choice runs the compiled loops of either width, with sketches or not, or the twin."""
    with pytest.MonkeyPatch.context() as patch:
        module: Any = reference_greedy if way == "twin" else pytest.importorskip("tacit.kernels._greedy")
        patch.setattr(greedy, "_kernel", lambda: Narrow(module) if "narrow" in way else module)
        patch.setattr(greedy, "SKETCHED", 0 if "sketched" in way else 2**62)
        yield


def sparse_of(values: NDArray[Any]) -> SparseValues:
    """The same values without their zeros."""
    ad, context = np.nonzero(values)
    offsets = np.r_[0, np.cumsum(np.count_nonzero(values, axis=1))].astype(np.int64)
    return SparseValues(offsets, context.astype(np.int32), values[ad, context], values.shape[1])


def revenue(values: NDArray[Any], weight: NDArray[np.float64], ads: Any) -> float:
    """Of a set, from the definition."""
    best = values[list(ads)].astype(np.float64).max(axis=0, initial=0.0)
    return float(weight @ best)


def optimum(values: NDArray[Any], weight: NDArray[np.float64], k: int, price: float = 0.0) -> float:
    """Of all sets of at most k ads: the largest revenue less the price of sending them."""
    ads = range(len(values))
    sets = (each for size in range(min(k, len(values)) + 1) for each in combinations(ads, size))
    return max(revenue(values, weight, each) - price * len(each) for each in sets)
