"""Derivatives as pairs of vectors: an example's matrix is the sum of left_t right_t^T over its pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.wire.blocks import Block
from tacit.errors import BadInput

Floats = NDArray[np.float32]

_CHUNK = 2**15  # doubles at a time: a quarter of a megabyte, within a second-level cache


@dataclass(frozen=True, eq=False)
class Factors:
    """The pairs of n examples, one example after the other; `counts` says how many each has."""

    left: Floats  # (pairs, rows)
    right: Floats  # (pairs, cols)
    counts: NDArray[np.int32]  # (n,)

    def __post_init__(self) -> None:
        expect_array("left", self.left, np.float32, 2)
        expect_array("right", self.right, np.float32, 2)
        expect_array("counts", self.counts, np.int32, 1)
        if len(self.left) != len(self.right):
            raise BadInput(f"expected as many rows left as right, got {len(self.left)} and {len(self.right)}")
        if len(self.counts) and self.counts.min() < 0:
            raise BadInput("expected counts >= 0, got a negative one")
        if int(self.counts.sum(dtype=np.int64)) != len(self.left):
            raise BadInput(f"expected counts to add up to {len(self.left)} pairs, got another sum")

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def ones(self) -> bool:
        """Whether every example has exactly one pair."""
        return len(self.left) == len(self.counts) and bool((self.counts == 1).all())

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the pairs of each example begin, and the end of the last: (n + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])

    def between(self, start: int, stop: int) -> Factors:
        """The examples start..stop-1, as views."""
        if self.ones:
            return Factors(self.left[start:stop], self.right[start:stop], self.counts[start:stop])
        first, last = int(self.starts[start]), int(self.starts[stop])
        return Factors(self.left[first:last], self.right[first:last], self.counts[start:stop])

    def chosen(self, which: NDArray[np.bool_]) -> Factors:
        """The examples for which `which` (n,) is true, in order, as copies."""
        pairs = which if self.ones else np.repeat(which, self.counts)
        return Factors(self.left[pairs], self.right[pairs], self.counts[which])

    @classmethod
    def none(cls, block: Block) -> Factors:
        """No example at all."""
        return cls(
            np.empty((0, block.rows), np.float32), np.empty((0, block.cols), np.float32), np.empty(0, np.int32)
        )


def by_count(factors: Factors, parameters: int) -> Iterator[tuple[NDArray[np.int64], Floats, Floats]]:
    """Examples with equally many pairs, together: places (m,), left (m, pairs, rows), right (m, pairs, cols).

    Those without any pair are left out: their matrix is zero. Bounded: neither a group's pairs nor its matrices
    take more than a few times the chunk.
    """
    for count in np.unique(factors.counts[factors.counts > 0]):
        places = np.flatnonzero(factors.counts == count)
        width = int(count) * (factors.left.shape[1] + factors.right.shape[1])
        step = rows_at_once(max(width, parameters, int(count) ** 2), 1)
        for start in range(0, len(places), step):
            which = places[start : start + step]
            pairs = factors.starts[which, None] + np.arange(count)  # (m, pairs)
            yield which, factors.left[pairs], factors.right[pairs]


def rows_at_once(width: int, at_least: int = 1) -> int:
    """So many rows of this width that they stay in a cache as doubles."""
    return max(_CHUNK // max(width, 1), at_least)


def expect_array(name: str, array: NDArray[Any], dtype: type, dimensions: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != dimensions:
        raise BadInput(f"expected {name} as {np.dtype(dtype)} with {dimensions} axes, got another array")
