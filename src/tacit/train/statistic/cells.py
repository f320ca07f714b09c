"""The cells that rows fall into, and the two sums over them that the whole method is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows as 0/1 vectors over all cells of all tables: `cell[t][i]` is row i's cell in table t, or `sizes[t]`
    where it has none."""

    cell: tuple[NDArray[np.int32], ...]
    sizes: tuple[int, ...]
    rows: int

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each table begins among all cells, and the end."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @property
    def count(self) -> int:
        return int(self.starts[-1])

    def add_up(self, by_cell: Reals) -> Reals:
        """For each row the sum over its cells."""
        total = np.zeros(self.rows)
        for cell, start, size in zip(self.cell, self.starts, self.sizes, strict=False):
            table = np.append(by_cell[start : start + size], 0.0)
            total += table[cell]
        return total

    def gather(self, by_row: Reals) -> Reals:
        """For each cell the sum over its rows."""
        if not self.cell:
            return np.zeros(0)
        return np.concatenate(
            [
                np.bincount(cell, by_row, minlength=size + 1)[:size]
                for cell, size in zip(self.cell, self.sizes, strict=True)
            ]
        )

    def by_table(self, of_tables: Reals) -> Reals:
        """A number of each table, for each of its cells."""
        return np.repeat(of_tables, self.sizes)
