"""Parquet gives the same typed columns as text, whatever types its writer chose, or names the column."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tacit.data.reading.parquet as parquet_module
from tacit.data.columns import Columns
from tacit.data.logs.definition import Log, find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.reading.reader import LogReader
from tacit.data.splits import LogSplit
from tacit.data.synthetic import MARK, is_synthetic, mark_path, parquet_mark, text_mark
from tacit.errors import BadInput
from tacit.schema.columns import Column, LogSchema
from tests.support.reading_checks import COMMAS, NAMES, Read, read

ONES = {name: ["1", "1"] for name in NAMES}
LISTS = Log(
    name="lists",
    title="",
    about="",
    schema=LogSchema("lists", (Column("y", {"label"}, "flag"), Column("seen", {"sensitive"}, "sequence"))),
    layouts=(FileLayout({"y": CellType.WHOLE, "seen": CellType.LIST}),),
    split=LogSplit("random", {"all": 1}),
)


def written(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / "file.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def values(folder: Path, name: str, column: pa.Array, log: Log = COMMAS) -> list[Any]:
    others = {other: pa.array([1] * len(column)) for other in NAMES}
    found = read(log, written(folder, {**others, name: column}))
    assert found.bad == {}
    return [row[name] for row in found.rows]


def test_parquet_gives_what_text_gives(tmp_path: Path) -> None:
    """The whole way, to the bytes of every array: ids do not depend on how a file was stored."""
    rows = [(i % 2, 20 + i, i / 4, int(i % 5 > 0), f"v{i % 3}", f"{i % 4}") for i in range(40)]
    text = tmp_path / "file.csv"
    text.write_text("\n".join([",".join(NAMES), *(",".join(map(str, row)) for row in rows)]))
    columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(NAMES)}
    dictionary = {**columns, "visitor": pa.array(columns["visitor"]).dictionary_encode()}
    whole_sites = {**columns, "site": pa.array([int(site) for site in columns["site"]], pa.int16())}
    prepared = [_prepared(text, tmp_path / "text")]
    for at, stored in enumerate((columns, dictionary, whole_sites)):
        prepared.append(_prepared(written(tmp_path, stored), tmp_path / f"out{at}"))
    for other in prepared[1:]:
        assert other.manifest == prepared[0].manifest
        for name in other.manifest["arrays"]:
            assert np.array_equal(other[name], prepared[0][name]), name


def _prepared(path: Path, out: Path) -> Columns:
    return prepare(LogReader(COMMAS, path), hashing_encoder(COMMAS), out).columns


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([30, None], pa.int8()), [30, None]),
        (pa.array([30, None], pa.uint32()), [30, None]),
        (pa.array([30, None], pa.int64()), [30, None]),
        (pa.array([30, None], pa.uint64()), [30, None]),
        (pa.array([30.0, None], pa.float64()), [30, None]),  # as pandas writes whole numbers with gaps
        (pa.array([True, False]), [1, 0]),
        (pa.array([decimal.Decimal("30"), None]), [30, None]),
        (pa.array(["30", None]), [30, None]),
        (pa.array(["30", None], pa.large_string()), [30, None]),
        (pa.array([30, None]).dictionary_encode(), [30, None]),
        (pa.array(["30", None]).dictionary_encode(), [30, None]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_whole_numbers_come_in_many_types(tmp_path: Path, column: pa.Array, expected: list[Any]) -> None:
    found = values(tmp_path, "age", column)
    assert found == expected
    assert all(type(value) in (int, type(None)) for value in found)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["a", None]), [b"a", None]),
        (pa.array(["a", None], pa.large_string()), [b"a", None]),
        (pa.array(["a", None], pa.string_view()), [b"a", None]),
        (pa.array([b"\xff", None], pa.binary()), [b"\xff", None]),
        (pa.array([b"\xff", None], pa.large_binary()), [b"\xff", None]),
        (pa.array([b"\xff\xfe", None], pa.binary(2)), [b"\xff\xfe", None]),
        (pa.array(["a", "a", None]).dictionary_encode(), [b"a", b"a", None]),
        (pa.array(["", "a"]), [None, b"a"]),
        (pa.array([7, None], pa.int16()), [7, None]),
        (pa.array([7, 7]).dictionary_encode(), [7, 7]),
        (pa.array([2**64 - 1, None], pa.uint64()), [b"18446744073709551615", None]),
        (pa.array([7.0, None]), [b"7", None]),  # whole keys with gaps, as pandas writes them
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_texts_come_in_many_types(tmp_path: Path, column: pa.Array, expected: list[Any]) -> None:
    assert values(tmp_path, "site", column) == expected


@pytest.mark.parametrize(
    "column", [pa.array([2.5, None], pa.float32()), pa.array(["2.5", None]), pa.array([3, None])]
)
def test_numbers_come_in_many_types(tmp_path: Path, column: pa.Array) -> None:
    found = values(tmp_path, "paid", column)
    assert found == [float(column[0].as_py()), None]
    assert isinstance(found[0], float)


def test_words_for_missing_mean_missing_in_every_type(tmp_path: Path) -> None:
    layout = replace(COMMAS.layouts[0], missing=("-1", "", "NULL"))
    log = replace(COMMAS, layouts=(layout,))
    assert values(tmp_path, "age", pa.array([-1, 5], pa.int8()), log) == [None, 5]
    assert values(tmp_path, "age", pa.array(["-1", "5"]), log) == [None, 5]
    assert values(tmp_path, "paid", pa.array([-1.0, 5.0]), log) == [None, 5.0]
    assert values(tmp_path, "site", pa.array([-1, 5]), log) == [None, 5]
    assert values(tmp_path, "site", pa.array(["-1", "", "NULL", "x"]), log) == [None, None, None, b"x"]
    assert values(tmp_path, "site", pa.array(["-1", "x"]).dictionary_encode(), log) == [None, b"x"]
    bare = replace(COMMAS, layouts=(replace(layout, missing=()),))
    assert values(tmp_path, "site", pa.array(["-1", ""]), bare) == [b"-1", b""]


SECONDS = pa.array([datetime.datetime(2017, 5, 6)], pa.timestamp("s"))


@pytest.mark.parametrize(
    ("name", "expected", "column"),
    [
        ("age", "a whole number", pa.array([1.5])),
        ("age", "a whole number", pa.array(["x"])),
        ("age", "a whole number", pa.array([2**63], pa.uint64())),
        ("age", "a whole number", pa.array([[1]])),
        ("age", "a whole number", pa.array([{"a": 1}])),
        ("age", "a whole number", SECONDS),
        # Microseconds are not taken for seconds.
        ("age", "a whole number", SECONDS.cast(pa.timestamp("us"))),
        ("age", "a whole number", SECONDS.cast(pa.date32())),
        ("age", "a whole number", pa.array([5], pa.duration("ms"))),
        ("paid", "a number", pa.array(["2,5"])),
        ("paid", "a number", pa.array([[2.5]])),
        ("site", "a text", pa.array([["a"]])),
        ("site", "a text", pa.array([{"a": 1}])),
        ("site", "a text", SECONDS),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else value,
)
def test_a_column_of_another_type_is_refused_by_name(
    tmp_path: Path, name: str, expected: str, column: Any
) -> None:
    path = written(tmp_path, {**{other: [1] for other in NAMES}, name: column})
    with pytest.raises(BadInput) as refusal:
        read(COMMAS, path)
    assert str(refusal.value).startswith(f"{path}: column {name}: expected {expected} in every row, got ")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([[1, 2], [], None]), [[1, 2], [], None]),
        (pa.array([[1, None], [3], []], pa.list_(pa.int32())), [[1, None], [3], []]),
        (pa.array([["a"], None, ["b", "c"]]), [[b"a"], None, [b"b", b"c"]]),
        (pa.array([["a"], [], ["b"]], pa.large_list(pa.large_string())), [[b"a"], [], [b"b"]]),
        (pa.array([["a"], [], ["b"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))), [[b"a"], [], [b"b"]]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_lists(tmp_path: Path, column: pa.Array, expected: list[Any]) -> None:
    path = written(tmp_path, {"y": [0, 1, 0], "seen": column})
    assert [row["seen"] for row in read(LISTS, path).rows] == expected
    columns = prepare(LogReader(LISTS, path), hashing_encoder(LISTS), tmp_path / "out").columns
    offsets, ids = columns.sequence("seen")
    assert np.diff(offsets).tolist() == [len(row or ()) for row in expected]
    assert len(ids) == offsets[-1]


def test_what_is_no_list_is_refused(tmp_path: Path) -> None:
    for column in (pa.array([1]), pa.array(["1,2"]), pa.array([[[1]]]), pa.array([[1.5]])):
        with pytest.raises(BadInput, match="column seen: expected a list in every row, got"):
            read(LISTS, written(tmp_path, {"y": [0], "seen": column}))
    (tmp_path / "lists.csv").write_text("y,seen\n1,2\n")
    with pytest.raises(BadInput, match="expected a Parquet file, which can hold the lists of seen, got a text"):
        LogReader(LISTS, tmp_path / "lists.csv")


def test_bad_rows_have_their_number_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "ROWS_PER_BATCH", 7)
    labels = [2 if at in (0, 13, 14, 29) else at % 2 for at in range(30)]
    columns = {
        **{name: [1] * 30 for name in NAMES},
        "bought": labels,
        "shown": [at % 3 != 1 for at in range(30)],
    }
    found = read(COMMAS, written(tmp_path, columns, row_group_size=10))
    bad = [1, 15, 30]  # row 14 was not shown
    assert found.bad == dict.fromkeys(bad, "bought: expected 0 or 1, got another number")
    assert found.lines == [at + 1 for at in range(30) if at % 3 != 1 and at + 1 not in bad]
    assert (found.read, found.passed_over) == (30, 10)
    told: list[int] = []
    reader = LogReader(COMMAS, tmp_path / "file.parquet")
    list(reader.stream(lambda examples: examples.read, told.append))
    assert told == sorted(told)
    assert told[-1] == reader.bytes


def test_only_the_wanted_columns_are_looked_at(tmp_path: Path) -> None:
    path = written(tmp_path, {**ONES, "other": [[{"a": SECONDS[0].as_py()}]] * 2})
    assert read(COMMAS, path).read == 2


def test_a_file_without_rows_is_read(tmp_path: Path) -> None:
    assert read(COMMAS, written(tmp_path, {name: pa.array([], pa.int64()) for name in NAMES})) == Read()


def test_a_column_that_is_absent_or_comes_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"file\.parquet: expected a column age, got bought, "):
        LogReader(COMMAS, written(tmp_path, {name: [1] for name in NAMES if name != "age"}))
    pq.write_table(pa.table([pa.array([1])] * 7, names=[*NAMES, "age"]), tmp_path / "twice.parquet")
    with pytest.raises(BadInput, match=r"twice\.parquet: expected column age once, got it 2 times"):
        LogReader(COMMAS, tmp_path / "twice.parquet")
    visit = {"user": [1], "time": [0], "category_path": ["a"], "latitude": [1.0], "longitude": [1.0]}
    path = written(tmp_path, {**visit, "place": ["here"], "venue_id": ["there"]})
    with pytest.raises(BadInput, match="expected column place once, got it 2 times"):
        LogReader(find_log("visits"), path)


def test_a_torn_file_is_refused_by_name(tmp_path: Path) -> None:
    many = {name: np.random.default_rng(5).integers(0, 2, 20_000) for name in NAMES}
    path = written(tmp_path, many, compression="zstd")
    whole = path.read_bytes()
    for size in (4, 12, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(BadInput, match=r"file\.parquet: expected a whole Parquet file, got "):
            LogReader(COMMAS, path)
    damaged = bytearray(whole)
    damaged[200:4000] = bytes(3800)  # the footer is whole, the pages are not
    path.write_bytes(damaged)
    with pytest.raises(BadInput, match=r"file\.parquet: expected a whole Parquet file, got "):
        read(COMMAS, path)


def test_made_up_data_is_known_by_its_mark(tmp_path: Path) -> None:
    path = written(tmp_path, ONES)
    assert not is_synthetic(path)
    rows = len(pa.table(ONES))
    pq.write_table(pa.table(ONES).replace_schema_metadata({MARK: parquet_mark(rows, {})}), path)
    assert is_synthetic(path)
    assert _prepared(path, tmp_path / "out").synthetic
    text = tmp_path / "log.csv"
    text.write_text(",".join(NAMES) + "\n1,1,1,1,1,1\n")
    assert not is_synthetic(text)
    assert not _prepared(text, tmp_path / "real").synthetic
    mark_path(text).write_bytes(text_mark(text, {}))
    assert is_synthetic(text)
    assert _prepared(text, tmp_path / "made-up").synthetic


def test_a_mark_does_not_pass_to_another_file(tmp_path: Path) -> None:
    path = written(tmp_path, ONES)
    for mark in (
        parquet_mark(len(pa.table(ONES)) - 1, {}),
        b"{}",
        b"torn",
    ):  # rows were added, or it is no mark
        pq.write_table(pa.table(ONES).replace_schema_metadata({MARK: mark}), path)
        assert not is_synthetic(path)
    text = tmp_path / "log.csv"
    text.write_text(",".join(NAMES) + "\n1,1,1,1,1,1\n")
    mark_path(text).write_bytes(text_mark(text, {}))
    text.write_text(",".join(NAMES) + "\n1,1,1,1,1,0\n")  # as long, but another one
    assert not is_synthetic(text)
    mark_path(text).write_text("{}")
    assert not is_synthetic(text)
