"""The kernels in NumPy: slow, obvious, and what the tests hold the compiled ones to."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

RADIUS_BITS = 52


def fill_float32(out: NDArray[np.float32], keystream: NDArray[np.uint8], scale: float) -> None:
    """Fill `out` with scale * N(0, 1) from 12 bytes a pair: 64-bit radius words, then 32-bit angles."""
    pairs = out.size - out.size // 2
    radius_words = keystream[: 8 * pairs].view(np.uint64)
    angle_words = keystream[8 * pairs :].view(np.uint32).astype(np.uint64)
    # Spread over 64 bits, so that both widths share one definition. The missing half centres the angle.
    _fill(out, radius_words, angle_words << np.uint64(32), 32, scale)


def fill_float64(out: NDArray[np.float64], keystream: NDArray[np.uint8], scale: float) -> None:
    """Fill `out` with scale * N(0, 1) from 16 bytes a pair: 64-bit radius words, then 64-bit angles."""
    pairs = out.size - out.size // 2
    words = keystream.view(np.uint64)
    # Of each angle word the lowest 10 bits stay unused.
    _fill(out, words[:pairs], words[pairs:] & ~np.uint64(1023), 54, scale)


def _fill(
    out: NDArray[np.float32] | NDArray[np.float64],
    radius_words: NDArray[np.uint64],
    angle_words: NDArray[np.uint64],
    angle_bits: int,
    scale: float,
) -> None:
    """Box and Muller: radius sqrt(-2 ln u), uniform angle. Cosines fill the first half, sines the rest."""
    pairs = len(radius_words)
    # u in (0, 1], a whole multiple of 2^-52: never 0, so the logarithm is finite.
    whole = np.uint64(2**RADIUS_BITS) - (radius_words >> np.uint64(64 - RADIUS_BITS))
    radius = np.sqrt(-2.0 * np.log(np.ldexp(whole.astype(np.float64), -RADIUS_BITS))) * scale
    # A quarter turn is 2^62. Reduce to the nearest axis in whole numbers: a rounded angle would lose the
    # small offsets from it.
    axis = (angle_words + np.uint64(2**61)) & np.uint64(3 << 62)
    offset = (angle_words - axis).view(np.int64)
    quadrant = (axis >> np.uint64(62)).astype(np.intp)
    step = 2 ** (64 - angle_bits)
    turned = ((offset // step).astype(np.float64) + 0.5) * (step * math.pi / 2 / 2**62)
    cosine, sine = np.cos(turned), np.sin(turned)
    out[:pairs] = radius * np.choose(quadrant, [cosine, -sine, -cosine, sine])
    out[pairs:] = (radius * np.choose(quadrant, [sine, cosine, -sine, -cosine]))[: out.size - pairs]
