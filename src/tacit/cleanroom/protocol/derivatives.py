"""Per-example derivatives of a logit in a matrix, as pairs of vectors (factors) or dense, and their norms.

For a linear layer the derivative is an outer product, left right^T; for a layer applied at several positions it
is the sum over its pairs, left_t right_t^T. Sums over examples are then matrix products, and the matrix of a
single example is never formed.

Norms come from the pairs alone (Goodfellow 2015, arXiv:1510.01799), in float64. Where an example has several
pairs they may cancel: its computed norm is then wrong by as much as rounding loses of the largest pairs.
Clipping must not rest on it alone; the triangle norms bound it from above without taking a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tacit.arrays import Floats, Floats32
from tacit.cleanroom.protocol.layout import ParameterBlock
from tacit.errors import BadInput

_CHUNK = 2**15  # doubles at a time: a quarter of a megabyte, within a second-level cache
_CONVERTED_AT_ONCE = 2**18  # enough rows at a time that a product is not slowed by adding it up


@dataclass(frozen=True, eq=False)
class Factors:
    """The pairs of n examples, one example after the other; `counts` says how many each has."""

    left: Floats32  # (pairs, rows)
    right: Floats32  # (pairs, cols)
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

    def select(self, which: NDArray[np.bool_]) -> Factors:
        """The examples for which `which` (n,) is true, in order, as copies."""
        pairs = which if self.ones else np.repeat(which, self.counts)
        return Factors(self.left[pairs], self.right[pairs], self.counts[which])

    @classmethod
    def none(cls, block: ParameterBlock) -> Factors:
        """No example at all."""
        return cls(
            np.empty((0, block.rows), np.float32), np.empty((0, block.cols), np.float32), np.empty(0, np.int32)
        )


def groups_by_count(
    factors: Factors, parameters: int
) -> Iterator[tuple[NDArray[np.int64], Floats32, Floats32]]:
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
    """How many rows of this width stay in a cache as doubles."""
    return max(_CHUNK // max(width, 1), at_least)


def expect_array(name: str, array: NDArray[Any], dtype: type, dimensions: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != dimensions:
        raise BadInput(f"expected {name} as {np.dtype(dtype)} with {dimensions} axes, got another array")


def factor_squared_norms(factors: Factors, block: ParameterBlock) -> Floats:
    """|left|^2 |right|^2 for one pair; for more, from Gram matrices or the matrix itself."""
    if factors.ones:
        return squared_rows(factors.left) * squared_rows(factors.right)
    norms = np.zeros(len(factors))
    for which, left, right in groups_by_count(factors, block.parameters):
        pairs = left.shape[1]
        wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)  # (some, pairs, rows or cols)
        if pairs == 1:
            norms[which] = squared_rows(wide_left[:, 0]) * squared_rows(wide_right[:, 0])
        elif pairs * (block.rows + block.cols) <= block.parameters:
            products = np.matmul(wide_left, wide_left.transpose(0, 2, 1))
            products *= np.matmul(wide_right, wide_right.transpose(0, 2, 1))
            # A sum of signed terms: rounding may leave a norm of zero just below it.
            norms[which] = np.maximum(products.sum(axis=(1, 2)), 0)
        else:
            norms[which] = squared_rows(_write_out(wide_left, wide_right))
    return norms


def factor_absolute_norms(factors: Factors, block: ParameterBlock) -> Floats:
    """|left|_1 |right|_1 for one pair; for more, of the matrix written out, some rows at a time."""
    if factors.ones:
        return absolute_rows(factors.left) * absolute_rows(factors.right)
    norms, step = np.zeros(len(factors)), rows_at_once(block.cols)
    for which, left, right in groups_by_count(factors, block.parameters):
        wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)  # (some, pairs, rows or cols)
        if left.shape[1] == 1:
            norms[which] = absolute_rows(wide_left[:, 0]) * absolute_rows(wide_right[:, 0])
            continue
        for start in range(0, block.rows, step):
            norms[which] += absolute_rows(_write_out(wide_left[:, :, start : start + step], wide_right))
    return norms


def factor_triangle_norms(factors: Factors) -> Floats:
    """The sum over an example's pairs of |left_t| |right_t|: never below its norm."""
    return _added_up(factors, np.sqrt(squared_rows(factors.left)) * np.sqrt(squared_rows(factors.right)))


