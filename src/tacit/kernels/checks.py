"""What the kernels assume of their arrays, refused in one line before a pointer is ever made of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput

ANY = -1
"""A length that nothing else fixes."""


def expect_array(
    name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...], *, writable: bool = False
) -> None:
    if not isinstance(array, np.ndarray):
        raise BadInput(f"expected {name} as an array of {np.dtype(dtype)}, got {type(array).__name__}")
    if (
        array.dtype != dtype
        or array.ndim != len(shape)
        or any(asked not in (ANY, found) for asked, found in zip(shape, array.shape, strict=True))
        or not array.flags.c_contiguous
        or (writable and not array.flags.writeable)
    ):
        kind = f"contiguous{', writable' if writable else ''} {np.dtype(dtype)}"
        wanted = " x ".join("any" if length == ANY else str(length) for length in shape)
        raise BadInput(f"expected {name} as {kind} of {wanted}, got {array.dtype} of shape {array.shape}")


def expect_below(name: str, numbers: NDArray[np.int32] | NDArray[np.int64], limit: int) -> None:
    """Every number in 0..limit-1, in one pass: seen as unsigned, a negative number is a very large one."""
    unsigned = numbers.view(np.uint32 if numbers.dtype == np.int32 else np.uint64)
    if unsigned.size and int(unsigned.max()) >= limit:
        raise BadInput(f"expected {name} in 0..{limit - 1}, got one outside")


def flat_ids(name: str, ids: NDArray[np.int32], rows: int) -> NDArray[np.int32]:
    """Ids of any shape as one sequence, all of them rows of the table."""
    expect_array(name, ids, np.int32, (ANY,) * ids.ndim)
    expect_below(name, ids, rows)
    return ids.reshape(-1)


def expect_apart(first: str, one: NDArray[Any], second: str, other: NDArray[Any]) -> None:
    if np.may_share_memory(one, other):
        raise BadInput(f"expected {first} and {second} to be different arrays, got overlapping ones")
