"""The loops over cells against a dense matrix, compiled and in NumPy, and what they refuse."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from tacit.errors import BadInput
from tacit.kernels import cells as kernels
from tacit.kernels import reference_cells
from tacit.kernels.backend import load_kernel

MODULES = [load_kernel("_cells", "reference_cells"), reference_cells]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (70, 5), (900, 2)])
def test_sums_over_cells_and_rows(
    module: ModuleType, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "load_kernel", lambda *_: module)
    monkeypatch.setattr(reference_cells, "AT_ONCE", 64)
    draw = np.random.default_rng(1)
    cells = draw.integers(0, 11, shape, dtype=np.int32)
    dense = np.zeros((shape[0], 11))
    np.add.at(dense, (np.arange(shape[0])[:, None], cells), 1)
    by_cell, by_row = draw.normal(size=11).astype(np.float32), draw.integers(0, 2**20, shape[0]) / 2**20
    total = np.empty(shape[0], np.float32)
    kernels.add_cells(cells, by_cell, total)
    np.testing.assert_allclose(total, dense @ by_cell, rtol=1e-5, atol=1e-5)
    into = np.ones(11)
    kernels.add_rows_to_cells(cells, by_row, into)
    assert (into == 1 + dense.T @ by_row).all()  # numbers on a grid: exact


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("wrong", [-1, 4])
def test_cells_that_are_not_there_are_refused(
    module: ModuleType, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "load_kernel", lambda *_: module)
    cells = np.array([[0, 3], [2, wrong]], np.int32)
    with pytest.raises(BadInput, match=r"expected cells in 0\.\.3, got one outside"):
        kernels.add_cells(cells, np.zeros(4, np.float32), np.zeros(2, np.float32))
    with pytest.raises(BadInput, match=r"expected cells in 0\.\.3, got one outside"):
        kernels.add_rows_to_cells(cells, np.zeros(2), np.zeros(4))
    with pytest.raises(BadInput, match="expected by_row as"):
        kernels.add_rows_to_cells(cells, np.zeros(3), np.zeros(4))
