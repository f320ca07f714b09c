"""Sizes of derivatives from their pairs alone (Goodfellow 2015, arXiv:1510.01799), in float64.

Where an example has several pairs they may cancel: what is computed for its norm is then wrong by as much as
rounding loses of its largest pairs. What something is clipped by must not rest on it alone; the triangle norms
bound it from above without taking a difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.wire.blocks import Block
from tacit.cleanroom.wire.factors import Factors, by_count, rows_at_once

Doubles = NDArray[np.float64]


def squared_norms(factors: Factors, block: Block) -> Doubles:
    """|left|^2 |right|^2 for one pair; for more, from Gram matrices or the matrix itself."""
    if factors.ones:
        return squared_rows(factors.left) * squared_rows(factors.right)
    norms = np.zeros(len(factors))
    for which, left, right in by_count(factors, block.parameters):
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
            norms[which] = squared_rows(_written(wide_left, wide_right))
    return norms


def absolute_norms(factors: Factors, block: Block) -> Doubles:
    """|left|_1 |right|_1 for one pair; for more, of the matrix written out, some rows at a time."""
    if factors.ones:
        return absolute_rows(factors.left) * absolute_rows(factors.right)
    norms, step = np.zeros(len(factors)), rows_at_once(block.cols)
    for which, left, right in by_count(factors, block.parameters):
        wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)  # (some, pairs, rows or cols)
        if left.shape[1] == 1:
            norms[which] = absolute_rows(wide_left[:, 0]) * absolute_rows(wide_right[:, 0])
            continue
        for start in range(0, block.rows, step):
            norms[which] += absolute_rows(_written(wide_left[:, :, start : start + step], wide_right))
    return norms


def triangle_norms(factors: Factors) -> Doubles:
    """The sum over an example's pairs of |left_t| |right_t|: never below its norm."""
    return _added_up(factors, np.sqrt(squared_rows(factors.left)) * np.sqrt(squared_rows(factors.right)))


def triangle_absolute_norms(factors: Factors) -> Doubles:
    """The sum over an example's pairs of |left_t|_1 |right_t|_1: never below its absolute norm."""
    return _added_up(factors, absolute_rows(factors.left) * absolute_rows(factors.right))


def squared_rows(array: NDArray[Any]) -> Doubles:
    """The sum of squares of each row. The square of a float32 is exact in float64."""
    step = min(rows_at_once(array.shape[1]), len(array))
    sums, doubles = np.empty(len(array)), np.empty((step, array.shape[1]))  # one buffer, warm in the cache
    for start in range(0, len(array), step or 1):
        some = array[start : start + step]
        wide = doubles[: len(some)]
        np.copyto(wide, some)
        np.vecdot(wide, wide, out=sums[start : start + step])
    return sums


def absolute_rows(array: NDArray[Any]) -> Doubles:
    """The sum of sizes of each row."""
    sums, step = np.empty(len(array)), rows_at_once(array.shape[1])
    for start in range(0, len(array), step):
        sums[start : start + step] = np.abs(array[start : start + step], dtype=np.float64).sum(axis=1)
    return sums


def _added_up(factors: Factors, sizes: Doubles) -> Doubles:
    if factors.ones:
        return sizes
    owners = np.repeat(np.arange(len(factors)), factors.counts)
    return np.asarray(np.bincount(owners, weights=sizes, minlength=len(factors)), np.float64)


def _written(left: Doubles, right: Doubles) -> Doubles:
    product: Doubles = np.matmul(left.transpose(0, 2, 1), right)
    return product.reshape(len(product), -1)
