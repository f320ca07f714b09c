"""The kernels in NumPy: slow, obvious, and what the tests hold the compiled ones to."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

CHUNK = 512
Further = Callable[[int], int]
"""The 64 bits that refine a pair, by its number."""


def fill_float32(
    out: NDArray[np.float32], keystream: NDArray[np.uint8], further: Further, scale: float
) -> None:
    """Fill `out` with scale * N(0, 1) from words of 32 bits; cells of 31 bits for the radius."""
    _fill(out, keystream.view(np.uint32).astype(np.uint64) << np.uint64(32), 31, 30, further, scale)


def fill_float64(
    out: NDArray[np.float64], keystream: NDArray[np.uint8], further: Further, scale: float
) -> None:
    """Fill `out` with scale * N(0, 1) from words of 64 bits; cells of 52 bits for the radius."""
    _fill(out, keystream.view(np.uint64), 52, 52, further, scale)


def _fill(
    out: NDArray[np.float32] | NDArray[np.float64],
    words: NDArray[np.uint64],
    cell_bits: int,
    offset_bits: int,
    further: Further,
    scale: float,
) -> None:
    """Box and Muller: radius sqrt(-2 ln u), uniform angle; chunk by chunk, radii before angles."""
    for start, chunk in zip(range(0, out.size, 2 * CHUNK), words.reshape(-1, 2, CHUNK), strict=True):
        here = out[start : start + 2 * CHUNK]
        pairs = here.size - here.size // 2
        radius = _radii(chunk[0, :pairs], cell_bits, start // 2, further) * scale
        # The lowest bits go unused; u and the offset are the middles of their cells.
        angle = chunk[1, :pairs]
        offset = (angle << np.uint64(2)).view(np.int64) >> np.int64(64 - offset_bits)
        turned = (offset + 0.5) * (math.pi / 4 / 2 ** (offset_bits - 1))
        across = radius * np.cos(turned) * np.where(angle >> np.uint64(63), -1.0, 1.0)
        up = radius * np.sin(turned)
        swapped = (angle >> np.uint64(62) & np.uint64(1)).astype(bool)
        here[:pairs] = np.where(swapped, up, across)
        here[pairs:] = np.where(swapped, across, up)[: here.size - pairs]


def _radii(words: NDArray[np.uint64], cell_bits: int, first_pair: int, further: Further) -> NDArray[np.float64]:
    cell = (words >> np.uint64(64 - cell_bits)).astype(np.float64)
    within = np.full(len(words), 0.5)
    for pair in np.flatnonzero(words < np.uint64(2**40)):  # u below 2^-24
        within[pair] = (further(first_pair + int(pair)) + 0.5) / 2.0**64
    u: NDArray[np.float64] = np.ldexp(cell + within, -cell_bits)
    return np.sqrt(-2.0 * np.log(u))


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
