"""Squared norms of sums of outer products in NumPy, by two Gram matrices per example."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 2**22  # numbers of Gram matrices that are held at once


def squared_products(
    read: NDArray[Any],
    gradient: NDArray[Any],
    bias: bool,
    squares: NDArray[Any],
    sizes: NDArray[Any],
    threads: int,
    wide: bool,
) -> None:
    """Fill `squares` and `sizes`, as `grams.squared_products` says."""
    del threads, wide
    step = max(1, AT_ONCE // read.shape[1] ** 2)
    for first in range(0, len(read), step):
        some = slice(first, first + step)
        a, d = read[some], gradient[some]
        products = (a @ a.transpose(0, 2, 1) + int(bias)) * (d @ d.transpose(0, 2, 1))
        squares[some] = products.sum(axis=(1, 2))
        sizes[some] = np.trace(products, axis1=1, axis2=2)
