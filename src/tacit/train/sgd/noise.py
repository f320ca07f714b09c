"""Gaussian noise for training, drawn block by block, and checked while it is used.

A run that adds no noise, or too little, looks like a very good run. So the noise itself is tested as it comes:
the mean square of the blocks that are looked at, one by one and all together, must lie where a chi-square law
puts it but for a chance of 2e-19 a look. If it does not, the run stops and nothing leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tacit import expect
from tacit.errors import SelfCheckFailed
from tacit.privacy.randomness import Source
from tacit.train.targets import Floats

BLOCK = 2**18
"""Normals drawn or added at once: a megabyte, few enough to stay in some cache and many for one call."""

LOOK_EVERY = 16
"""Blocks: one in so many is looked at whole, or in more than its beginning."""

LOOKED_AT = 2**14  # weights of a block that noise was added to
STRIDE = 7919  # a prime: where it is looked goes round the whole table
BEGINNING = 8  # draws that two blocks do not share by chance, not even to within a thousandth
EPS = float(np.finfo(np.float32).eps)
TAIL = 43.0  # e^-43 is 2e-19


def blocks(size: int, at_once: int, step: int) -> Iterator[tuple[slice, bool]]:
    """Cut 0..size into blocks, and say which of them to look at: in every step some, and each in its turn."""
    count = -(-size // at_once)
    turn = step % max(1, min(count, LOOK_EVERY))
    for index in range(count):
        yield slice(index * at_once, min(size, (index + 1) * at_once)), index % LOOK_EVERY == turn


class Noise:
    """N(0, stddev^2) from `source`: in blocks of at most `BLOCK` that the next draw overwrites, or added."""

    def __init__(self, source: Source, stddev: float) -> None:
        self.stddev = float(expect.positive("noise stddev", stddev))
        self._source = source
        self._block = np.empty(BLOCK, np.float32)
        self._drawn, self._looks, self._began = 0, 0, np.empty(0, np.float32)
        self._draws, self._squares, self._rounding = 0, 0.0, 0.0  # of all that was looked at

    def draw_unit(self, count: int) -> Floats:
        """The next `count` draws, scaled to 1, for a caller that scales them by a law of its own."""
        block: Floats = self._source.normal(out=self._block[:count])
        self._expect_fresh(block[:BEGINNING])
        if self._drawn % LOOK_EVERY == 0:
            self._look(block)
        self._drawn += 1
        return block

    def add_to(self, array: Floats, factor: float = 1.0, *, look: bool = True) -> None:
        """array += factor * noise, for a flat array, in place. A look is at how far some of it moved."""
        stddev = self.stddev * factor
        if not look:
            self._source.add_normal(array, stddev)
            return
        place = self._looks * STRIDE % max(1, len(array) - LOOKED_AT)  # elsewhere every time
        parts = array[:BEGINNING], array[place : place + LOOKED_AT]
        before = [part.copy() for part in parts]
        self._source.add_normal(array, stddev)
        rounding = max(float(np.abs(part).max(initial=0.0)) for part in before) * EPS / stddev
        began, moved = ((part - was) / np.float32(stddev) for part, was in zip(parts, before, strict=True))
        self._expect_fresh(began, rounding)
        self._look(moved, rounding)

    def _expect_fresh(self, began: Floats, rounding: float = 0.0) -> None:
        if len(began) < BEGINNING or rounding > 0.01:
            return
        last, self._began = self._began, began.copy()
        if len(last) and np.all(np.abs(last - began) <= 1e-3 + 2 * rounding):
            raise SelfCheckFailed("noise: expected fresh draws, got the last ones again; the run was stopped")

    def _look(self, draws: Floats, rounding: float = 0.0) -> None:
        """Stop unless these, each known to within `rounding`, have the mean square of standard normals."""
        squares = float(np.dot(draws, draws))
        self._looks += 1
        self._draws += len(draws)
        self._squares += squares
        self._rounding += len(draws) * rounding**2
        if not len(draws):
            return
        for found, count, off in (
            (squares, len(draws), len(draws) * rounding**2),
            (self._squares, self._draws, self._rounding),
        ):
            if not _chi_square_is_plausible(found, count, math.sqrt(off)):
                raise SelfCheckFailed(
                    f"noise: expected a mean square of 1 for noise scaled to it, got {found / count:.6g} over "
                    f"{count} draws; the run was stopped and nothing leaves"
                )


def _chi_square_is_plausible(total: float, degrees: int, off: float) -> bool:
    """Laurent and Massart 2000, lemma 1: beyond these bounds with a chance of at most e^-TAIL each.

    The draws may be `off` by so much in norm; a further 1e-6 of it is left to the rounding of float32 sums.
    """
    spread = 2 * math.sqrt(degrees * TAIL)
    least = math.sqrt(max(0.0, degrees - spread)) - off
    most = math.sqrt(degrees + spread + 2 * TAIL) + off
    return total >= 0 and least * (1 - 1e-6) <= math.sqrt(total) <= most * (1 + 1e-6)
