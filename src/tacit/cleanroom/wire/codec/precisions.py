"""How a matrix of numbers is written: 32 bits, 16 bits, or 8 bits with a scale for each row."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.wire.codec.rounding import LEVELS, largest_in_rows, round_rows, scales_for
from tacit.cleanroom.wire.derivatives import Floats
from tacit.cleanroom.wire.framing import MOST_VALUE, Reader, expect_sendable, refuse_beyond
from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Words


class Precision(Protocol):
    """Writes and reads matrices. `row_bytes` is what one row of so many numbers takes."""

    def write(self, values: Floats, words: Words) -> bytes: ...
    def read(self, reader: Reader, rows: int, width: int) -> Floats: ...
    def row_bytes(self, width: int) -> int: ...


class Fp32:
    """Bit for bit."""

    def write(self, values: Floats, words: Words) -> bytes:  # noqa: ARG002 (nothing is rounded)
        expect_sendable("derivatives", values)
        return values.astype("<f4", copy=False).tobytes()

    def read(self, reader: Reader, rows: int, width: int) -> Floats:
        values: Floats = reader.take(rows * width, "<f4").astype(np.float32).reshape(rows, width)
        refuse_beyond(values)
        return values

    def row_bytes(self, width: int) -> int:
        return 4 * width


class Bf16:
    """The upper half of a float32, rounded to the nearest, ties to even."""

    def write(self, values: Floats, words: Words) -> bytes:  # noqa: ARG002 (rounding is not at random)
        expect_sendable("derivatives", values)
        bits = np.ascontiguousarray(values).view(np.uint32)
        rounded = (bits >> np.uint32(16)) & np.uint32(1)
        rounded += np.uint32(0x7FFF)
        rounded += bits  # no number is near the end of the range, so nothing carries out
        rounded >>= np.uint32(16)
        return rounded.astype("<u2").tobytes()

    def read(self, reader: Reader, rows: int, width: int) -> Floats:
        bits = reader.take(rows * width, "<u2").astype(np.uint32)
        bits <<= np.uint32(16)
        values = bits.view(np.float32).reshape(rows, width)
        refuse_beyond(values)
        return values

    def row_bytes(self, width: int) -> int:
        return 2 * width


class Int8:
    """A float32 scale for each row, the row's largest number / 127, and whole numbers in -127..127.

    Rounded at random, each number on its own: the mean over all draws is the number. The two factors of a pair
    are rounded independently, so the mean of their product is the product. -128 is refused: none is ever sent.
    """

    def write(self, values: Floats, words: Words) -> bytes:
        largest = largest_in_rows(values)
        expect_sendable("derivatives", largest)
        scales = scales_for(largest)
        return scales.astype("<f4", copy=False).tobytes() + round_rows(values, scales, words).tobytes()

    def read(self, reader: Reader, rows: int, width: int) -> Floats:
        scales = read_scales(reader, rows)
        values = read_levels(reader, rows, width).astype(np.float32)
        values *= scales[:, None]
        return values

    def row_bytes(self, width: int) -> int:
        return width + 4


def read_scales(reader: Reader, count: int) -> Floats:
    """Finite and not negative; minus zero is refused too, since it is another spelling of zero."""
    scales: Floats = reader.take(count, "<f4").astype(np.float32)
    if not (scales <= np.float32(MOST_VALUE / LEVELS)).all():  # false for NaN too
        raise RoomRefused(Refusal.NOT_FINITE)
    if np.signbit(scales).any():
        raise RoomRefused(Refusal.MALFORMED, "expected scales >= 0")
    return scales


def read_levels(reader: Reader, rows: int, width: int) -> NDArray[np.int8]:
    levels = reader.take(rows * width, "i1").reshape(rows, width)
    if levels.size and levels.min() < -LEVELS:
        raise RoomRefused(Refusal.MALFORMED, f"expected whole numbers in -{LEVELS}..{LEVELS}")
    return levels
