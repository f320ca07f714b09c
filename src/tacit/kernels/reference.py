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


def text_fingerprints(
    offsets: NDArray[np.int32], data: NDArray[np.uint8], seed: int, out: NDArray[np.uint64]
) -> None:
    """A text's length, then its bytes as little-endian words of eight, the last one filled up with zeros."""
    first, past = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    lengths = past - first
    if np.any(first < 0) or np.any(lengths < 0) or np.any(past > len(data)):
        raise ValueError("expected rising offsets within the data")
    state = _absorb(np.full(len(out), seed, dtype=np.uint64), lengths.astype(np.uint64))
    for start in range(0, int(lengths.max(initial=0)), 8):
        rows = np.flatnonzero(lengths > start)
        at = first[rows, None] + start + np.arange(8)
        inside = at < past[rows, None]
        word = np.where(inside, data[np.where(inside, at, 0)], 0).astype(np.uint8)
        state[rows] = _absorb(state[rows], word.view("<u8").ravel().astype(np.uint64))
    out[:] = state


def whole_fingerprints(values: NDArray[np.int64], seed: int, out: NDArray[np.uint64]) -> None:
    """The same of each number's decimal digits."""
    texts = [b"%d" % value for value in values.tolist()]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    text_fingerprints(offsets, np.frombuffer(b"".join(texts), dtype=np.uint8), seed, out)


def _absorb(state: NDArray[np.uint64], word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of both moves every bit of the result, modulo 2^64 (Steele, Lea, Flood 2014, SplitMix)."""
    state = (state ^ word) + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
