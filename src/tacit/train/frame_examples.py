"""The rows of a frame as examples: what the label is, a hashing encoder of the right size, ids and keys."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tacit import expect
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.fingerprints import (
    bucket_range,
    column_fingerprints,
    key_fingerprints,
    missing_fingerprint,
)
from tacit.data.encoding.vocabulary import Hashing, Side, Vocabulary
from tacit.data.frames import encode_rows, key_column, read_frame, typed_rows
from tacit.data.splits import RowSet
from tacit.errors import BadInput
from tacit.schema.columns import Kind, LogSchema, Role
from tacit.train.examples import Examples
from tacit.train.models.saving import encoded_sizes

LABEL = "label"
UNIT_ROLES = (Role.USER, Role.PUBLISHER, Role.ADVERTISER)
FEWEST_BINS, MOST_BINS, BINS_PER_VALUE = 2**12, 2**16, 16
"""Hashed table rows of a side. How many rows a frame has is public under the replace relations."""
MOST_SENSITIVE_VALUES = 2**12  # that are expected of a category
MOST_VALUES = {Kind.FLAG: 3, Kind.HOUR: 25, Kind.WEEKDAY: 8}


def read_rows(X: Any, y: Any) -> tuple[pa.Table, str, NDArray[Any]]:  # noqa: N803
    """The frame with all its columns, what the label is called, and the labels."""
    table = read_frame(X)
    if not table.num_columns:
        raise BadInput(
            f"0 feature(s) (shape=({len(table)}, 0)) while a minimum of 1 is required: expected columns"
        )
    if not len(table):
        raise BadInput("Found array with 0 sample(s) while a minimum of 1 is required: expected rows")
    if isinstance(y, str):
        if y not in table.column_names:
            raise BadInput(
                f"y: expected a column of the frame, got {y!r}{expect.nearest(y, table.column_names)}"
            )
        return table, y, read_labels(table.column(y).to_numpy(), len(table))
    label = LABEL if LABEL not in table.column_names else f"{LABEL} (y)"
    return table, label, read_labels(y, len(table))


def read_labels(labels: Any, rows: int) -> NDArray[Any]:
    """One label for each row, as a flat array; missing ones are refused."""
    if labels is None:
        raise BadInput("requires y to be passed, but the target y is None: expected labels or a column's name")
    if hasattr(labels, "to_numpy") and not isinstance(labels, np.ndarray):
        labels = labels.to_numpy()
    found: NDArray[Any] = np.asarray(labels)
    if found.ndim == 2 and found.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning  # the package takes a second to load

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
            "(n_samples,)", DataConversionWarning, stacklevel=4,
        )  # fmt: skip
        found = found.ravel()
    if found.ndim != 1:
        raise BadInput(f"expected y as a flat array of labels, got shape {found.shape}")
    if len(found) != rows:
        raise BadInput(
            f"expected one label for each row, got inconsistent numbers of samples: {rows} and {len(found)}"
        )
    missing = np.array([each is None or each != each for each in found]) if found.dtype == object else (
        ~np.isfinite(found) if found.dtype.kind == "f" else np.zeros(len(found), bool)
    )  # fmt: skip
    if missing.any():
        came = "NaN or infinity" if found.dtype.kind == "f" else "None or NaN"
        raise BadInput(f"expected a label in every row of y, got {came} in row {int(np.argmax(missing))}")
    return found


def frame_encoder(schema: LogSchema, table: pa.Table, bins: int | None) -> Encoder:
    """The values of public columns as a list, which anybody may know; sensitive ones hashed into bins.

    How many values a sensitive column has is not looked at: numbers and times have as many as there are
    buckets, and categories at most one per row. With `bins`, both sides are hashed into so many.
    """
    public: Side = _public_values(schema, table) if bins is None else Hashing(bins)
    return Encoder.of(schema, public, Hashing(_sensitive_bins(schema, len(table)) if bins is None else bins))


def frame_examples(table: pa.Table, schema: LogSchema, encoder: Encoder, target: NDArray[Any]) -> Examples:
    """All rows of a frame, encoded, with the keys of their units."""
    public, sensitive = encode_rows(encoder, table)
    keys: dict[str, NDArray[Any]] = {"row": np.arange(len(table), dtype=np.int64)}
    for role in UNIT_ROLES:
        column = schema.only_column_with(role)
        if column is not None and column.source in table.column_names:
            keys[str(role)] = key_fingerprints(key_column(table, column, Kind.CATEGORY), str(role))
    time = schema.only_column_with(Role.TIME)
    if time is not None and time.source in table.column_names:
        keys[str(Role.TIME)] = key_column(table, time, Kind.HOUR).to_numpy(zero_copy_only=False)
    return Examples(
        public=public,
        sensitive=sensitive,
        sizes=encoded_sizes(encoder),
        at=RowSet(slice(0, len(table))),
        label=target,
        keys=keys,
        public_keys=frozenset(keys) - {str(role) for role in schema.sensitive_keys},
        encoder_digest=encoder.digest,
    )


def _public_values(schema: LogSchema, table: pa.Table) -> Side:
    columns = schema.columns_with(Role.PUBLIC)
    found: dict[str, list[NDArray[np.uint64]]] = {column.vocabulary: [] for column in columns}
    for rows in typed_rows(columns, table):
        for column in columns:
            values = column_fingerprints(column, rows.column(column.source), schema.utc_offset_hours)
            found[column.vocabulary].append(np.unique(values))
    listed = [np.unique(np.concatenate(values)) for values in found.values()]
    if sum(map(len, listed)) > MOST_BINS:
        return Hashing(MOST_BINS)
    absent = [missing_fingerprint(name) for name in found]
    listed = [values[values != none] for values, none in zip(listed, absent, strict=True)]
    return Vocabulary(tuple(found), tuple(listed))


def _sensitive_bins(schema: LogSchema, rows: int) -> int:
    values = 0
    for column in schema.columns_with(Role.SENSITIVE):
        if column.kind in (Kind.WHOLE, Kind.REAL):
            values += 2 * bucket_range(column.kind, column.buckets_per_doubling) + 2
        else:
            values += MOST_VALUES.get(column.kind, min(rows, MOST_SENSITIVE_VALUES))
    return min(MOST_BINS, max(FEWEST_BINS, 1 << (BINS_PER_VALUE * values - 1).bit_length())) if values else 1
