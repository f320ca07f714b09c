"""Columns for an evaluation, refused in one line if they cannot be meant."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import BadInput

Floats = NDArray[np.float64]


def numbers(name: str, values: ArrayLike, *, rows: int | None = None) -> Floats:
    """A flat column of finite numbers, as many as there are rows."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise BadInput(f"expected {name} as a flat column of numbers, got {array.dtype} of shape {array.shape}")
    if not len(array):
        raise BadInput(f"expected {name} to have rows, got none")
    if rows is not None and len(array) != rows:
        raise BadInput(f"expected {name} to have {rows} rows like the labels, got {len(array)}")
    column = array.astype(np.float64)
    if unusable := int(np.count_nonzero(~np.isfinite(column))):
        raise BadInput(f"expected {name} to be finite, got NaN or infinity in {unusable} of {len(column)} rows")
    return column


def probabilities(name: str, values: ArrayLike, *, rows: int | None = None) -> Floats:
    """The same, each between 0 and 1."""
    column = numbers(name, values, rows=rows)
    if outside := int(np.count_nonzero((column < 0) | (column > 1))):
        raise BadInput(f"expected {name} in [0, 1], got {outside} of {len(column)} rows outside")
    return column


def zeros_and_ones(name: str, values: ArrayLike) -> Floats:
    """The same, each 0 or 1."""
    column = numbers(name, values)
    if others := int(np.count_nonzero((column != 0) & (column != 1))):
        raise BadInput(f"expected {name} to be 0 or 1, got other values in {others} of {len(column)} rows")
    return column
