"""Which examples a step reads: a Poisson sample where the accountant assumes one, shuffled epochs elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.privacy.randomness import WordSource
from tacit.train.examples import Places


def poisson_sample(records: int, sampling_probability: float, words: WordSource) -> Places:
    """Each of `records` joins independently with this probability; found by skips, so the cost is the sample's.

    The gap to the next member is geometric: floor(ln u / ln(1 - q)) for a uniform u. u has 64 bits and the
    logarithms are doubles, so a probability is off by a relative 1e-15 or so, and gaps beyond 45 / q do not
    occur. The size of the sample is secret: never print or log it.
    """
    records = expect.whole("records", records, at_least=0)
    share = float(expect.probability("sampling_probability", sampling_probability, one=True))
    if share == 1:
        return np.arange(records, dtype=np.int64)
    per_log = 1 / math.log1p(-share)
    chunks, last = [np.empty(0, np.int64)], -1
    while last < records:
        expected = (records - last) * share
        count = int(expected + 4 * math.sqrt(expected) + 16)
        # (w + 1/2) / 2^64 lies in (0, 1]: never 0, so the logarithm is finite.
        uniform = (words(count).astype(np.float64) + 0.5) * 2.0**-64
        gaps = np.minimum(np.floor(np.log(uniform) * per_log), float(records)).astype(np.int64)
        found = last + np.cumsum(gaps + 1)
        chunks.append(found)
        last = int(found[-1])
    places = np.concatenate(chunks)
    return places[places < records]


def shuffled_epochs(records: int, batch: int, epochs: int, words: WordSource) -> Iterator[Places]:
    """Every record once per epoch, in batches of a fresh order. Not for DP-SGD, which needs Poisson samples."""
    for _ in range(epochs):
        order = order_by_words(words(records))
        for first in range(0, records, batch):
            yield order[first : first + batch]


def order_by_words(words: NDArray[np.uint64]) -> Places:
    """Places in the order of their words, of equals the first: a stable argsort, in a fraction of its time.

    Numbers sort much faster than their places, so each place takes the lowest bits of its word. Where two words
    agree in all other bits (one epoch of a million records in 35) these decide, and then they are sorted whole.
    """
    bits = np.uint64(max(len(words) - 1, 1).bit_length())
    mask = (np.uint64(1) << bits) - np.uint64(1)
    packed = words & ~mask
    packed |= np.arange(len(words), dtype=np.uint64)
    packed.sort()
    leading = packed >> bits
    if (leading[1:] == leading[:-1]).any():
        return np.argsort(words, kind="stable").astype(np.int64)
    packed &= mask
    return packed.view(np.int64)
