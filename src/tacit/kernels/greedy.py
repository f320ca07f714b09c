"""Greedy choice of k ads for many contexts (facility location): checked here, done in C++ or by its NumPy twin.

gain(a | S) = sum over contexts c of weight[c] x max(0, value[a, c] - best of S in c), where nothing is worth 0.
An old gain bounds a new one (submodularity), so most ads need not be looked at again (Minoux 1978; Leskovec et
al., KDD 2007): the set and its gains are those of the plain greedy algorithm, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats, Integers
from tacit.errors import BadInput
from tacit.kernels.backend import load_kernel
from tacit.kernels.checks import ANY, expect_array

Table = NDArray[np.float32] | NDArray[np.float64]

SKETCHED = 2**18
"""From this number of dense values on, a sketch of them (one byte each) spares most of the reading."""


@dataclass(frozen=True, eq=False)
class SparseValues:
    """Sparse values: ad a has value[i] in context[i] for i in offsets[a]..offsets[a + 1]-1, and 0 elsewhere.

    The contexts of an ad rise. Checked once, here: nobody may write to these arrays afterwards.
    """

    offsets: Integers
    context: NDArray[np.int32]
    value: Table
    contexts: int

    def __post_init__(self) -> None:
        expect_array("offsets", self.offsets, np.int64, (ANY,))
        if not len(self.offsets) or self.offsets[0] or (self.offsets[1:] < self.offsets[:-1]).any():
            raise BadInput("expected offsets that begin at 0 and never fall, got others")
        expect_array("context", self.context, np.int32, (int(self.offsets[-1]),))
        _expect_floats("value", self.value, self.context.shape)
        if len(self.context) and not 0 <= self.context.min() <= self.context.max() < self.contexts:
            raise BadInput(f"expected contexts in 0..{self.contexts - 1}, got one outside")
        falls = self.context[1:] <= self.context[:-1]
        starts = self.offsets[1:-1]
        falls[starts[(starts > 0) & (starts < len(self.context))] - 1] = False  # another ad begins there
        if falls.any():
            ad = int(np.searchsorted(self.offsets, int(np.argmax(falls)), side="right")) - 1
            raise BadInput(f"ad {ad}: expected contexts that rise, got one that does not")

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.offsets) - 1, self.contexts


@dataclass(frozen=True, eq=False)
class GreedySelection:
    """Ads in the order of choice, what each gained, and how many gains were computed for it.

    `bound`, where it was asked for, is at least what any k ads reach (`at_least` taken off for each): the
    least, over the sets on the way, of what the set has and the k best additions gain, each by itself.
    """

    ads: Integers
    gains: Floats
    evaluations: int
    bound: float | None = None


def first_gains(values: Table | SparseValues, weight: Floats) -> Floats:
    """What each ad gains alone. Values are finite and at least 0, or refused by naming the ad."""
    arrays, ads = _expect_values(values, weight)
    gains = np.empty(ads, np.float64)
    bad: int = getattr(_kernel(), f"{_kind(values)}_first_gains")(*arrays, weight, gains)
    if bad >= 0:
        raise _bad_values(bad)
    return gains


def gains_beside(values: Table | SparseValues, weight: Floats, best: Floats) -> Floats:
    """What each ad adds where the best so far is `best` (contexts,); values that are negative add nothing."""
    arrays, ads = _expect_values(values, weight)
    expect_array("best", best, np.float64, weight.shape)
    gains = np.empty(ads, np.float64)
    getattr(_kernel(), f"{_kind(values)}_gains")(*arrays, weight, best, gains)
    return gains


def lazy_greedy(
    values: Table | SparseValues,
    weight: Floats,
    k: int,
    at_least: float = 0.0,
    first_gains: Floats | None = None,
    *,
    enough: float = math.inf,
    certify: bool = False,
) -> GreedySelection:
    """At most k ads, each the one that gains most beside those before it; of equals the first.

    It stops before an ad that gains no more than `at_least`, and once the gains add up to `enough`.
    `first_gains` are upper bounds on what each ad gains alone: without them all values are read once, and
    checked. With them, values are read only where a bound does not settle it, and are the caller's to check.
    """
    if isinstance(k, bool) or k < 1:
        raise BadInput(f"expected k to be a whole number >= 1, got {k!r}")
    if not 0.0 <= at_least < math.inf:
        raise BadInput(f"expected at_least to be finite and >= 0, got {at_least!r}")
    if math.isnan(enough):
        raise BadInput("expected enough to be a number, got nan")
    arrays, ads = _expect_values(values, weight)
    unread = first_gains is None
    first = np.empty(ads, np.float64) if first_gains is None else first_gains.copy()
    expect_array("first_gains", first, np.float64, (ads,))
    if not unread and np.isnan(first).any():
        raise BadInput("expected first_gains to be numbers, got nan")
    most = min(int(k), ads)
    size = 0 if isinstance(values, SparseValues) else values.size
    room = np.empty(size if size >= SKETCHED else 0, np.uint8)
    picked, gains = np.empty(most, np.int64), np.empty(most, np.float64)
    run = getattr(_kernel(), f"{_kind(values)}_greedy")
    rules = (most, at_least, enough, certify, room)
    count, evaluations, bound = run(*arrays, weight, first, unread, *rules, picked, gains)
    if count < 0:
        raise _bad_values(evaluations)
    return GreedySelection(picked[:count], gains[:count], evaluations, bound if certify else None)


def _bad_values(ad: int) -> BadInput:
    return BadInput(f"ad {ad}: expected values that are finite, small enough to add up and >= 0, got others")


def _kind(values: Table | SparseValues) -> str:
    return "sparse" if isinstance(values, SparseValues) else "dense"


def _expect_values(values: Table | SparseValues, weight: Floats) -> tuple[tuple[NDArray[Any], ...], int]:
    if isinstance(values, SparseValues):
        arrays: tuple[NDArray[Any], ...] = (values.offsets, values.context, values.value)
    else:
        _expect_floats("values", values, (ANY, ANY))
        arrays = (values,)
    ads, contexts = values.shape
    expect_array("weight", weight, np.float64, (contexts,))
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise BadInput("expected weights that are finite and >= 0, got others")
    return arrays, ads


def _expect_floats(name: str, array: Table, shape: tuple[int, ...]) -> None:
    expect_array(name, array, np.float32 if array.dtype == np.float32 else np.float64, shape)


def _kernel() -> ModuleType:
    return load_kernel("_greedy", "reference_greedy")
