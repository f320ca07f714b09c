"""Frames of any library as Arrow tables, the roles of their columns, and their encoded rows.

`read_frame` takes what pandas, Polars, DuckDB, Arrow and NumPy give, dictionaries and lists of rows.
`FrameRoles` says which columns are public, which the guarantee protects and which names people, and makes the
schema of a log of them. Kinds of sensitive columns follow from their types alone: no value is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit import expect
from tacit.data.encoding.encoder import Encoder
from tacit.data.reading.layout import epoch_seconds
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, LogSchema, Role

ROWS_AT_ONCE = 2**18
PEOPLE = "user|visitor|person|people|customer|member|viewer|household|device|cookie"
NAMES_PEOPLE = re.compile(rf"(^|_)({PEOPLE})s?(_?id)?$")
NAMES_THINGS = re.compile(r"(^id$|_id$|[a-z]Id$|_code$|^zip$|postcode)")
TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
MOST_NAMED = 12
FEW_VALUES = 256


def read_frame(frame: Any, what: str = "X") -> pa.Table:
    """The columns of a frame, without a copy where its library has none to make.

    A one-dimensional array is refused, as scikit-learn refuses it; a dictionary of single values is one row.
    """
    if hasattr(frame, "nnz"):
        raise BadInput(
            f"Sparse data is not supported: expected {what} as a dense array or a frame, got a sparse one"
        )
    if isinstance(frame, pa.Table):
        return _named(frame, what)
    if isinstance(frame, pa.RecordBatch):
        return _named(pa.Table.from_batches([frame]), what)
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
        return _named(pa.table(frame), what)
    if hasattr(frame, "fetch_arrow_table"):  # DuckDB's relations of before it had the stream
        return _named(frame.fetch_arrow_table(), what)
    if isinstance(frame, Sequence) and not isinstance(frame, str | bytes):
        if len(frame) and all(isinstance(row, Mapping) for row in frame):
            keys = dict.fromkeys(name for row in frame for name in row)
            return _from_columns({name: [row.get(name) for row in frame] for name in keys})
        return _from_array(_array(frame, what), what)
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


@dataclass(frozen=True)
class FrameRoles:
    """Which columns of a frame are public, which are protected, and which one names the privacy unit.

    None stands for what was not said. Columns that are not named are sensitive, which is the safe guess; where
    only sensitive ones are named the others are public, and where both are named the others are left out.
    `guess` says in words what was guessed. `categories` are columns of numbers whose values have no order.
    """

    public: tuple[str, ...] | None = None
    sensitive: tuple[str, ...] | None = None
    unit: str | None = None
    categories: tuple[str, ...] = ()

    def schema(self, table: pa.Table, label: str) -> LogSchema:
        """The schema of the frame's columns; `label` is the name of the label, in the frame or beside it."""
        self._check(table.column_names, label)
        columns = [Column(label, {Role.LABEL}, Kind.REAL)]
        for name in table.column_names:
            if name == label:
                continue
            role = self._role(name)
            roles = {role} if role is not None else set()
            if name == self.unit:
                columns.append(Column(name, roles | {Role.USER}, Kind.CATEGORY))
            elif role is None:
                columns.append(Column(name, {Role.LEFT_OUT}, why="named neither public nor sensitive"))
            else:
                columns += self._features(name, role, table.column(name))
        return LogSchema("frame", tuple(columns))

    def guess(self, names: Iterable[str], label: str, *, unit_said: bool = False) -> str:
        """What was guessed, as a line that says how to confirm or change it; empty where nothing was."""
        rest = [name for name in names if name not in (label, self.unit)]
        unnamed = [name for name in rest if name not in (*(self.public or ()), *(self.sensitive or ()))]
        guesses = []
        if self.public is None and self.sensitive is None:
            said = "taken as sensitive, for no roles were given: say sensitive=[...] and public=[...]"
            guesses.append(f"{_listed(rest)}: {said}")
        elif self.public is None and unnamed:
            said = "taken as public, for only sensitive columns were named: say public=[...]"
            guesses.append(f"{_listed(unnamed)}: {said}")
        people = [name for name in rest if NAMES_PEOPLE.search(name.lower())]
        if self.unit is None and people and not unit_said:
            said = f"it looks like names of people: unit={people[0]!r} would promise per person, not per row"
            guesses.append(f"{people[0]}: {said}")
        return ". ".join(guesses)

    def _role(self, name: str) -> Role | None:
        if self.public is not None and name in self.public:
            return Role.PUBLIC
        if self.sensitive is not None and name in self.sensitive:
            return Role.SENSITIVE
        if name == self.unit or (self.public is not None and self.sensitive is not None):
            return None
        return Role.PUBLIC if self.sensitive is not None else Role.SENSITIVE

    def _features(self, name: str, role: Role, values: pa.ChunkedArray) -> list[Column]:
        kind = values.type
        if pa.types.is_temporal(kind) and not pa.types.is_time(kind) and not pa.types.is_duration(kind):
            return [
                Column(f"{name} hour", {role}, Kind.HOUR, source=name),
                Column(f"{name} weekday", {role}, Kind.WEEKDAY, source=name),
            ]
        chosen = self._kind(name, kind)
        whole = pa.types.is_integer(kind) and chosen is Kind.REAL
        if whole and role is Role.PUBLIC and count_values(values) <= FEW_VALUES:
            chosen = Kind.CATEGORY  # an hour, a slot: a value of its own each; anybody may count public values
        return [Column(name, {role}, chosen)]

    def _kind(self, name: str, kind: pa.DataType) -> Kind:
        if pa.types.is_dictionary(kind) or name in self.categories or pa.types.is_null(kind):
            return Kind.CATEGORY
        if any(is_text(kind) for is_text in (*TEXTS, *BYTES)):
            return Kind.CATEGORY
        if pa.types.is_boolean(kind):
            return Kind.FLAG
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            # Whole numbers too: a single missing value, or a fraction, makes fractions of all of them.
            return Kind.CATEGORY if NAMES_THINGS.search(name) else Kind.REAL
        raise BadInput(f"column {name}: expected texts, numbers, flags or times, got {kind}")

    def _check(self, names: Sequence[str], label: str) -> None:
        said = {"public": self.public or (), "sensitive": self.sensitive or (), "categories": self.categories}
        for role, listed in said.items():
            for name in listed:
                if name not in names:
                    near = expect.nearest(name, names)
                    raise BadInput(f"{role}: expected columns of the frame, got {name!r}{near}")
                if [*listed].count(name) > 1:
                    raise BadInput(f"{role}: expected each column once, got {name!r} twice")
                if name == label:
                    raise BadInput(f"{role}: expected features, got {name!r}, which is the label")
        both = [name for name in said["public"] if name in said["sensitive"]]
        if both:
            raise BadInput(f"column {both[0]}: expected one role, got public and sensitive")
        if self.unit is not None and self.unit not in names:
            raise BadInput(
                f"unit: expected a column of the frame, got {self.unit!r}{expect.nearest(self.unit, [*names])}"
            )
        if self.unit is not None and self.unit in (label, *said["sensitive"]):
            raise BadInput(
                f"unit: expected a column that names people, got {self.unit!r}, which is the label or sensitive"
            )


