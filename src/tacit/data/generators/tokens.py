"""Names for ranks: hex digits that look hashed and never collide within a field."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Words = NDArray[np.uint32]

LOWER = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
UPPER = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), dtype=np.uint16)
GOLDEN = 0x9E3779B9  # 2^32 over the golden ratio: spreads the salts of neighbouring fields


def mixed(ranks: NDArray[np.int64], salt: int) -> Words:
    """A permutation of the 32-bit numbers, another for each salt: MurmurHash3's last step after an offset."""
    words = ranks.astype(np.uint32) + np.uint32((salt + 1) * GOLDEN % 2**32)
    words ^= words >> np.uint32(16)
    words *= np.uint32(0x85EBCA6B)
    words ^= words >> np.uint32(13)
    words *= np.uint32(0xC2B2AE35)
    words ^= words >> np.uint32(16)
    return words


def lower_hex8(ranks: NDArray[np.int64], salt: int, missing: NDArray[np.bool_] | None = None) -> pa.StringArray:
    """Eight lowercase digits for each rank below 2^32, null where missing."""
    return _strings(mixed(ranks, salt)[:, None], LOWER, missing)


def upper_hex32(
    ranks: NDArray[np.int64], salt: int, missing: NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Thirty-two uppercase digits for each rank below 2^32, null where missing; the first eight differ."""
    words = np.stack([mixed(ranks, 4 * salt + part) for part in range(4)], axis=1)
    return _strings(words, UPPER, missing)


def _strings(words: Words, digits: NDArray[np.uint16], missing: NDArray[np.bool_] | None) -> pa.StringArray:
    """Each row of words as text, straight into Arrow's buffers."""
    rows, width = len(words), 8 * words.shape[1]
    text = digits[words.astype(">u4").view(np.uint8)]
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    present = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text), present)
