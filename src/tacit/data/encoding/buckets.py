"""Numbers on a log scale: so many buckets for each doubling, with edges that are the same on every machine.

>>> whole_buckets(np.array([-2, -1, 0, 1, 2, 3, 4, 7, 8]), per_doubling=1).tolist()
[-2, -1, 0, 1, 2, 2, 3, 3, 4]
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tacit.schema.columns import Kind

TOP = 2**63 - 1
FINEST = 30  # a real number below 2^-30 counts as 0
SMALL = 2**12  # most counts are below it, and are looked up


def whole_buckets(values: NDArray[np.int64], *, per_doubling: int) -> NDArray[np.int64]:
    """0 for 0; b >= 1 for the b-th stretch from 1 upwards; mirrored below 0."""
    sizes = np.abs(np.maximum(values, -TOP))
    buckets = _small_buckets(per_doubling)[np.minimum(sizes, SMALL - 1)]
    large = np.flatnonzero(sizes >= SMALL)
    buckets[large] = np.searchsorted(_whole_edges(per_doubling), sizes[large], side="right")
    return _signed(buckets, values < 0)


def real_buckets(values: NDArray[np.float64], *, per_doubling: int) -> NDArray[np.int64]:
    """The same from 2^-30 upwards; smaller sizes are 0. No bucket is meant for NaN."""
    return _signed(np.searchsorted(_real_edges(per_doubling), np.abs(values), side="right"), values < 0)


def bucket_range(kind: Kind, per_doubling: int) -> int:
    """The highest bucket; the lowest is its negative."""
    return len(_whole_edges(per_doubling) if kind is Kind.WHOLE else _real_edges(per_doubling))


def _signed(buckets: NDArray[np.intp], negative: NDArray[np.bool_]) -> NDArray[np.int64]:
    signed: NDArray[np.int64] = np.where(negative, -buckets, buckets)
    return signed


@cache
def _whole_edges(per_doubling: int) -> NDArray[np.int64]:
    """The whole numbers at which buckets begin; those that hold none are left out."""
    edges = {_root(1 << step, per_doubling) for step in range(63 * per_doubling)}
    return np.array(sorted(edges), dtype=np.int64)


@cache
def _small_buckets(per_doubling: int) -> NDArray[np.intp]:
    return np.searchsorted(_whole_edges(per_doubling), np.arange(SMALL), side="right")


@cache
def _real_edges(per_doubling: int) -> NDArray[np.float64]:
    """The least doubles that reach each step. A doubling moves their exponents only, so one tells all."""
    one = [_root(1 << (step + 52 * per_doubling), per_doubling) for step in range(per_doubling)]
    exponents = np.arange(-FINEST, 63) - 52
    edges: NDArray[np.float64] = np.ldexp(np.array(one, dtype=np.float64), exponents[:, None]).ravel()
    return edges


def _root(power: int, degree: int) -> int:
    """The smallest whole x with x^degree >= power."""
    low, high = 0, 1 << (-(-power.bit_length() // degree) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle**degree >= power else (middle, high)
    return high
