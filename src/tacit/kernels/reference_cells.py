"""The loops over cells in NumPy, one to one with `cells.cpp`: without a compiler, and to test against."""

from __future__ import annotations

import numpy as np

from tacit.arrays import Floats, Floats32, Ids

AT_ONCE = 2**16  # rows, so that what is between stays in cache


def add_cells(cells: Ids, by_cell: Floats32, into: Floats32) -> bool:
    if not _are_within(cells, len(by_cell)):
        return False
    for first in range(0, len(cells), AT_ONCE):
        into[first : first + AT_ONCE] = by_cell[cells[first : first + AT_ONCE]].sum(axis=1)
    return True


def add_rows_to_cells(cells: Ids, by_row: Floats, into: Floats) -> bool:
    if not _are_within(cells, len(into)):
        return False
    for first in range(0, len(cells), AT_ONCE):
        some = cells[first : first + AT_ONCE]
        values = np.repeat(by_row[first : first + AT_ONCE], some.shape[1])
        into += np.bincount(some.ravel(), values, minlength=len(into))
    return True


def _are_within(cells: Ids, count: int) -> bool:
    return not cells.size or bool(cells.min() >= 0 and cells.max() < count)
