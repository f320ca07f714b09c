"""The mark that made-up data carries, so that whatever is made from it can say so."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tacit.data.reading.parquet import is_parquet

MARK = b"tacit.synthetic"


def beside(path: Path) -> Path:
    """Where a text file, which has no room for it, keeps its mark."""
    return path.with_name(f"{path.name}.synthetic.json")


def is_synthetic(path: Path) -> bool:
    """Whether tacit made up this file. A text file that lost its mark can no longer tell."""
    if beside(path).exists():
        return True
    return is_parquet(path) and MARK in (pq.read_schema(path).metadata or {})
