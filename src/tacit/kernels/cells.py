"""Sums over the cells that rows fall into: checked here, done in C++ or by their NumPy twins.

`cells` (rows, tables) are int32: the cell of each row in each table, all tables numbered together. A row falls
into exactly one cell of each table; a last cell, of all tables, may stand for none.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from tacit.arrays import Floats, Floats32, Ids
from tacit.errors import BadInput
from tacit.kernels.backend import load_kernel
from tacit.kernels.checks import ANY, expect_array


def add_cells(cells: Ids, by_cell: Floats32, into: Floats32) -> None:
    """into[row] = the sum of by_cell over the cells of the row, in single precision."""
    expect_array("cells", cells, np.int32, (ANY, ANY))
    expect_array("by_cell", by_cell, np.float32, (ANY,))
    expect_array("into", into, np.float32, (len(cells),), writable=True)
    if not load_kernel("_cells", "reference_cells").add_cells(cells, by_cell, into):
        _refuse(len(by_cell))


def add_rows_to_cells(cells: Ids, by_row: Floats, into: Floats) -> None:
    """into[cell] += the sum of by_row over the rows of the cell, in double precision: exact on a grid."""
    expect_array("cells", cells, np.int32, (ANY, ANY))
    expect_array("by_row", by_row, np.float64, (len(cells),))
    expect_array("into", into, np.float64, (ANY,), writable=True)
    if not load_kernel("_cells", "reference_cells").add_rows_to_cells(cells, by_row, into):
        _refuse(len(into))


def _refuse(count: int) -> NoReturn:
    raise BadInput(f"expected cells in 0..{count - 1}, got one outside")
