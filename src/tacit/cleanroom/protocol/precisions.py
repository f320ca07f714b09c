"""Number formats for matrices on the wire: 32 bits, 16 bits, or 8 bits with a scale per row, rounded at random.

Rounding to 8 bits is unbiased. With scale s and v = x / s, floor(v + u) is sent for u uniform on (0, 1): its
mean is v. Here u is the middle of one of 2^16 equal steps, so the chance of rounding up is within 2^-17 of what
it should be; v and v + u are float32, whose own rounding adds no more than 2^-16 (|v| <= 127). The bias of a
number is therefore below 2^-15 of its scale: about 2.4e-7 of its row's largest number, four times float32's own
rounding.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats32
from tacit.cleanroom.protocol.encoding import (
    MOST_VALUE,
    Reader,
    RoomRefusal,
    expect_sendable,
    refuse_out_of_range,
)
from tacit.errors import RoomRefused
from tacit.privacy.randomness import WordSource

LEVELS = 127  # -128 is never sent
LANES = 4  # draws of 16 bits in a word of 64

_CHUNK = 2**16  # numbers at a time: what they become stays in a second-level cache
# Below it a scale would lose bits, and the row is sent as zero.
_SMALLEST = np.float32(LEVELS) * np.finfo(np.float32).tiny


def scales_for(largest: Floats32) -> Floats32:
    """Scales with 127 scale >= largest, as exact numbers: x / scale then never rounds beyond 127."""
    scales = largest / np.float32(LEVELS)
    short = scales.astype(np.float64) * LEVELS < largest
    scales[short] = np.nextafter(scales[short], np.float32(np.inf))
    scales[largest < _SMALLEST] = 0
    return scales


def largest_in_rows(values: Floats32) -> Floats32:
    """max |x| of each row, NaN where a row has one."""
    largest: Floats32 = np.maximum(values.max(axis=1), -values.min(axis=1))
    return np.abs(largest)  # a row of zeros may have given -0


def round_rows(values: Floats32, scales: Floats32, words: WordSource) -> NDArray[np.int8]:
    """floor(x / scale + u) for each number, with the scale of its row; zeros where the scale is zero."""
    rounded = np.empty(values.shape, np.int8)
    divisors = np.where(scales > 0, scales, np.float32(np.inf))  # finite / infinite = 0, whatever the row has
    step = max(_CHUNK // max(values.shape[1], 1), 1)
    for start in range(0, len(values), step):
        some = values[start : start + step]
        moved = uniforms(some.shape, words)
        moved += some / divisors[start : start + step, None]
        rounded[start : start + step] = np.floor(moved, out=moved)
    return rounded


def uniforms(shape: tuple[int, ...], words: WordSource) -> Floats32:
    """Numbers of (0, 1) in the middle of 2^16 equal steps, from 16 bits each."""
    count = int(np.prod(shape))
    lanes = words(-(-count // LANES)).astype("<u8", copy=False).view("<u2")[:count]
    made: NDArray[Any] = np.multiply(lanes, np.float32(2**-16), dtype=np.float32)
    made += np.float32(2**-17)
    return made.reshape(shape)


class Precision(Protocol):
    """A number format for matrices on the wire. `row_bytes` is what one row of `width` numbers takes."""

    def write(self, values: Floats32, words: WordSource) -> bytes: ...
    def read(self, reader: Reader, rows: int, width: int) -> Floats32: ...
    def row_bytes(self, width: int) -> int: ...


class Fp32:
    """Single precision, bit for bit."""

    def write(self, values: Floats32, words: WordSource) -> bytes:  # noqa: ARG002 (nothing is rounded)
        expect_sendable("derivatives", values)
        return values.astype("<f4", copy=False).tobytes()

    def read(self, reader: Reader, rows: int, width: int) -> Floats32:
        values: Floats32 = reader.take(rows * width, "<f4").astype(np.float32).reshape(rows, width)
        refuse_out_of_range(values)
        return values

    def row_bytes(self, width: int) -> int:
        return 4 * width


class Bf16:
    """The upper half of a float32, rounded to the nearest, ties to even."""

    def write(self, values: Floats32, words: WordSource) -> bytes:  # noqa: ARG002 (rounding is not at random)
        expect_sendable("derivatives", values)
        bits = np.ascontiguousarray(values).view(np.uint32)
        rounded = (bits >> np.uint32(16)) & np.uint32(1)
        rounded += np.uint32(0x7FFF)
        rounded += bits  # no number is near the end of the range, so nothing carries out
        rounded >>= np.uint32(16)
        return rounded.astype("<u2").tobytes()

    def read(self, reader: Reader, rows: int, width: int) -> Floats32:
        bits = reader.take(rows * width, "<u2").astype(np.uint32)
        bits <<= np.uint32(16)
        values = bits.view(np.float32).reshape(rows, width)
        refuse_out_of_range(values)
        return values

    def row_bytes(self, width: int) -> int:
        return 2 * width


class Int8:
    """A float32 scale for each row, the row's largest number / 127, and whole numbers in -127..127.

    Rounded at random, each number on its own: the mean over all draws is the number. The two factors of a pair
    are rounded independently, so the mean of their product is the product. -128 is refused: none is ever sent.
    """

    def write(self, values: Floats32, words: WordSource) -> bytes:
        largest = largest_in_rows(values)
        expect_sendable("derivatives", largest)
        scales = scales_for(largest)
        return scales.astype("<f4", copy=False).tobytes() + round_rows(values, scales, words).tobytes()

    def read(self, reader: Reader, rows: int, width: int) -> Floats32:
        scales = read_scales(reader, rows)
        values = read_levels(reader, rows, width).astype(np.float32)
        values *= scales[:, None]
        return values

    def row_bytes(self, width: int) -> int:
        return width + 4


def read_scales(reader: Reader, count: int) -> Floats32:
    """Finite and not negative; minus zero is refused too, since it is another spelling of zero."""
    scales: Floats32 = reader.take(count, "<f4").astype(np.float32)
    if not (scales <= np.float32(MOST_VALUE / LEVELS)).all():  # false for NaN too
        raise RoomRefused(RoomRefusal.NOT_FINITE)
    if np.signbit(scales).any():
        raise RoomRefused(RoomRefusal.MALFORMED, "expected scales >= 0")
    return scales


def read_levels(reader: Reader, rows: int, width: int) -> NDArray[np.int8]:
    levels = reader.take(rows * width, "i1").reshape(rows, width)
    if levels.size and levels.min() < -LEVELS:
        raise RoomRefused(RoomRefusal.MALFORMED, f"expected whole numbers in -{LEVELS}..{LEVELS}")
    return levels
