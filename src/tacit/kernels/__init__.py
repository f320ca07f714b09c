"""The few C++ loops and their NumPy twins: no policy, no randomness of their own.

Where the package was installed without a C++ compiler, the twins in `reference` and `reference_training` serve,
with one warning. The loops of training are in `training`, the others here.
"""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput

Normals = NDArray[np.float32] | NDArray[np.float64]

_BYTES_A_PAIR = {np.dtype(np.float32): 12, np.dtype(np.float64): 16}


def keystream_bytes(count: int, dtype: np.dtype[np.floating]) -> int:
    """How many uniform bytes `fill_normals` takes for this many normals."""
    return (count - count // 2) * _BYTES_A_PAIR[dtype]


def fill_normals(out: Normals, keystream: NDArray[np.uint8], scale: float) -> None:
    """Fill a flat, contiguous array with scale * N(0, 1), made of uniform keystream bytes and nothing else.

    The radius is sqrt(-2 ln u) for a u of 52 bits, so that the law's tail ends at 8.49 scales; the angle has
    32 bits for float32 and 54 for float64. No byte may ever serve twice.
    """
    if out.dtype not in _BYTES_A_PAIR:
        raise BadInput(f"expected an array of float32 or float64, got {out.dtype}")
    if out.ndim != 1 or not out.flags.c_contiguous or not out.flags.writeable:
        raise BadInput("expected a flat, contiguous, writable array to fill, got another")
    needed = keystream_bytes(out.size, out.dtype)
    if keystream.dtype != np.uint8 or keystream.shape != (needed,) or not keystream.flags.c_contiguous:
        raise BadInput(
            f"expected {needed} contiguous keystream bytes, got {keystream.dtype} of shape {keystream.shape}"
        )
    if out.dtype == np.float32:
        _chosen("_normals").fill_float32(out, keystream, scale)
    else:
        _chosen("_normals").fill_float64(out, keystream, scale)


def text_fingerprints(offsets: NDArray[np.int32], data: NDArray[np.uint8], seed: int) -> NDArray[np.uint64]:
    """64 bits for each text; text i is data[offsets[i]:offsets[i + 1]]. Public and fixed: they hide nothing.

    Two different texts share a fingerprint with a chance of about 2^-64, unless somebody chose them for it.
    """
    _expect_flat("offsets", offsets, np.int32)
    _expect_flat("bytes", data, np.uint8)
    if not len(offsets):
        raise BadInput("expected one offset more than texts, got none")
    out = np.empty(len(offsets) - 1, dtype=np.uint64)
    try:
        _chosen("_tokens").text_fingerprints(offsets, data, seed, out)
    except ValueError as problem:
        raise BadInput(f"{problem}, got others") from None
    return out


def whole_fingerprints(values: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """The fingerprints of the numbers' decimal digits, so that 17 and "17" are the same token."""
    _expect_flat("whole numbers", values, np.int64)
    out = np.empty(len(values), dtype=np.uint64)
    _chosen("_tokens").whole_fingerprints(values, seed, out)
    return out


def _expect_flat(name: str, array: NDArray[Any], dtype: type[np.generic]) -> None:
    if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
        raise BadInput(
            f"expected {name} as a flat, contiguous array of {np.dtype(dtype)}, got {array.dtype} of shape "
            f"{array.shape}"
        )


@cache
def _chosen(compiled: str, twin: str = "reference") -> ModuleType:
    try:
        return importlib.import_module(f"tacit.kernels.{compiled}")
    except ImportError:
        _warn_once()
        return importlib.import_module(f"tacit.kernels.{twin}")


@cache
def _warn_once() -> None:
    """One warning, however many of the kernels are lacking."""
    warnings.warn(
        "tacit was installed without its compiled kernels, so their NumPy twins serve: the same law, "
        "several times slower. Reinstall where a C++ compiler is available.",
        RuntimeWarning,
        stacklevel=4,
    )
