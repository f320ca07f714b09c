"""Fingerprints of tokens: 64 bits for each text or whole number, public and fixed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Integers, Words
from tacit.errors import BadInput
from tacit.kernels.backend import load_kernel


def text_fingerprints(offsets: NDArray[np.int32], data: NDArray[np.uint8], seed: int) -> Words:
    """64 bits for each text; text i is data[offsets[i]:offsets[i + 1]]. Public and fixed: they hide nothing.

    Two different texts share a fingerprint with a chance of about 2^-64, unless somebody chose them for it.
    """
    _expect_flat("offsets", offsets, np.int32)
    _expect_flat("bytes", data, np.uint8)
    if not len(offsets):
        raise BadInput("expected one offset more than texts, got none")
    out = np.empty(len(offsets) - 1, dtype=np.uint64)
    try:
        load_kernel("_tokens").text_fingerprints(offsets, data, seed, out)
    except ValueError as problem:
        raise BadInput(f"{problem}, got others") from None
    return out


def whole_fingerprints(values: Integers, seed: int) -> Words:
    """The fingerprints of the numbers' decimal digits, so that 17 and "17" are the same token."""
    _expect_flat("whole numbers", values, np.int64)
    out = np.empty(len(values), dtype=np.uint64)
    load_kernel("_tokens").whole_fingerprints(values, seed, out)
    return out


def _expect_flat(name: str, array: NDArray[Any], dtype: type[np.generic]) -> None:
    if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
        raise BadInput(
            f"expected {name} as a flat, contiguous array of {np.dtype(dtype)}, got {array.dtype} of shape "
            f"{array.shape}"
        )
