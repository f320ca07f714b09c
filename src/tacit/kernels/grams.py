"""Squared norms of sums of outer products, by example: how long the gradient of a linear layer is.

Compiled or not, |sum_t d_t a_t'|^2 = sum_st <a_s, a_t> <d_s, d_t>, with a_t what the layer read at position t
and d_t the gradient of what it gave out: both Gram matrices, and no gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.kernels import reference_grams
from tacit.kernels.backend import load_kernel
from tacit.kernels.checks import ANY, expect_array

Numbers = NDArray[np.float32] | NDArray[np.float64]


def squared_products(
    read: Numbers, gradient: Numbers, *, bias: bool, threads: int = 1, wide: bool = True
) -> tuple[Numbers, Numbers]:
    """|sum_t d_t a_t'|^2 of each example, and sum_t |a_t|^2 |d_t|^2, which says what rounding may have taken.

    `read` is (examples, positions, inputs), `gradient` (examples, positions, outputs); with a `bias` every
    position reads a 1 too. Arrays in single precision are split over `threads`; those in double are NumPy's.
    """
    if not isinstance(read, np.ndarray) or read.dtype not in (np.float32, np.float64):
        raise BadInput(f"expected arrays of float32 or float64, got {getattr(read, 'dtype', type(read))}")
    kind: type[np.generic] = read.dtype.type
    expect_array("read", read, kind, (ANY, ANY, ANY))
    expect_array("gradient", gradient, kind, (*read.shape[:2], ANY))
    if threads < 1:
        raise BadInput(f"expected at least 1 thread, got {threads}")
    kernel: Any = reference_grams if kind is np.float64 else load_kernel("_grams", "reference_grams")
    squares, sizes = np.zeros(len(read), kind), np.zeros(len(read), kind)
    if read.size and gradient.size:
        kernel.squared_products(read, gradient, bias, squares, sizes, min(threads, len(read)), wide)
    return squares, sizes