def factor_triangle_absolute_norms(factors: Factors) -> Floats:
    """The sum over an example's pairs of |left_t|_1 |right_t|_1: never below its absolute norm."""
    return _added_up(factors, absolute_rows(factors.left) * absolute_rows(factors.right))


def squared_rows(array: NDArray[Any]) -> Floats:
    """The sum of squares of each row. The square of a float32 is exact in float64."""
    step = min(rows_at_once(array.shape[1]), len(array))
    sums, doubles = np.empty(len(array)), np.empty((step, array.shape[1]))  # one buffer, warm in the cache
    for start in range(0, len(array), step or 1):
        some = array[start : start + step]
        wide = doubles[: len(some)]
        np.copyto(wide, some)
        np.vecdot(wide, wide, out=sums[start : start + step])
    return sums


def absolute_rows(array: NDArray[Any]) -> Floats:
    """The sum of sizes of each row."""
    sums, step = np.empty(len(array)), rows_at_once(array.shape[1])
    for start in range(0, len(array), step):
        sums[start : start + step] = np.abs(array[start : start + step], dtype=np.float64).sum(axis=1)
    return sums


def _added_up(factors: Factors, sizes: Floats) -> Floats:
    if factors.ones:
        return sizes
    owners = np.repeat(np.arange(len(factors)), factors.counts)
    return np.asarray(np.bincount(owners, weights=sizes, minlength=len(factors)), np.float64)


def _write_out(left: Floats, right: Floats) -> Floats:
    product: Floats = np.matmul(left.transpose(0, 2, 1), right)
    return product.reshape(len(product), -1)


