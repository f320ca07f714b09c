"""Arrays on disk, one a .npy file, as NumPy and `columns_writer` write them: numbers behind a short header.

The header is read by its one spelling and held against the file's size before anything is mapped or taken: a
length that was made up costs nothing, and nothing in a file is ever evaluated.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput

MAGIC = b"\x93NUMPY\x01\x00"
MOST_HEADER = 4096
NUMBERS = "biuf"  # flags, whole numbers with and without a sign, and reals
_HEADER = re.compile(
    rb"\{'descr': '([<|][biuf][1248])', 'fortran_order': False, "
    rb"'shape': \(((?:\d{1,18}(?:, ?|(?=\))))*)\), *\} *\n"
)


def map_array(path: Path) -> NDArray[Any]:
    """The array of a file, mapped and not read; one without numbers is made anew: there is nothing to map."""
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC) + 2)
            length = int.from_bytes(start[len(MAGIC) :], "little")
            header = _HEADER.fullmatch(file.read(min(length, MOST_HEADER)))
            size = path.stat().st_size
        if not start.startswith(MAGIC) or header is None:
            raise BadInput(f"{path}: expected a whole array, got none or a torn one")
        dtype = np.dtype(header[1].decode())
        shape = tuple(int(digits) for digits in re.findall(rb"\d+", header[2]))
        offset = len(start) + length
        if offset + math.prod(shape) * dtype.itemsize != size:
            raise BadInput(f"{path}: expected a whole array, got none or a torn one")
        if not math.prod(shape):
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, mode="r", offset=offset, shape=shape)
    except (OSError, ValueError) as problem:
        if isinstance(problem, BadInput):
            raise
        raise BadInput(f"{path}: expected a whole array, got none or a torn one") from None


def number_kind(word: Any) -> np.dtype[Any] | None:
    """The kind of number that a manifest names; None where it names none."""
    try:
        kind = np.dtype(word) if isinstance(word, str) else None
    except (TypeError, ValueError, SyntaxError):
        return None
    return kind if kind is not None and kind.kind in NUMBERS and kind.names is None and not kind.shape else None
