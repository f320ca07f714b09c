"""The mark that made-up data carries, so that whatever is made from it can say so.

What is made up is nobody's, so it may be trained on without a promise. The mark is therefore bound to its file:
to the size and the ends of a text, and to the number of rows of a Parquet file, so that another file of the
same name, or a copy to which rows were added, has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.data.reading.parquet import is_parquet
from tacit.errors import BadInput
from tacit.parquet import open_parquet
from tacit.records import parse_record, read_record

MARK = b"tacit.synthetic"
ENDS = 2**16  # bytes


def beside(path: Path) -> Path:
    """Where a text file, which has no room for it, keeps its mark."""
    return path.with_name(f"{path.name}.synthetic.json")


def text_mark(path: Path, settings: Mapping[str, Any]) -> bytes:
    """The mark of a finished text file."""
    return json.dumps({**settings, **_fingerprint(path)}).encode()


def parquet_mark(rows: int, settings: Mapping[str, Any]) -> bytes:
    """The mark inside a Parquet file of so many rows."""
    return json.dumps({**settings, "rows_here": rows}).encode()


def is_synthetic(path: Path) -> bool:
    """Whether tacit made up this file. One that lost its mark, or was changed, can no longer tell."""
    try:
        if beside(path).exists():
            mark = read_record(beside(path))
            return all(mark.get(key) == value for key, value in _fingerprint(path).items())
        if not is_parquet(path):
            return False
        with open_parquet(path) as file:
            mark = (file.schema_arrow.metadata or {}).get(MARK)
            return mark is not None and parse_record(mark).get("rows_here") == file.metadata.num_rows
    except (BadInput, AttributeError):
        return False


def _fingerprint(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with path.open("rb") as file:
        ends = file.read(ENDS)
        file.seek(max(0, size - ENDS))
        ends += file.read(ENDS)
    return {"bytes": size, "ends": hashlib.sha256(ends).hexdigest()}
