"""Frames of any library as Arrow tables, and their encoded rows.

`read_frame` takes what pandas, Polars, DuckDB, Arrow and NumPy give, dictionaries and lists of rows. No value
of one row decides how another row's are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.encoding.encoder import Encoder
from tacit.data.reading.layout import epoch_seconds
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind

ROWS_AT_ONCE = 2**18
TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
MOST_NAMED = 12
NUMBERS = (int, float, Decimal, np.number)
MOST_EXACT = 2.0**53


def read_frame(frame: Any, what: str = "X") -> pa.Table:
    """The columns of a frame, without a copy where its library has none to make.

    A one-dimensional array is refused, as scikit-learn refuses it; a dictionary of single values is one row.
    """
    if hasattr(frame, "nnz"):
        raise BadInput(
            f"Sparse data is not supported: expected {what} as a dense array or a frame, got a sparse one"
        )
    if hasattr(frame, "to_numpy") and hasattr(frame, "name") and not hasattr(frame, "columns"):
        raise BadInput(f"expected {what} as rows and columns, got a {type(frame).__name__}")
    if isinstance(frame, pa.Table):
        return _check_names(frame, what)
    if isinstance(frame, pa.RecordBatch):
        return _check_names(pa.Table.from_batches([frame]), what)
    if isinstance(frame, np.ndarray):
        return _from_array(frame, what)
    if isinstance(frame, Mapping):
        return _from_columns(
            frame if all(map(_is_column, frame.values())) else {k: [v] for k, v in frame.items()}
        )
    if hasattr(frame, "dtypes") and hasattr(frame, "to_numpy") and hasattr(frame, "columns"):
        names = _unique([*frame.columns], what)
        shown = names if has_names(frame) else [f"x{place}" for place in range(len(names))]
        return _from_columns({own: frame[name] for own, name in zip(shown, names, strict=True)})
    if hasattr(frame, "__arrow_c_stream__"):
        return _check_names(pa.table(frame), what)
    if hasattr(frame, "fetch_arrow_table"):  # DuckDB's relations of before it had the stream
        return _check_names(frame.fetch_arrow_table(), what)
    if isinstance(frame, Sequence) and not isinstance(frame, str | bytes):
        if len(frame) and all(isinstance(row, Mapping) for row in frame):
            keys = dict.fromkeys(name for row in frame for name in row)
            return _from_columns({name: [row.get(name) for row in frame] for name in keys})
        return _from_rows(frame, what)
    if hasattr(frame, "__array__"):
        return _from_array(_array(frame, what), what)
    raise BadInput(
        f"expected {what} to be a frame of pandas, Polars, Arrow or DuckDB, an array or rows, got "
        f"{type(frame).__name__}"
    )


def has_names(frame: Any) -> bool:
    """Whether columns have names of their own: an array's are made up, and so are pandas' plain numbers."""
    if isinstance(frame, np.ndarray):
        return frame.dtype.names is not None
    if isinstance(frame, Mapping) or hasattr(frame, "column_names"):
        return True
    if hasattr(frame, "columns"):
        return any(isinstance(name, str) for name in frame.columns)
    if isinstance(frame, Sequence):
        return bool(len(frame)) and isinstance(frame[0], Mapping)
    return hasattr(frame, "__arrow_c_stream__")


def typed_rows(columns: Sequence[Column], table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The sources of these columns in the types that an encoder reads, some rows at a time."""
    wanted = {column.source: column for column in columns}
    names = {*table.column_names}  # once: it is made anew whenever it is asked for
    absent = [source for source in wanted if source not in names]
    if absent:
        raise BadInput(f"expected a column {absent[0]!r}, got {list_names(table.column_names)}")
    chosen = table.select([*wanted])
    for start in range(0, max(1, len(chosen)), ROWS_AT_ONCE):
        part = chosen.slice(start, ROWS_AT_ONCE)
        arrays = [
            _convert_type(source, column.kind, _whole(part.column(source))) for source, column in wanted.items()
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=[*wanted])


def encode_rows(encoder: Encoder, table: pa.Table) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The ids of a frame's public and sensitive features, (rows, fields) each."""
    blocks = [encoder.encode(rows) for rows in typed_rows(encoder.columns, table)]
    return np.concatenate([each.public for each in blocks]), np.concatenate([each.sensitive for each in blocks])


def count_values(values: pa.ChunkedArray) -> int:
    """How many values a column has, missing ones together as one."""
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return len(values.unique())


def key_column(table: pa.Table, column: Column, kind: Kind) -> pa.Array:
    """A column of keys or times, read as this kind; every row must have one."""
    if column.source not in table.column_names:
        raise BadInput(f"expected a column {column.source!r}, got {list_names(table.column_names)}")
    array = _convert_type(column.source, kind, _whole(table.column(column.source)))
    if array.null_count:
        raise BadInput(f"column {column.source}: expected a value in every row, got a row without")
    return array


