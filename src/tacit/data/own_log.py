"""A log of your own, described in one TOML file; unknown keys are refused.

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

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.data.log import Keep, Log
from tacit.data.reading.layout import Encoding, Layout, Raw
from tacit.data.splits import Split
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, LogSchema, Role
from tacit.toml import read_toml

TOP = {"name", "utc_offset_hours", "file", "columns", "split", "keep", "bins"}
FILE = {"separator", "header", "quoted", "missing", "columns", "encoding"}
FILE_TYPES = (
    ("header", bool, "true or false"),
    ("quoted", bool, "true or false"),
    ("missing", list, "a list of texts"),
    ("columns", list, "a list of names"),
)
COLUMN = {"role", "roles", "kind", "source", "buckets_per_doubling", "domain", "between", "vocabulary"} | {
    "optional",
    "why",
}
RAW = {
    Kind.CATEGORY: Raw.TEXT,
    Kind.WHOLE: Raw.WHOLE,
    Kind.FLAG: Raw.WHOLE,
    Kind.HOUR: Raw.WHOLE,
    Kind.WEEKDAY: Raw.WHOLE,
    Kind.REAL: Raw.REAL,
    Kind.SEQUENCE: Raw.LIST,
}


def load(path: str | Path) -> Log:
    """The log that a TOML file describes."""
    place = str(path)
    try:
        return _log(read_toml(path, "a schema"), place)
    except BadInput as refusal:
        raise BadInput(f"{place}: {refusal}") from None


def _log(record: Mapping[str, Any], place: str) -> Log:
    _known("", record, TOP)
    name = record.get("name", Path(place).stem)
    columns = tuple(_column(key, value) for key, value in _table(record, "columns").items())
    schema = LogSchema(name, columns, record.get("utc_offset_hours", 0))
    split = _table(record, "split") or {"way": "random", "shares": {"train": 0.8, "test": 0.2}}
    _known("split.", split, {"way", "shares", "seed"})
    if not split.keys() >= {"way", "shares"} or not isinstance(split["shares"], dict):
        raise BadInput("expected split.way and split.shares = { train = 0.8, test = 0.2 }, got others")
    bins = _table(record, "bins")
    _known("bins.", bins, {"public", "sensitive"})
    keep = _keep(_table(record, "keep"), columns)
    return Log(
        name=name,
        title=f"{name} ({place})",
        about="",
        schema=schema,
        layouts=(_layout(_table(record, "file"), columns, keep),),
        split=Split(split["way"], split["shares"], split.get("seed", 0)),
        keep=keep,
        public_bins=bins.get("public", 100_000),
        sensitive_bins=bins.get("sensitive", 50_000),
    )


def _column(name: str, record: Any) -> Column:
    if not isinstance(record, dict):
        raise BadInput(f"expected a table [columns.{name}], got {record!r}")
    _known(f"columns.{name}.", record, COLUMN)
    if ("role" in record) == ("roles" in record):
        raise BadInput(f'column {name}: expected role = "..." or roles = ["...", ...], got both or neither')
    options = {key: value for key, value in record.items() if key not in ("role", "roles", "kind")}
    roles = [record["role"]] if "role" in record else record["roles"]
    return Column(name, roles, record.get("kind", Kind.CATEGORY), **options)


def _layout(record: Mapping[str, Any], columns: tuple[Column, ...], keep: Keep | None) -> Layout:
    _known("file.", record, FILE)
    for key, kind, words in FILE_TYPES:
        if not isinstance(record.get(key, kind()), kind):
            raise BadInput(f"expected file.{key} to be {words}, got {record[key]!r}")
    raw: dict[str, Raw] = {}
    for column in columns:
        if column.is_used:
            raw[column.source] = _joint(column, raw.get(column.source))
    if keep is not None:
        raw.setdefault(keep.column, Raw.WHOLE)
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
        raw = {name: raw.get(name, Raw.TEXT) for name in order}
    return Layout(
        raw,
        separator=record.get("separator", ","),
        header=bool(header),
        quoted=bool(record.get("quoted", True)),
        missing=tuple(record.get("missing", [""])),
        encoding=Encoding.named("file.encoding", record.get("encoding", "utf-8")),
    )


def _joint(column: Column, earlier: Raw | None) -> Raw:
    """Two columns of one source must agree on what its cells are; whole numbers are categories too."""
    wanted = RAW[column.kind]
    if earlier is None or earlier is wanted:
        return wanted
    if {earlier, wanted} == {Raw.TEXT, Raw.WHOLE}:
        return Raw.WHOLE
    raise BadInput(
        f"column {column.name}: expected cells of {earlier} as others read {column.source}, got {wanted}"
    )


def _keep(record: Mapping[str, Any], columns: tuple[Column, ...]) -> Keep | None:
    if not record:
        return None
    _known("keep.", record, {"column", "value"})
    if record.keys() != {"column", "value"} or not isinstance(record["value"], int):
        raise BadInput("expected keep.column and a whole keep.value, got others")
    for column in columns:
        if column.source == record["column"] and (column.is_target or Role.SENSITIVE in column.roles):
            raise BadInput(
                f"column {column.name}: expected keep.column to be public, since the number of rows is, "
                "got one that the guarantee protects"
            )
    return Keep(record["column"], record["value"], f"rows where {record['column']} is {record['value']}")


def _table(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key, {})
    if not isinstance(value, dict):
        raise BadInput(f"expected a table [{key}], got {value!r}")
    return value


def _known(prefix: str, record: Mapping[str, Any], keys: set[str]) -> None:
    for key in record:
        if key not in keys:
            raise BadInput(f"expected one of {', '.join(sorted(keys))}, got the unknown key {prefix}{key}")
