"""Folders of arrays on disk: the JSON manifest and the .npy files, both checked before they are used.

A manifest is refused with one line that names what is wrong. The header of an array is matched against the
one spelling that NumPy and `ColumnsWriter` write, and the file's size against the header, before anything is
mapped: a made-up length costs no memory, and nothing in a file is ever evaluated.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.files import read_json

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


def read_manifest(folder: Path, name: str, *, what: str, version: int) -> dict[str, Any]:
    """The record in `folder/name`; `what` the folder should hold is for the refusal."""
    place = folder / name
    try:
        record = read_json(place)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{folder}: expected {what} here ({name}), got none") from None
    found = record.get("version") if isinstance(record, dict) else None
    if found != version or isinstance(found, bool):
        raise BadInput(f"{place}: expected version {version}, got {repr(found)[:60]}")
    read: dict[str, Any] = record
    return read
