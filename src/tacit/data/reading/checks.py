"""Which rows mean something: labels that are labels, keys that are there, probabilities that are some."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.reading.bad_rows import BadRow
from tacit.schema.columns import IDS, Column, Kind, LogSchema, Role

Bools = NDArray[np.bool_]
COORDINATES = {Role.LATITUDE: (-90.0, 90.0), Role.LONGITUDE: (-180.0, 180.0)}
KEYS = frozenset(IDS) | {Role.TIME}


def bad_rows(
    schema: LogSchema, rows: pa.RecordBatch, lines: NDArray[np.int64]
) -> tuple[Bools | None, list[BadRow]]:
    """Which rows to keep (None: all), and what is wrong with each other one: its first column at fault."""
    good: Bools | None = None
    bad: list[BadRow] = []
    for column in schema.columns:
        if not column.is_used or column.source not in rows.schema.names:
            continue
        for wrong, problem in _problems(column, rows.column(column.source)):
            if good is None:
                good = np.ones(rows.num_rows, dtype=np.bool_)
            new = np.flatnonzero(wrong & good)
            good[new] = False
            bad.extend(BadRow(int(lines[row]), column.source, problem) for row in new)
    bad.sort(key=lambda row: row.line)
    return good, bad


def _problems(column: Column, array: pa.Array) -> Iterator[tuple[Bools, str]]:
    """What is wrong somewhere. A null is wrong only where a value is needed."""
    if array.null_count and _needed(column):
        yield _bools(pc.is_null(array)), f"expected {_named(column)}, got none"
    for fits, expected in _rules(column, array):
        if not pc.all(fits).as_py():  # nulls apart
            yield ~_bools(pc.fill_null(fits, True)), f"expected {expected}, got another number"


def _needed(column: Column) -> bool:
    """A key that is a feature too may be missing, as a feature may; a time has no value to stand for none."""
    return column.is_target or Role.TIME in column.roles or bool(column.roles & KEYS and not column.is_feature)


def _rules(column: Column, array: pa.Array) -> Iterator[tuple[pa.Array, str]]:
    if column.kind is Kind.FLAG:
        yield pc.is_in(array, value_set=pa.array([0, 1, None], array.type)), "0 or 1"
    if Role.PROPENSITY in column.roles:
        yield pc.and_(pc.greater(array, 0), pc.less_equal(array, 1)), "a probability above 0"
    if Role.PRICE in column.roles:
        yield pc.and_(pc.greater_equal(array, 0), pc.is_finite(array)), "a price of at least 0"
    if column.is_target and column.kind is Kind.REAL:
        yield pc.is_finite(array), "a finite number"
    limits = COORDINATES.get(next(iter(column.roles & COORDINATES.keys()), Role.LABEL), column.between)
    if limits is not None:
        low, high = limits
        yield pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high)), f"{low:g} to {high:g}"


def _named(column: Column) -> str:
    role = next(str(role) for role in Role if role in column.roles)
    return f"an {role}" if role.startswith("a") else f"a {role}"


def _bools(array: pa.Array) -> Bools:
    bools: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return bools
