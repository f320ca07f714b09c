"""What every generator gives: the log as it would be published, and apart from it the truth behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tacit import expect

ROWS_PER_BATCH = 2**16


@dataclass(frozen=True)
class Generated:
    """Some rows of a made-up log. `truth` has the same rows: for studies, never for training."""

    batch: pa.RecordBatch
    truth: pa.RecordBatch


class World(Protocol):
    """A made-up world that a log of any size can be drawn from.

    The same world gives the same rows, and a longer log begins with the rows of a shorter one.
    """

    @property
    def name(self) -> str: ...

    def batches(self, rows: int) -> Iterator[Generated]:
        """Exactly so many rows, a batch of about ROWS_PER_BATCH at a time."""
        ...

    def side_tables(self) -> Mapping[str, pa.Table]:
        """Tables that the log's rows point into, by their published name; most logs have none."""
        ...


def first_rows(rows: int, blocks: Iterable[Generated]) -> Iterator[Generated]:
    """The first rows of an endless series of blocks.

    A block is always drawn whole, so that its first rows do not depend on how many are wanted.
    """
    return _cut(expect.whole("rows", rows, at_least=0), blocks)


def _cut(left: int, blocks: Iterable[Generated]) -> Iterator[Generated]:
    if not left:
        return
    for block in blocks:
        yield Generated(block.batch.slice(0, left), block.truth.slice(0, left))
        left -= block.batch.num_rows
        if left <= 0:
            return


def generator(seed: int, *where: int) -> np.random.Generator:
    """A stream of its own for each (seed, place): the same place draws the same whatever came before it."""
    # NumPy fills up with zeros, so without the depth (1,) and (1, 0) would be one place.
    entropy = [expect.whole("seed", seed, at_least=0), len(where), *where]
    return np.random.Generator(np.random.PCG64DXSM(entropy))
