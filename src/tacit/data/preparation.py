"""Prepares a log for training: reads it, encodes it and writes its columns.

One streaming pass; memory does not grow with the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit import expect
from tacit.data.columns import Columns, ColumnsWriter
from tacit.data.encoding.encoder import Encoder, encoding_record
from tacit.data.encoding.fingerprints import key_fingerprints
from tacit.data.encoding.vocabulary import Hashing
from tacit.data.logs.definition import Log
from tacit.data.reading.reader import ExampleBlock, LogReader
from tacit.data.splits import LogSplit, Way
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.progress import Count, no_count
from tacit.schema.columns import IDS, Column, Kind, LogSchema, Role

NUMBERS = {
    Role.TIME: np.int64,
    Role.PRICE: np.float64,
    Role.PROPENSITY: np.float64,
    Role.LATITUDE: np.float64,
    Role.LONGITUDE: np.float64,
}
TARGET_TYPES = {Kind.FLAG: np.uint8, Kind.WHOLE: np.int64, Kind.REAL: np.float64}


@dataclass(frozen=True)
class PreparedLog:
    """A prepared log. `positive_rate` is the share of labels above 0, whatever kind of number they are;
    `not_numbers` says by column in how many rows a real feature was NaN, which is read as missing."""

    columns: Columns
    positive_rate: float
    label_kind: Kind
    not_numbers: Mapping[str, int]

    __repr__ = brief_repr

    def as_json(self) -> dict[str, Any]:
        manifest = self.columns.manifest
        return {
            "log": manifest["log"],
            "out": str(self.columns.folder),
            "rows": self.columns.rows,
            "positive_rate": self.positive_rate,
            "label_kind": str(self.label_kind),
            "not_numbers": dict(self.not_numbers),
            "rows_read": manifest["rows_read"],
            "rows_passed_over": manifest["rows_passed_over"],
            "bad_rows": manifest["bad_rows"],
            "parts": self.columns.part_sizes(),
            "fields": manifest["fields"],
            "table_rows": manifest["table_rows"],
            "synthetic": manifest["synthetic"],
            "encoder": manifest["encoder"],
        }


def hashing_encoder(log: Log, public_bins: int | None = None, sensitive_bins: int | None = None) -> Encoder:
    """An encoder of hashed bins, which needs no look at the data."""
    expect.kind("log", log, Log)
    public = Hashing(log.public_bins if public_bins is None else public_bins)
    return Encoder.of(
        log.schema, public, Hashing(log.sensitive_bins if sensitive_bins is None else sensitive_bins)
    )


def check_encoder(encoder: Encoder, log: Log) -> None:
    """Refuse an encoder that takes the log's columns for something else than the log does."""
    features = {column.name: column for column in log.schema.columns if column.is_feature}
    known = {column.name: column for column in encoder.columns}
    for name in [*known, *features]:
        if name not in features:
            raise BadInput(f"column {name}: expected a feature of {log.name} as the encoder knows it, got none")
        if name not in known:
            raise BadInput(
                f"column {name}: expected a feature that the encoder knows, got one that is new to it"
            )
        if encoding_record(known[name]) != encoding_record(features[name]):
            raise BadInput(
                f"column {name}: expected {_side_and_kind(known[name])} as the encoder knows it, got "
                f"{_side_and_kind(features[name])} in {log.name}"
            )
    if encoder.utc_offset_hours != log.schema.utc_offset_hours:
        raise BadInput(
            f"{log.name}: expected days cut at UTC{encoder.utc_offset_hours:+d} as the encoder has them, "
            f"got UTC{log.schema.utc_offset_hours:+d}"
        )


def _side_and_kind(column: Column) -> str:
    side = Role.PUBLIC if Role.PUBLIC in column.roles else Role.SENSITIVE
    return f"a {side} {column.treatment}"


def check_split(split: LogSplit, log: Log) -> None:
    """Refuse a split that the log cannot have."""
    if split.way is Way.BY_USER and log.schema.only_column_with(Role.USER) is None:
        raise BadInput(f"{log.name}: expected a user column for a split by user, got a log without one")
    split.refuse_sensitive(log.name, log.schema.sensitive_keys)


