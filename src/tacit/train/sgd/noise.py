"""Gaussian noise for training, drawn or added block by block; `witness` holds it to what was paid for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tacit import expect
from tacit.errors import SelfCheckFailed
from tacit.privacy.randomness import Source, UniformBelow
from tacit.train.sgd.witness import BEGINNING, EVERY_STEP, due
from tacit.train.targets import Floats

BLOCK = 2**18
"""Normals drawn or added at once: a megabyte, few enough to stay in some cache and many for one call."""

LOOK_EVERY = 16
"""Blocks of a large table: one in so many is looked at in a step that is."""


def blocks(size: int, at_once: int, step: int, below: UniformBelow | None) -> Iterator[tuple[slice, bool]]:
    """Cut 0..size into blocks, and say which of them to look at in this step: each in its turn at first, and
    later on as `below` draws it. Without it, none."""
    count = -(-size // at_once)
    turns, looks = max(1, min(count, LOOK_EVERY)), below is not None and due(step, below)
    turn = step % turns if step < EVERY_STEP or below is None else below(turns)
    for index in range(count):
        yield slice(index * at_once, min(size, (index + 1) * at_once)), looks and index % LOOK_EVERY == turn


class Noise:
    """N(0, stddev^2) from `source`: in blocks of at most `BLOCK` that the next draw overwrites, or added."""

    def __init__(self, source: Source, stddev: float) -> None:
        self.stddev = float(expect.positive("noise stddev", stddev))
        self._source = source
        self._block = np.empty(BLOCK, np.float32)
        self._began = np.empty(0, np.float32)

    def draw_unit(self, count: int) -> Floats:
        """The next `count` draws, scaled to 1, for a caller that scales them by a law of its own."""
        block: Floats = self._source.normal(out=self._block[:count])
        began, self._began = self._began, block[:BEGINNING].copy()
        if count >= BEGINNING and np.array_equal(began, self._began):
            raise SelfCheckFailed("noise: expected fresh draws, got the last ones again; the run was stopped")
        return block

    def add_to(self, array: Floats, factor: float = 1.0) -> None:
        """array += factor * noise, for a flat array, in place."""
        self._source.add_normal(array, self.stddev * factor)
