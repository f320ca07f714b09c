"""Rounding to 8 bits at random, so that the mean over all draws is the number itself.

With scale s and v = x / s, floor(v + u) is sent for u uniform on (0, 1): its mean is v. Here u is the middle of
one of 2^16 equal steps, so the chance of rounding up is within 2^-17 of what it should be; v and v + u are
float32, whose own rounding adds no more than 2^-16 (|v| <= 127). The bias of a number is therefore below 2^-15
of its scale: about 2.4e-7 of its row's largest number, four times float32's own rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.wire.derivatives import Floats
from tacit.privacy.randomness import Words

LEVELS = 127  # -128 is never sent
LANES = 4  # draws of 16 bits in a word of 64

_CHUNK = 2**16  # numbers at a time: what they become stays in a second-level cache
_SMALLEST = (
    np.float32(LEVELS) * np.finfo(np.float32).tiny
)  # below, a scale would lose bits; the row is sent as zero


def scales_for(largest: Floats) -> Floats:
    """Scales with 127 scale >= largest, as exact numbers: x / scale then never rounds beyond 127."""
    scales = largest / np.float32(LEVELS)
    short = scales.astype(np.float64) * LEVELS < largest
    scales[short] = np.nextafter(scales[short], np.float32(np.inf))
    scales[largest < _SMALLEST] = 0
    return scales


def largest_in_rows(values: Floats) -> Floats:
    """max |x| of each row, NaN where a row has one."""
    largest: Floats = np.maximum(values.max(axis=1), -values.min(axis=1))
    return np.abs(largest)  # a row of zeros may have given -0


def round_rows(values: Floats, scales: Floats, words: Words) -> NDArray[np.int8]:
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


def uniforms(shape: tuple[int, ...], words: Words) -> Floats:
    """Numbers of (0, 1) in the middle of 2^16 equal steps, from 16 bits each."""
    count = int(np.prod(shape))
    lanes = words(-(-count // LANES)).astype("<u8", copy=False).view("<u2")[:count]
    made: NDArray[Any] = np.multiply(lanes, np.float32(2**-16), dtype=np.float32)
    made += np.float32(2**-17)
    return made.reshape(shape)