def prepare(
    reader: LogReader,
    encoder: Encoder,
    out: Path,
    *,
    split: LogSplit | None = None,
    overwrite: bool = False,
    progress: Count = no_count,
) -> PreparedLog:
    """Encode every example of the file, in the file's order, into `out`. Seconds to conversion are kept where a
    column has that role, or the reader was told to read what they are computed from (`with_delay_columns`)."""
    expect.kind("reader", reader, LogReader)
    expect.kind("encoder", encoder, Encoder)
    log, chosen = reader.log, split or reader.log.split
    check_split(chosen, log)
    check_encoder(encoder, log)
    positives, not_numbers = 0.0, Counter[str]()
    with ColumnsWriter(out, overwrite=overwrite) as writer:
        for block in reader.stream(lambda examples: _block(reader, encoder, examples), progress):
            positives += float(np.count_nonzero(block.arrays["label"] > 0))
            not_numbers.update(block.not_numbers)
            _rebase(block.arrays, writer)
            writer.append(block.arrays, block.rows)
        if not writer.rows:
            raise BadInput(reader.no_examples)
        encoder.save(writer.building)
        columns = writer.finish(
            {
                "log": log.name,
                "synthetic": reader.synthetic,
                "rows_read": reader.rows_read,
                "rows_passed_over": reader.rows_passed_over,
                "bad_rows": reader.bad_rows.as_json(),
                "positive_rate": positives / writer.rows,
                "columns": [
                    {"name": column.name, "roles": sorted(column.roles), "kind": str(column.kind)}
                    for column in log.schema.columns
                    if column.is_used
                ],
                "fields": {str(role): list(encoder.fields(role)) for role in (Role.PUBLIC, Role.SENSITIVE)},
                "table_rows": {"public": encoder.public.size, "sensitive": encoder.sensitive.size},
                "sensitive_keys": sorted(log.schema.sensitive_keys),
                "split": chosen.as_json(),
                "encoder": encoder.digest,
            }
        )
    return PreparedLog(columns, positives / columns.rows, log.schema.label.kind, dict(not_numbers))


@dataclass(frozen=True, eq=False)
class _Block:
    """One encoded block: arrays by the name of their file, and the counts that are reported."""

    arrays: dict[str, NDArray[Any]]
    rows: int
    not_numbers: dict[str, int]


def _block(reader: LogReader, encoder: Encoder, examples: ExampleBlock) -> _Block:
    rows, schema = examples.rows, reader.log.schema
    encoded = encoder.encode(rows)
    arrays: dict[str, NDArray[Any]] = {"public": encoded.public, "sensitive": encoded.sensitive}
    arrays["label"] = _target(schema.label, rows)
    arrays["row"] = examples.lines - reader.first_line
    for column in schema.columns_with(Role.AUXILIARY):
        arrays[f"auxiliary-{column.name}"] = _target(column, rows)
    delays = _delays(reader.log, rows, arrays["label"])
    if delays is not None:
        arrays["delay"] = delays
    for role in IDS:
        found = schema.only_column_with(role)
        if found is not None and found.source in rows.schema.names:
            arrays[str(role)] = key_fingerprints(rows.column(found.source), str(role))
    for role, dtype in NUMBERS.items():
        found = schema.only_column_with(role)
        if found is not None and found.source in rows.schema.names:
            arrays[str(role)] = _numbers(rows.column(found.source), dtype)
    for name, (lengths, ids) in encoded.sequences.items():
        arrays[f"sequence-{name}"] = ids
        arrays[f"offsets-{name}"] = np.cumsum(lengths)
    return _Block(arrays, rows.num_rows, _not_numbers(schema, rows))


def _delays(log: Log, rows: pa.RecordBatch, label: NDArray[Any]) -> NDArray[np.int64] | None:
    """Seconds from each row to what its label counts; -1 where that has not come."""
    column = log.schema.only_column_with(Role.DELAY)
    if column is not None:
        found = rows.column(column.source)
    elif log.delay is not None and set(log.delay_from) <= set(log.derived_from):
        found = log.delay(rows)
    else:
        return None
    seconds = _numbers(pc.fill_null(found, -1), np.int64)
    return np.where((label > 0) & (seconds >= 0), seconds, -1)


def _not_numbers(schema: LogSchema, rows: pa.RecordBatch) -> dict[str, int]:
    """The number of NaN values by feature. NaN is read as missing, and is often a fault upstream."""
    counts = {
        column.name: pc.sum(pc.is_nan(rows.column(column.source))).as_py() or 0
        for column in schema.columns
        if column.is_feature
        and column.kind is Kind.REAL
        and pa.types.is_floating(rows.column(column.source).type)
    }
    return {name: count for name, count in counts.items() if count}


def _rebase(arrays: dict[str, NDArray[Any]], writer: ColumnsWriter) -> None:
    """Make the block's offsets continue those of the earlier blocks; the first offset is 0."""
    for name in [name for name in arrays if name.startswith("offsets-")]:
        before = writer.length(f"sequence-{name.removeprefix('offsets-')}")
        arrays[name] += before
        if not writer.length(name):  # not even a block without rows came before
            arrays[name] = np.concatenate([[0], arrays[name]])


def _target(column: Column, rows: pa.RecordBatch) -> NDArray[Any]:
    return _numbers(rows.column(column.source), TARGET_TYPES[column.kind])


def _numbers(array: pa.Array, dtype: type[Any]) -> NDArray[Any]:
    """The array as numbers of this type. Null becomes NaN where the type has one; elsewhere it is refused."""
    if array.null_count and np.issubdtype(dtype, np.integer):
        raise BadInput("expected a time and a label in every row, got a row without")
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers.astype(dtype, copy=False)
