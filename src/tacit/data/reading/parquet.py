"""Parquet files parsed into the same typed columns as text files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tacit.data.reading.layout import (
    EXPECTED,
    CellType,
    FileLayout,
    epoch_seconds,
    nulls_for_missing,
    parse_numbers,
)
from tacit.data.reading.text import SPELLED, ParsedBlock
from tacit.errors import BadInput
from tacit.files import open_parquet, parquet_batches

ROWS_PER_BATCH = 2**16
BYTES = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


@dataclass(frozen=True)
class ParquetParser:
    """Parses the wanted columns of a Parquet file. Row numbers, from 1, stand for line numbers."""

    layout: FileLayout
    path: Path
    wanted: Sequence[str]  # by our names

    def blocks(self) -> Iterator[partial[ParsedBlock]]:
        """The batches in order, each waiting to be parsed on whichever core is free."""
        with open_parquet(self.path) as file:
            size, rows = self.path.stat().st_size, max(1, file.metadata.num_rows)
            theirs = {self.layout.aliases.get(name, name): name for name in file.schema_arrow.names}
            first = 1
            for batch in self._batches(file, [theirs[name] for name in self.wanted]):
                position = size * (first - 1 + batch.num_rows) // rows
                yield partial(self.parse, batch, first, position, [theirs[name] for name in self.wanted])
                first += batch.num_rows

    def _batches(self, file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
        # One row group after the other: over all of them at once, pyarrow holds on to what it has read.
        for group in range(file.num_row_groups):
            yield from parquet_batches(self.path, file, columns, ROWS_PER_BATCH, group=group)

    def parse(self, batch: pa.RecordBatch, first: int, position: int, theirs: Sequence[str]) -> ParsedBlock:
        columns = [
            self._convert_type(name, batch.column(their), first)
            for name, their in zip(self.wanted, theirs, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(columns, names=list(self.wanted))
        return ParsedBlock(rows, np.arange(first, first + batch.num_rows), [], position)

    def _convert_type(self, name: str, array: pa.Array, first: int) -> pa.Array:
        raw = self.layout.columns[name]
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        row = _first_that_is_no_text(array)
        if row is not None:
            raise BadInput(f"{self.path}: row {first + row}, column {name}: expected UTF-8, got other bytes")
        try:
            return nulls_for_missing(_convert_type(raw, array), self.layout.missing)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise BadInput(
                f"{self.path}: column {name}: expected {EXPECTED[raw]} in every row, got {array.type} that "
                "cannot be read as such"
            ) from None


def parquet_names(path: Path) -> list[str]:
    """The columns of a file, as it names them."""
    with open_parquet(path) as file:
        return list(file.schema_arrow.names)


def _first_that_is_no_text(array: pa.Array) -> int | None:
    """The first row whose text is no UTF-8: pyarrow does not check what a file declares to be text."""
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return None
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        for row, cell in enumerate(array.cast(pa.large_binary())):
            try:
                (cell.as_py() or b"").decode()
            except UnicodeDecodeError:
                return row
    return None


def _convert_type(raw: CellType, array: pa.Array) -> pa.Array:
    if raw is CellType.TIME and pa.types.is_temporal(array.type):
        return epoch_seconds(array)
    if pa.types.is_temporal(array.type):
        raise pa.ArrowInvalid("a time has a unit, and numbers and texts have none")
    if raw in SPELLED:
        return _whole(raw, array)
    if raw is CellType.REAL:
        return array.cast(pa.float64())
    if raw is CellType.LIST:
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            raise pa.ArrowInvalid("not a list")
        return array.cast(pa.list_(_convert_type(CellType.TEXT, array.values[:0]).type))
    if pa.types.is_uint64(array.type):
        return array.cast(pa.string()).cast(pa.binary())  # its digits: half of the range is beyond int64
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return array.cast(pa.int64())
    if not any(is_bytes(array.type) for is_bytes in BYTES):
        array = array.cast(pa.string())
    return array.cast(pa.binary())


def _whole(raw: CellType, array: pa.Array) -> pa.Array:
    """Whole numbers, however the file holds them."""
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), None, array)  # as pandas spells a missing whole number
    if raw is CellType.ID and (pa.types.is_uint64(array.type) or pa.types.is_decimal(array.type)):
        array = array.cast(pa.string())  # half of the range, or more of it, is beyond int64
    is_text = any(is_bytes(array.type) for is_bytes in (*BYTES, pa.types.is_large_string))
    return parse_numbers(raw, array.cast(pa.string()), ()) if is_text else array.cast(pa.int64())
