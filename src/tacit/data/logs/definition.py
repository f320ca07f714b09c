"""The definition of a log: its columns, file layouts, example rule and published figures.

Logs that tacit knows have a module of their own in this folder, and `find_log` returns them by name. Any
other log is defined in a TOML file that `load_log` reads; unknown keys are refused:

    name = "my-clicks"

    [file]                        # for text files; Parquet needs none of it
    separator = ","
    missing = ["", "NULL"]
    encoding = "latin-1"          # utf-8 by default

    [columns.site]
    role = "public"

    [columns.age]
    role = "sensitive"
    kind = "whole"

    [columns.visitor]
    role = "user"

    [columns.bought]
    role = "label"
    kind = "flag"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from tacit.config import error_prefix, read_toml
from tacit.data.reading.layout import CellType, Encoding, FileLayout
from tacit.data.splits import LogSplit
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, LogSchema, Role

MOMENTS = frozenset({Kind.HOUR, Kind.WEEKDAY})
Derive = Callable[[pa.RecordBatch], pa.RecordBatch]  # adds columns; rows stay as they are


@dataclass(frozen=True)
class KeepRule:
    """The rule for which rows are examples: those where `column` is `value`."""

    column: str
    value: int
    words: str


@dataclass(frozen=True)
class PublishedFigure:
    """A published figure, under the name that `tacit data describe` gives to the same figure of a file."""

    name: str
    value: float


@dataclass(frozen=True)
class LogTables:
    """Where a log's rows are, and what is joined to them."""

    rows: Path
    derive: Derive
    joined: tuple[Path, ...] = ()


def single_file(path: Path) -> LogTables:
    """The tables of a log that is one file, with nothing to derive."""
    return LogTables(path, lambda batch: batch)


@dataclass(frozen=True)
class Log:
    """A log: its columns, layouts, split and published figures.

    `derived_from` names the raw columns that `tables(path).derive` needs.
    """

    name: str
    title: str
    about: str
    schema: LogSchema
    layouts: tuple[FileLayout, ...]
    split: LogSplit
    keep: KeepRule | None = None
    tables: Callable[[Path], LogTables] = single_file
    derived_from: Sequence[str] = ()
    published: Sequence[PublishedFigure] = field(default=())
    figures_from: str = "published"  # what stands over those figures
    shares: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # of all rows: a column and its value
    delay: Callable[[pa.RecordBatch], pa.Array] | None = None  # seconds from the row to its conversion, or null
    delay_from: Sequence[str] = ()  # the raw columns that `delay` needs
    public_bins: int = 100_000
    sensitive_bins: int = 50_000

    __repr__ = brief_repr

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """The columns that have to be read of a file, in the order of its layout."""
        needed = {column.source for column in self.schema.columns if column.is_used} | set(self.derived_from)
        if self.keep is not None:
            needed.add(self.keep.column)
        return tuple(name for name in self.layouts[0].columns if name in needed)

    def as_read(self, layout: FileLayout) -> FileLayout:
        """The layout, with whole numbers read as what their columns mean: flags, moments, ids of any length."""
        return replace(
            layout, columns={name: self._meant_type(name, raw) for name, raw in layout.columns.items()}
        )

    def _meant_type(self, name: str, raw: CellType) -> CellType:
        if raw is not CellType.WHOLE:
            return raw
        uses = [column for column in self.schema.columns if column.is_used and column.source == name]
        if any(Role.TIME in column.roles or column.kind in MOMENTS for column in uses):
            return CellType.TIME
        counted = {self.keep.column if self.keep else None, *(column for column, _ in self.shares.values())}
        if name in counted or any(column.kind is Kind.FLAG for column in uses):
            return CellType.FLAG
        computed = {*self.derived_from, *self.delay_from}
        if uses and name not in computed and all(column.kind is Kind.CATEGORY for column in uses):
            return CellType.ID
        return raw

    def with_encoding(self, encoding: Encoding) -> Log:
        """The same log, whose text files are in this encoding."""
        return replace(self, layouts=tuple(replace(each, encoding=encoding) for each in self.layouts))

    def with_public_keys(self, roles: Iterable[Role | str]) -> Log:
        """The same log, of which somebody states that these keys are public (`LogSchema.with_public_keys`)."""
        return replace(self, schema=self.schema.with_public_keys(roles))

    def as_json(self) -> dict[str, Any]:
        """What it is, in a few words."""
        return {"name": self.name, "title": self.title, "about": self.about}

    def published_figure(self, name: str) -> float | None:
        return next((figure.value for figure in self.published if figure.name == name), None)

    @property
    def optional_columns(self) -> frozenset[str]:
        return frozenset(column.source for column in self.schema.columns if column.optional)


LOG_NAMES = (
    "criteo-attribution",
    "criteo-display",
    "criteo-search",
    "taobao",
    "visits",
    "conversions",
    "display-small",
)


def find_log(name: str) -> Log:
    """A log that tacit knows, by its name."""
    if name not in LOG_NAMES:
        raise BadInput(f"expected a log named {', '.join(LOG_NAMES)}, got {name!r}")
    log: Log = import_module(f"tacit.data.logs.{name.replace('-', '_')}").LOG
    return log