def _convert_type(name: str, meant: Kind, array: pa.Array) -> pa.Array:
    kind = array.type
    try:
        if meant in (Kind.HOUR, Kind.WEEKDAY):
            return epoch_seconds(array) if pa.types.is_temporal(kind) else array.cast(pa.int64())
        if meant in (Kind.WHOLE, Kind.REAL):
            if pa.types.is_temporal(kind) or any(is_text(kind) for is_text in (*TEXTS, *BYTES)):
                raise pa.ArrowInvalid("no number")
            if meant is Kind.REAL:
                return array.cast(pa.float64(), safe=False)
            return _whole_numbers(array)
        return _category(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        expected = {
            Kind.HOUR: "times",
            Kind.WEEKDAY: "times",
            Kind.WHOLE: "whole numbers",
            Kind.REAL: "numbers",
        }
        raise BadInput(
            f"column {name}: expected {expected.get(meant, 'texts or whole numbers')}, got {kind}"
        ) from None


def _category(array: pa.Array) -> pa.Array:
    """Texts as bytes, numbers as their digits: 17, 17.0 and "17" are one value.

    Each value by itself: were one row's value to decide how others are spelled, it would change their features.
    """
    kind = array.type
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind)):
        return array.cast(pa.int64())
    if pa.types.is_floating(kind):
        array = pc.if_else(pc.is_nan(array), None, array.cast(pa.float64()))
        if pc.any(pc.greater_equal(pc.abs(array), MOST_EXACT)).as_py():
            raise pa.ArrowInvalid("numbers that fractions cannot tell apart")
        whole = pc.equal(pc.floor(array), array)
        digits = pc.if_else(whole, array, None).cast(pa.int64()).cast(pa.string())
        array = pc.if_else(pc.fill_null(whole, False), digits, array.cast(pa.string()))
    elif not any(is_bytes(kind) for is_bytes in BYTES):
        array = array.cast(pa.string())
    return array.cast(pa.binary())


def _whole_numbers(array: pa.Array) -> pa.Array:
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), None, array)
    return array.cast(pa.int64())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if not pa.types.is_dictionary(array.type):
        return array
    if pa.types.is_string_view(array.type.value_type):  # which Arrow cannot take from
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))
    return array.dictionary_decode()


def _is_column(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)


def _from_columns(columns: Mapping[Any, Any]) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[str(name)] = values if isinstance(values, pa.Array | pa.ChunkedArray) else _column(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            kinds = sorted({type(value).__name__ for value in values if value is not None and value == value})
            raise BadInput(
                f"column {name}: expected values of one type, got {' and '.join(kinds[:3])}"
            ) from None
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise BadInput(f"expected columns of one length, got {' and '.join(map(str, sorted(lengths)))}")
    return pa.table(arrays)


def _column(values: Any) -> pa.Array:
    """A column in the type that it declares. Lists and objects declare none: their numbers are fractions, all
    of them, so that no single value decides how others are read."""
    if isinstance(values, list | tuple) or str(getattr(values, "dtype", "")) == "object":
        each = [None if is_missing(value) else value for value in values]
        numbers = all(
            isinstance(value, NUMBERS) and not isinstance(value, bool) for value in each if value is not None
        )
        if numbers and any(value is not None for value in each):
            return pa.array([None if value is None else float(value) for value in each], pa.float64())
        return pa.array(each, from_pandas=True)
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    return pa.array(values, from_pandas=True)


def is_missing(value: Any) -> bool:
    """None, NaN, and what pandas has for them."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )


def _from_rows(rows: Sequence[Any], what: str) -> pa.Table:
    """Rows as lists: columns are read one by one, so that a text in one does not make texts of all."""
    if not len(rows) or not all(isinstance(row, list | tuple) and len(row) == len(rows[0]) for row in rows):
        return _from_array(_array(rows, what), what)
    return _from_columns({f"x{place}": list(values) for place, values in enumerate(zip(*rows, strict=True))})


def _array(values: Any, what: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        raise BadInput(f"expected {what} to be rows of one length, got rows of several") from None


def _from_array(array: NDArray[Any], what: str) -> pa.Table:
    if array.dtype.names:
        return _from_columns({name: array[name] for name in array.dtype.names})
    if array.dtype.kind == "c":
        raise BadInput(f"Complex data not supported: expected real numbers in {what}, got {array.dtype}")
    if array.ndim != 2:
        raise BadInput(
            f"Expected 2D array, got {array.ndim}D array instead as {what}. Reshape your data: rows by columns"
        )
    if array.dtype.kind == "f" and np.isinf(array).any():
        raise BadInput(f"expected finite numbers or NaN in {what}, got infinity")
    return _from_columns({f"x{place}": array[:, place] for place in range(array.shape[1])})


def _check_names(table: pa.Table, what: str) -> pa.Table:
    _unique(table.column_names, what)
    return table


def _unique(names: list[Any], what: str) -> list[Any]:
    twice = [name for name, count in Counter(map(str, names)).items() if count > 1]
    if twice:
        raise BadInput(f"expected every column of {what} once, got {twice[0]!r} twice")
    return names


def list_names(names: Sequence[str]) -> str:
    """The first of them, for a line of an error."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(map(str, names[:MOST_NAMED])) or 'no columns'}{more}"
