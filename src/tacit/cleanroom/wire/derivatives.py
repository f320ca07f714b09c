"""Each example's derivative of one logit in one matrix, as pairs of vectors or written out.

For a linear layer it is an outer product, left right^T; a layer applied at several positions has a sum of such
pairs. Sums over examples are then matrix products, and the matrix of one example is never formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tacit.cleanroom.wire import norms
from tacit.cleanroom.wire.blocks import Block
from tacit.cleanroom.wire.factors import Factors, Floats, by_count, expect_array, rows_at_once
from tacit.errors import BadInput

__all__ = ["BlockDerivatives", "Derivatives", "Doubles", "Factors", "Floats"]

Doubles = NDArray[np.float64]

_CONVERTED_AT_ONCE = 2**18  # enough rows at a time that a product is not slowed by adding it up


@dataclass(frozen=True, eq=False)
class BlockDerivatives:
    """n examples' derivatives in one matrix; each either as factors or written out (dense)."""

    block: Block
    is_dense: NDArray[np.bool_]  # (n,)
    factors: Factors  # of those that are not dense, in order
    dense: Floats  # (n_dense, rows * cols), of the others, in order

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
    def of_factors(cls, block: Block, factors: Factors) -> BlockDerivatives:
        nothing = np.empty((0, block.parameters), np.float32)
        return cls(block, np.zeros(len(factors), np.bool_), factors, nothing)

    @classmethod
    def of_dense(cls, block: Block, dense: Floats) -> BlockDerivatives:
        return cls(block, np.ones(len(dense), np.bool_), Factors.none(block), dense)

    def __len__(self) -> int:
        return len(self.is_dense)

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

    def squared_norms(self) -> Doubles:
        """|d_i|^2 in float64, (n,). Of several pairs that cancel, only as exact as the pairs are small."""
        return self._of_each(lambda: norms.squared_norms(self.factors, self.block), norms.squared_rows)

    def absolute_norms(self) -> Doubles:
        """The sum of |entries| of each d_i in float64, (n,)."""
        return self._of_each(lambda: norms.absolute_norms(self.factors, self.block), norms.absolute_rows)

    def triangle_norms(self) -> Doubles:
        """The sum over pairs of |left_t| |right_t|, (n,): never below |d_i|, and |d_i| where it is dense."""
        return self._of_each(
            lambda: norms.triangle_norms(self.factors), lambda dense: np.sqrt(norms.squared_rows(dense))
        )

    def triangle_absolute_norms(self) -> Doubles:
        """The sum over pairs of |left_t|_1 |right_t|_1, (n,): never below the absolute norm."""
        return self._of_each(lambda: norms.triangle_absolute_norms(self.factors), norms.absolute_rows)

    def gram(self) -> Doubles:
        """All inner products <d_i, d_j> in float64, (n, n)."""
        n, block = len(self), self.block
        if not len(self.dense) and self.factors.ones:
            left, right = self.factors.left.astype(np.float64), self.factors.right.astype(np.float64)
            product: Doubles = (left @ left.T) * (right @ right.T)
            return product
        total = np.zeros((n, n))
        written = self.as_dense()
        step = rows_at_once(n, 64)
        for start in range(0, block.parameters, step):
            some = written[:, start : start + step].astype(np.float64)
            total += some @ some.T
        return total

    def as_dense(self) -> Floats:
        """Every derivative written out, (n, rows * cols)."""
        block = self.block
        written = np.zeros((len(self), block.parameters), np.float32)
        written[self.is_dense] = self.dense
        if len(self.dense) < len(self):
            ours = (
                written if not len(self.dense) else np.zeros((len(self.factors), written.shape[1]), np.float32)
            )
            for which, left, right in by_count(self.factors, block.parameters):
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

    def _of_each(self, of_factors: Callable[[], Doubles], of_rows: Callable[[Floats], Doubles]) -> Doubles:
        if not len(self.dense):
            return of_factors()
        sizes = np.empty(len(self))
        sizes[self.is_dense] = of_rows(self.dense)
        sizes[~self.is_dense] = of_factors()
        return sizes


Derivatives = Mapping[str, BlockDerivatives]
"""The derivatives of the same examples in every block, by the block's name."""


def _chunks(rows: int, width: int, dtype: np.dtype[Any]) -> Iterator[slice]:
    """All rows at once where they are float32 already; else two megabytes at a time: none is held twice."""
    step = rows if dtype == np.float32 else max(_CONVERTED_AT_ONCE // width, 8)
    return (slice(start, start + step) for start in range(0, rows, max(step, 1)))
