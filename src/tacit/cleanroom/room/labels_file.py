"""Labels from the file that an advertiser exports: one row per record, one column per task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from tacit.cleanroom.protocol.tokens import tokens
from tacit.cleanroom.room.labels import LabelTable
from tacit.data.encoding.fingerprints import key_fingerprints
from tacit.errors import BadInput
from tacit.files import parquet_faults

RECORD_NAMESPACE = "record"
"""Ids become 64-bit fingerprints in this namespace before they become tokens, as in prepared logs: that way
both parties name a record alike, whether its id is written as text or as a number."""


def read_labels(path: str | Path, id_column: str, tasks: Sequence[str], key: bytes) -> LabelTable:
    """The table in a .parquet or .csv file. `key` is the collaboration's (`protocol.tokens.token_key`).

    Labels are 0 and 1 or false and true. What is wrong is said by column, never by value or row.
    """
    file = Path(path)
    columns = [id_column, *tasks]
    if len(set(columns)) < len(columns):
        raise BadInput("expected the id column and the tasks to be different columns, got one twice")
    table = _read(file, columns)
    ids = table.column(id_column).combine_chunks()
    if ids.null_count:
        raise BadInput(f"column {id_column}: expected an id in every row, got an empty one")
    is_text = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
    try:
        named = key_fingerprints(pc.cast(ids, pa.binary()) if is_text else ids, RECORD_NAMESPACE)
    except (BadInput, pa.ArrowInvalid):
        raise BadInput(f"column {id_column}: expected ids as texts or whole numbers, got {ids.type}") from None
    if len(np.unique(named)) < len(named):
        raise BadInput(f"column {id_column}: expected each id once, got one twice")
    labels = np.stack([_labels(task, table.column(task)) for task in tasks], axis=1)
    return LabelTable.of(tokens(named, key), labels, tasks)


def _read(file: Path, columns: list[str]) -> pa.Table:
    if file.suffix not in (".parquet", ".csv"):
        raise BadInput(f"expected a .parquet or .csv file of labels, got {file.name}")
    try:
        if file.suffix == ".parquet":
            present: list[str] = parquet.read_schema(file).names
        else:
            with csv.open_csv(file) as reader:
                present = reader.schema.names
        for column in columns:
            if present.count(column) != 1:
                raise BadInput(f"expected one column {column} in {file.name}, got {present.count(column)}")
        if file.suffix == ".parquet":
            return parquet.read_table(file, columns=columns)
        as_written = {columns[0]: pa.binary()}  # else an id of 007 would be read as 7
        options = csv.ConvertOptions(include_columns=columns, column_types=as_written, null_values=[""])
        return csv.read_csv(file, convert_options=options)
    except OSError as problem:
        raise BadInput(f"expected a file of labels at {file}, got: {problem.strerror or 'none'}") from None
    except parquet_faults() as problem:  # whose message would quote the file
        if isinstance(problem, BadInput):
            raise
        raise BadInput(
            f"expected a {file.suffix} file of labels at {file}, got one that cannot be read"
        ) from None


def _labels(task: str, column: pa.ChunkedArray) -> NDArray[np.uint8]:
    if column.null_count:
        raise BadInput(f"column {task}: expected a label in every row, got an empty one")
    kind: Any = column.type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind)):
        raise BadInput(f"column {task}: expected labels of 0 or 1, got values of type {kind}")
    whole = pc.cast(column, pa.int64()) if pa.types.is_boolean(kind) else column
    if len(column) and not pc.all(pc.is_in(whole, pa.array([0, 1], whole.type))).as_py():
        raise BadInput(f"column {task}: expected labels of 0 or 1, got another value")
    return np.asarray(whole.to_numpy()).astype(np.uint8)
