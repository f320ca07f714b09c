"""What training and studies ask of prepared columns: where rows came from, keys, groups, shared values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.vocabulary import Hashing, count_column_values, public_vocabulary
from tacit.data.logs.definition import KeepRule, Log
from tacit.data.preparation import PreparedLog, hashing_encoder, prepare
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.reading.reader import LogReader
from tacit.data.splits import LogSplit
from tacit.errors import BadInput
from tacit.privacy.allocation import allocate
from tacit.privacy.units import Cap, Unit, UnitKind
from tacit.schema.columns import Column, Kind, LogSchema, Role


def log_of(*columns: Column, raw: dict[str, CellType], keep: KeepRule | None = None) -> Log:
    schema = LogSchema("tiny", (*columns, Column("bought", {Role.LABEL}, Kind.FLAG)))
    layout = FileLayout({**raw, "bought": CellType.WHOLE})
    return Log("tiny", "", "", schema, (layout,), LogSplit("random", {"train": 1}), keep=keep)


def prepared(log: Log, path: Path, out: Path) -> PreparedLog:
    return prepare(LogReader(log, path), hashing_encoder(log), out)


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as refusal:
        work()
    return str(refusal.value)


def test_rows_say_where_in_the_file_an_example_was(tmp_path: Path) -> None:
    log = log_of(
        Column("x", {Role.PUBLIC}), raw={"x": CellType.WHOLE}, keep=KeepRule("x", 1, "rows where x is 1")
    )
    (tmp_path / "log.csv").write_text("x,bought\n0,0\n1,0\n1,7\n1,1\n")
    columns = prepared(log, tmp_path / "log.csv", tmp_path / "text").columns
    assert columns["row"].tolist() == [1, 3]  # row 0 is no example, row 2 is bad
    table = pa.table({"x": [0, 1, 1, 1], "bought": [0, 0, 7, 1]})
    pq.write_table(table, tmp_path / "log.parquet")
    columns = prepared(log, tmp_path / "log.parquet", tmp_path / "parquet").columns
    assert columns["row"].tolist() == [1, 3]


def test_an_optional_feature_that_is_absent_is_missing(tmp_path: Path) -> None:
    brand = Column("brand", {Role.PUBLIC}, optional=True)
    log = log_of(Column("x", {Role.PUBLIC}), brand, raw={"x": CellType.WHOLE, "brand": CellType.TEXT})
    (tmp_path / "with.csv").write_text("x,brand,bought\n1,,0\n")
    (tmp_path / "without.csv").write_text("x,bought\n1,0\n")
    with_it, without = (
        prepared(log, tmp_path / f"{name}.csv", tmp_path / name).columns for name in ("with", "without")
    )
    assert with_it.public.tolist() == without.public.tolist()


def test_columns_that_share_a_vocabulary_share_their_ids(tmp_path: Path) -> None:
    own, same = Column("a", {Role.PUBLIC}), Column("b", {Role.PUBLIC}, vocabulary="a")
    log = log_of(own, same, Column("c", {Role.PUBLIC}), raw=dict.fromkeys("abc", CellType.TEXT))
    (tmp_path / "log.csv").write_text("a,b,c,bought\nx,x,x,0\ny,,y,1\n")
    columns = prepared(log, tmp_path / "log.csv", tmp_path / "out").columns
    assert columns.public[0, 0] == columns.public[0, 1] != columns.public[0, 2]
    tallies = count_column_values(LogReader(log, tmp_path / "log.csv"), log.schema.columns_with(Role.PUBLIC))
    vocabulary = public_vocabulary(log.schema, tallies, threshold=1)
    assert vocabulary.fields == ("a", "c")
    encoded = Encoder.of(log.schema, vocabulary, Hashing(1))
    listed = prepare(LogReader(log, tmp_path / "log.csv"), encoded, tmp_path / "listed").columns.public
    assert listed[0, 0] == listed[0, 1] != listed[0, 2]
    assert listed[1, 1] == 0  # missing


def test_groups_hold_every_row_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    raw = {"auction": CellType.TEXT, "x": CellType.TEXT}
    log = log_of(Column("auction", {Role.AUCTION}), Column("x", {Role.PUBLIC}), raw=raw)
    (tmp_path / "log.csv").write_text(
        "auction,x,bought\n" + "".join(f"{row % 3},{row},0\n" for row in range(8))
    )
    columns = prepared(log, tmp_path / "log.csv", tmp_path / "out").columns
    order, starts = columns.groups(Role.AUCTION)
    groups = sorted(order[first:past].tolist() for first, past in pairwise(starts))
    assert groups == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert "role user" in refused(lambda: columns.groups(Role.USER))


def test_unit_keys_go_straight_into_an_allocation(tmp_path: Path) -> None:
    raw = {"who": CellType.TEXT, "at": CellType.WHOLE, "x": CellType.TEXT}
    columns = (Column("who", {Role.USER}), Column("at", {Role.TIME}, Kind.WHOLE), Column("x", {Role.PUBLIC}))
    log = log_of(*columns, raw=raw)
    (tmp_path / "log.csv").write_text("who,at,x,bought\nann,9,1,0\nbob,1,1,0\nann,2,2,1\nann,3,3,1\n")
    read = prepared(log, tmp_path / "log.csv", tmp_path / "out").columns
    allocation = allocate(Unit(UnitKind.USER), Cap(2), read.unit_keys, public=read.public_keys)
    assert sorted(allocation.kept.tolist()) == [1, 2, 3]  # ann's first two, and bob's only one
