"""Parquet files, read one way; every refusal is one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.errors import BadInput

# What pyarrow raises on a file that is torn or edited, from its own kinds to names that are no text.
PARQUET_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError, OverflowError)


def open_parquet(path: str | Path) -> pq.ParquetFile:
    """The file, whose footer has been read."""
    with _as_a_refusal(path):
        file = pq.ParquetFile(path)
        try:
            list(file.schema_arrow.names)  # names that are no text show only when they are asked for
        except BaseException:
            file.close()
            raise
        return file


def parquet_batches(
    path: str | Path, file: pq.ParquetFile, columns: Sequence[str], rows: int, *, group: int | None = None
) -> Iterator[pa.RecordBatch]:
    """These columns, `rows` rows at a time, of all the file or of one group of its rows."""
    groups = None if group is None else [group]
    with _as_a_refusal(path):
        yield from file.iter_batches(rows, columns=list(columns), row_groups=groups)


@contextmanager
def _as_a_refusal(path: str | Path) -> Iterator[None]:
    try:
        yield
    except PARQUET_FAULTS as problem:
        told = " ".join(str(problem).split())[:200] or "another kind"
        raise BadInput(f"{path}: expected a whole Parquet file, got {told}") from None
