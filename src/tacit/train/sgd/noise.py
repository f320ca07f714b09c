"""Gaussian noise for training, drawn block by block, and checked while it is used.

A run that adds no noise, or too little, looks like a very good run. So the noise itself is tested as it comes:
the mean square of the blocks that are looked at, one by one and all together, must lie where a chi-square law
puts it but for a chance of 2e-19 a look. If it does not, the run stops and nothing leaves.
"""

from __future__ import annotations

import math

import numpy as np

from tacit import expect
from tacit.errors import SelfCheckFailed
from tacit.privacy.randomness import Source
from tacit.train.targets import Floats

BLOCK = 2**18
"""Normals drawn at once: a megabyte, which stays in cache, and few enough keys that they cost nothing."""

LOOK_EVERY = 16  # blocks
BEGINNING = 8  # draws that two blocks do not share by chance
TAIL = 43.0  # e^-43 is 2e-19


class Noise:
    """N(0, stddev^2) from `source`, in blocks of at most `BLOCK` that the next draw overwrites."""

    def __init__(self, source: Source, stddev: float) -> None:
        self.stddev = float(expect.positive("noise stddev", stddev))
        self._source = source
        self._block = np.empty(BLOCK, np.float32)
        self._drawn, self._began = 0, b""
        self._looked_at, self._mean_square_sum = 0, 0.0

    def draw(self, count: int) -> Floats:
        """The next `count` draws."""
        return self._checked(count, self.stddev)

    def draw_unit(self, count: int) -> Floats:
        """The same with standard deviation 1, for a caller that scales them by a law of its own."""
        return self._checked(count, 1.0)

    def _checked(self, count: int, stddev: float) -> Floats:
        block: Floats = self._source.normal(out=self._block[:count], scale=stddev)
        begins = block[:BEGINNING].tobytes()
        if count >= BEGINNING and begins == self._began:
            raise SelfCheckFailed("noise: expected fresh draws, got the last ones again; the run was stopped")
        self._began = begins
        if self._drawn % LOOK_EVERY == 0 and count:
            self._look(block, stddev)
        self._drawn += 1
        return block

    def _look(self, block: Floats, stddev: float) -> None:
        squares = float(np.dot(block, block)) / stddev**2
        self._looked_at += len(block)
        self._mean_square_sum += squares
        for found, expected in ((squares, len(block)), (self._mean_square_sum, self._looked_at)):
            if not _chi_square_is_plausible(found, expected):
                raise SelfCheckFailed(
                    f"noise: expected a mean square of {stddev**2:.6g}, got {found / expected * stddev**2:.6g} "
                    f"over {expected} draws; the run was stopped and nothing leaves"
                )


def _chi_square_is_plausible(total: float, degrees: int) -> bool:
    """Laurent and Massart 2000, lemma 1: beyond these bounds with a chance of at most e^-TAIL each.

    A further 2e-6 of the whole is left to the rounding of float32 sums.
    """
    spread = 2 * math.sqrt(degrees * TAIL)
    rounding = 2e-6 * degrees
    return degrees - spread - rounding <= total <= degrees + spread + 2 * TAIL + rounding