@dataclass(frozen=True, eq=False)
class BlockDerivatives:
    """n examples' derivatives in one matrix; each either as factors or written out (dense)."""

    block: ParameterBlock
    is_dense: NDArray[np.bool_]  # (n,)
    factors: Factors  # of those that are not dense, in order
    dense: Floats32  # (n_dense, rows * cols), of the others, in order

    def __post_init__(self) -> None:
        expect_array("is_dense", self.is_dense, np.bool_, 1)
        expect_array("dense", self.dense, np.float32, 2)
        block, dense = self.block, int(np.count_nonzero(self.is_dense))
        if self.factors.left.shape[1] != block.rows or self.factors.right.shape[1] != block.cols:
            raise BadInput(f"expected factors of block {block.name} to be {block.rows} and {block.cols} wide")
        if self.dense.shape != (dense, block.parameters):
            raise BadInput(f"expected dense derivatives of block {block.name} as ({dense}, {block.parameters})")
        if len(self.factors) != len(self.is_dense) - dense:
            raise BadInput(
                f"expected factors of {len(self.is_dense) - dense} examples, got {len(self.factors)}"
            )

    @classmethod
    def of_factors(cls, block: ParameterBlock, factors: Factors) -> BlockDerivatives:
        nothing = np.empty((0, block.parameters), np.float32)
        return cls(block, np.zeros(len(factors), np.bool_), factors, nothing)

    @classmethod
    def of_dense(cls, block: ParameterBlock, dense: Floats32) -> BlockDerivatives:
        return cls(block, np.ones(len(dense), np.bool_), Factors.none(block), dense)

    def __len__(self) -> int:
        return len(self.is_dense)

    @property
    def products(self) -> int:
        """How many products an entry of the sum is made of, at most."""
        return len(self.factors.left) + len(self.dense)

    @property
    def single(self) -> bool:
        """Whether no example has several pairs, which may cancel."""
        return self.factors.ones

    def rows(self, start: int, stop: int) -> BlockDerivatives:
        """The examples start..stop-1, as views."""
        start, stop, _ = slice(start, stop).indices(len(self))
        before, within = (
            int(np.count_nonzero(part)) for part in (self.is_dense[:start], self.is_dense[start:stop])
        )
        count = max(stop - start, 0)
        factors = self.factors.between(start - before, start - before + count - within)
        return BlockDerivatives(
            self.block, self.is_dense[start : start + count], factors, self.dense[before : before + within]
        )

    def weighted_sum(self, weights: NDArray[Any], *, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """sum_i weights_i d_i, (rows, cols): matrix products of the factors, and of the dense ones."""
        if np.shape(weights) != (len(self),):
            raise BadInput(f"expected {len(self)} weights, got shape {np.shape(weights)}")
        weights = np.asarray(weights).astype(dtype, copy=False)
        if not len(self.dense):
            return self._sum_of_factors(weights)
        total = self._sum_of_dense(weights[self.is_dense])
        if len(self.factors):
            total += self._sum_of_factors(weights[~self.is_dense])
        return total

    def squared_norms(self) -> Floats:
        """|d_i|^2 in float64, (n,). Of several pairs that cancel, only as exact as the pairs are small."""
        return self._of_each(lambda: factor_squared_norms(self.factors, self.block), squared_rows)

    def absolute_norms(self) -> Floats:
        """The sum of |entries| of each d_i in float64, (n,)."""
        return self._of_each(lambda: factor_absolute_norms(self.factors, self.block), absolute_rows)

    def triangle_norms(self) -> Floats:
        """The sum over pairs of |left_t| |right_t|, (n,): never below |d_i|, and |d_i| where it is dense."""
        return self._of_each(
            lambda: factor_triangle_norms(self.factors), lambda dense: np.sqrt(squared_rows(dense))
        )

    def triangle_absolute_norms(self) -> Floats:
        """The sum over pairs of |left_t|_1 |right_t|_1, (n,): never below the absolute norm."""
        return self._of_each(lambda: factor_triangle_absolute_norms(self.factors), absolute_rows)

    def gram(self) -> Floats:
        """All inner products <d_i, d_j> in float64, (n, n)."""
        n, block = len(self), self.block
        if not len(self.dense) and self.factors.ones:
            left, right = self.factors.left.astype(np.float64), self.factors.right.astype(np.float64)
            product: Floats = (left @ left.T) * (right @ right.T)
            return product
        total = np.zeros((n, n))
        written = self.as_dense()
        step = rows_at_once(n, 64)
        for start in range(0, block.parameters, step):
            some = written[:, start : start + step].astype(np.float64)
            total += some @ some.T
        return total

    def as_dense(self) -> Floats32:
        """Every derivative written out, (n, rows * cols)."""
        block = self.block
        written = np.zeros((len(self), block.parameters), np.float32)
        written[self.is_dense] = self.dense
        if len(self.dense) < len(self):
            ours = (
                written if not len(self.dense) else np.zeros((len(self.factors), written.shape[1]), np.float32)
            )
            for which, left, right in groups_by_count(self.factors, block.parameters):
                product = np.matmul(left.transpose(0, 2, 1), right)  # (some, rows, cols)
                ours[which] = product.reshape(len(product), -1)
            if ours is not written:
                written[~self.is_dense] = ours
        return written

    def _sum_of_factors(self, weights: NDArray[Any]) -> NDArray[Any]:
        block, wide = self.block, weights.dtype
        if not self.factors.ones:
            weights = np.repeat(weights, self.factors.counts)
        total = np.zeros((block.rows, block.cols), wide)
        for some in _chunks(len(weights), block.rows + block.cols, wide):
            left = self.factors.left[some].astype(wide, copy=False)
            right = self.factors.right[some].astype(wide, copy=False)
            if block.rows <= block.cols:  # weights go to the narrower side
                left = left * weights[some, None]
            else:
                right = right * weights[some, None]
            total += left.T @ right
        return total

    def _sum_of_dense(self, weights: NDArray[Any]) -> NDArray[Any]:
        total = np.zeros(self.block.parameters, weights.dtype)
        for some in _chunks(len(weights), self.block.parameters, weights.dtype):
            total += weights[some] @ self.dense[some].astype(weights.dtype, copy=False)
        return total.reshape(self.block.rows, self.block.cols)

    def _of_each(self, of_factors: Callable[[], Floats], of_rows: Callable[[Floats32], Floats]) -> Floats:
        if not len(self.dense):
            return of_factors()
        sizes = np.empty(len(self))
        sizes[self.is_dense] = of_rows(self.dense)
        sizes[~self.is_dense] = of_factors()
        return sizes


def _chunks(rows: int, width: int, dtype: np.dtype[Any]) -> Iterator[slice]:
    """All rows at once where they are float32 already; else two megabytes at a time: none is held twice."""
    step = rows if dtype == np.float32 else max(_CONVERTED_AT_ONCE // width, 8)
    return (slice(start, start + step) for start in range(0, rows, max(step, 1)))