TOP_KEYS = {"name", "utc_offset_hours", "file", "columns", "split", "keep", "bins"}
FILE_KEYS = {"separator", "header", "quoted", "missing", "columns", "encoding"}
FILE_TYPES = (
    ("header", bool, "true or false"),
    ("quoted", bool, "true or false"),
    ("missing", list, "a list of texts"),
    ("columns", list, "a list of names"),
)
COLUMN_KEYS = {
    "role", "roles", "kind", "source", "buckets_per_doubling",
    "domain", "between", "vocabulary", "optional", "why",
}  # fmt: skip
CELL_TYPES = {
    Kind.CATEGORY: CellType.TEXT,
    Kind.WHOLE: CellType.WHOLE,
    Kind.FLAG: CellType.WHOLE,
    Kind.HOUR: CellType.WHOLE,
    Kind.WEEKDAY: CellType.WHOLE,
    Kind.REAL: CellType.REAL,
    Kind.SEQUENCE: CellType.LIST,
}


def load_log(path: str | Path) -> Log:
    """The log that a TOML file describes."""
    place = str(path)
    with error_prefix(place):
        return _log(read_toml(path, "a schema"), place)


def _log(record: Mapping[str, Any], place: str) -> Log:
    _check_keys("", record, TOP_KEYS)
    name = record.get("name", Path(place).stem)
    columns = tuple(_column(key, value) for key, value in _table(record, "columns").items())
    schema = LogSchema(name, columns, record.get("utc_offset_hours", 0))
    split = _table(record, "split") or {"way": "random", "shares": {"train": 0.8, "test": 0.2}}
    _check_keys("split.", split, {"way", "shares", "seed"})
    if not split.keys() >= {"way", "shares"} or not isinstance(split["shares"], dict):
        raise BadInput("expected split.way and split.shares = { train = 0.8, test = 0.2 }, got others")
    bins = _table(record, "bins")
    _check_keys("bins.", bins, {"public", "sensitive"})
    keep = _keep(_table(record, "keep"), columns)
    return Log(
        name=name,
        title=f"{name} ({place})",
        about="",
        schema=schema,
        layouts=(_layout(_table(record, "file"), columns, keep),),
        split=LogSplit(split["way"], split["shares"], split.get("seed", 0)),
        keep=keep,
        public_bins=bins.get("public", 100_000),
        sensitive_bins=bins.get("sensitive", 50_000),
    )


def _column(name: str, record: Any) -> Column:
    if not isinstance(record, dict):
        raise BadInput(f"expected a table [columns.{name}], got {record!r}")
    _check_keys(f"columns.{name}.", record, COLUMN_KEYS)
    if ("role" in record) == ("roles" in record):
        raise BadInput(f'column {name}: expected role = "..." or roles = ["...", ...], got both or neither')
    options = {key: value for key, value in record.items() if key not in ("role", "roles", "kind")}
    roles = [record["role"]] if "role" in record else record["roles"]
    return Column(name, roles, record.get("kind", Kind.CATEGORY), **options)


def _layout(record: Mapping[str, Any], columns: tuple[Column, ...], keep: KeepRule | None) -> FileLayout:
    _check_keys("file.", record, FILE_KEYS)
    for key, kind, words in FILE_TYPES:
        if not isinstance(record.get(key, kind()), kind):
            raise BadInput(f"expected file.{key} to be {words}, got {record[key]!r}")
    raw: dict[str, CellType] = {}
    for column in columns:
        if column.is_used:
            raw[column.source] = _shared_cell_type(column, raw.get(column.source))
    if keep is not None:
        raw.setdefault(keep.column, CellType.WHOLE)
    header = record.get("header", True)
    if header and "columns" in record:
        raise BadInput("expected file.columns only for a file without a header, got both")
    if not header:
        order = record.get("columns")
        if not order:
            raise BadInput("expected file.columns, the order of all columns, for a file without a header")
        lacking = [name for name in raw if name not in order]
        if lacking:
            raise BadInput(f"column {lacking[0]}: expected it in file.columns, got a list without it")
        raw = {name: raw.get(name, CellType.TEXT) for name in order}
    return FileLayout(
        raw,
        separator=record.get("separator", ","),
        header=bool(header),
        quoted=bool(record.get("quoted", True)),
        missing=tuple(record.get("missing", [""])),
        encoding=Encoding.named("file.encoding", record.get("encoding", "utf-8")),
    )


def _shared_cell_type(column: Column, earlier: CellType | None) -> CellType:
    """Two columns of one source must agree on what its cells are; whole numbers are categories too."""
    wanted = CELL_TYPES[column.kind]
    if earlier is None or earlier is wanted:
        return wanted
    if {earlier, wanted} == {CellType.TEXT, CellType.WHOLE}:
        return CellType.WHOLE
    raise BadInput(
        f"column {column.name}: expected cells of {earlier} as others read {column.source}, got {wanted}"
    )


def _keep(record: Mapping[str, Any], columns: tuple[Column, ...]) -> KeepRule | None:
    if not record:
        return None
    _check_keys("keep.", record, {"column", "value"})
    if record.keys() != {"column", "value"} or not isinstance(record["value"], int):
        raise BadInput("expected keep.column and a whole keep.value, got others")
    for column in columns:
        if column.source == record["column"] and (column.is_target or Role.SENSITIVE in column.roles):
            raise BadInput(
                f"column {column.name}: expected keep.column to be public, since the number of rows is, "
                "got one that the guarantee protects"
            )
    return KeepRule(record["column"], record["value"], f"rows where {record['column']} is {record['value']}")


def _table(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key, {})
    if not isinstance(value, dict):
        raise BadInput(f"expected a table [{key}], got {value!r}")
    return value


def _check_keys(prefix: str, record: Mapping[str, Any], keys: set[str]) -> None:
    for key in record:
        if key not in keys:
            raise BadInput(f"expected one of {', '.join(sorted(keys))}, got the unknown key {prefix}{key}")