def name_columns(key: str, given: Any, names: Sequence[str]) -> tuple[str, ...] | None:
    """Columns by name, or by place where they have none; one alone may stand without a list."""
    if given is None:
        return None
    each = [given] if isinstance(given, str | int) and not isinstance(given, bool) else given
    if not isinstance(each, Iterable) or isinstance(each, Mapping):
        raise BadInput(f"{key}: expected a list of column names, got {given!r}")
    return tuple(_name_of(key, one, names) for one in each)


def _name_of(key: str, given: Any, names: Sequence[str]) -> str:
    if isinstance(given, int | np.integer) and not isinstance(given, bool) and f"{given}" not in names:
        if not 0 <= int(given) < len(names):
            raise BadInput(f"{key}: expected columns of the frame, got {given} of {len(names)}")
        return names[int(given)]
    if not isinstance(given, str | int | np.integer):
        raise BadInput(f"{key}: expected a list of column names, got {given!r} in it")
    return str(given)


def typed_rows(columns: Sequence[Column], table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The sources of these columns in the types that an encoder reads, some rows at a time."""
    wanted = {column.source: column for column in columns}
    absent = [source for source in wanted if source not in table.column_names]
    if absent:
        raise BadInput(f"expected a column {absent[0]!r}, got {_listed(table.column_names)}")
    chosen = table.select([*wanted])
    for start in range(0, max(1, len(chosen)), ROWS_AT_ONCE):
        part = chosen.slice(start, ROWS_AT_ONCE)
        arrays = [_typed(source, column.kind, _whole(part.column(source))) for source, column in wanted.items()]
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
        raise BadInput(f"expected a column {column.source!r}, got {_listed(table.column_names)}")
    array = _typed(column.source, kind, _whole(table.column(column.source)))
    if array.null_count:
        raise BadInput(f"column {column.source}: expected a value in every row, got a row without")
    return array


def _typed(name: str, meant: Kind, array: pa.Array) -> pa.Array:
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
        whole = pc.and_(pc.equal(pc.floor(array), array), pc.less(pc.abs(array), 2.0**53))
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
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


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
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    if isinstance(values, np.ndarray) and values.dtype == object:
        return pa.array(values.tolist(), from_pandas=True)
    return pa.array(values, from_pandas=True)


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


def _named(table: pa.Table, what: str) -> pa.Table:
    _unique(table.column_names, what)
    return table


def _unique(names: list[Any], what: str) -> list[Any]:
    texts = [*map(str, names)]
    twice = [name for name in texts if texts.count(name) > 1]
    if twice:
        raise BadInput(f"expected every column of {what} once, got {twice[0]!r} twice")
    return names


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(map(str, names[:MOST_NAMED])) or 'no columns'}{more}"
