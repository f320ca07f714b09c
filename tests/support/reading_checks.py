"""A made-up log and its whole reading, shared by the tests of reading."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit.data.columns import Columns
from tacit.data.logs.definition import KeepRule, Log, find_log
from tacit.data.preparation import PreparedLog, hashing_encoder, prepare
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.reading.reader import LogReader
from tacit.data.splits import LogSplit
from tacit.schema.columns import Column, LogSchema

NAMES = ("bought", "age", "paid", "shown", "visitor", "site")
TYPES = dict(
    zip(
        NAMES,
        (CellType.WHOLE, CellType.WHOLE, CellType.REAL, CellType.WHOLE, CellType.TEXT, CellType.TEXT),
        strict=True,
    )
)
COMMAS = Log(
    name="shop",
    title="A shop",
    about="Made up here.",
    schema=LogSchema(
        "shop",
        (
            Column("bought", {"label"}, "flag"),
            Column("age", {"sensitive"}, "whole", between=(0, 150)),
            Column("paid", {"price"}, "real"),
            Column("visitor", {"user"}),
            Column("site", {"public"}),
        ),
    ),
    layouts=(FileLayout(TYPES),),
    split=LogSplit("random", {"train": "1/2", "test": "1/2"}),
    keep=KeepRule("shown", 1, "rows that were shown"),
)
TABS = replace(COMMAS, layouts=(FileLayout(TYPES, separator="\t", header=False, quoted=False),))
HEADER = b",".join(name.encode() for name in NAMES)
GOOD = b"1,30,2.5,1,ann,north"


@dataclass
class Read:
    """All of a file."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    read: int = 0
    passed_over: int = 0


def read(log: Log, path: Path, limit: int = 10_000) -> Read:
    reader, found = LogReader(log, path, bad_rows_limit=limit), Read()
    for examples in reader.stream(lambda examples: examples):
        found.rows += examples.rows.to_pylist()
        found.lines += examples.lines.tolist()
        found.bad |= {
            row.line: f"{row.column}: {row.problem}" if row.column else row.problem for row in examples.bad
        }
    found.read, found.passed_over = reader.rows_read, reader.rows_passed_over
    assert reader.bad_rows.count == len(found.bad)
    assert found.read == len(found.rows) + found.passed_over + len(found.bad)
    return found


def of_lines(folder: Path, *lines: bytes, log: Log = COMMAS, end: bytes = b"\n") -> Read:
    header = [HEADER] if log is COMMAS else []
    path = folder / "lines"
    path.write_bytes(b"".join(line + end for line in (*header, *lines)))
    return read(log, path)


def prepared(name: str, path: Path) -> Columns:
    return prepare_log(name, path).columns


def prepare_log(name: str, path: Path) -> PreparedLog:
    out = path.with_name(f"{path.name}.columns")
    return prepare(LogReader(find_log(name), path), hashing_encoder(find_log(name)), out, overwrite=True)


def arrays(columns: Columns) -> dict[str, Any]:
    return {name: columns[name].tolist() for name in columns.manifest["arrays"]}


def field_ids(columns: Columns, side: str, field: str) -> list[int]:
    ids: list[int] = columns[side][:, columns.manifest["fields"][side].index(field)].tolist()
    return ids
