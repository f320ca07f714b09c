"""Preparing a log: what is counted and stored, alike in two files, refused as a whole, in constant memory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data.description import with_delay_columns
from tacit.data.encoding.encoder import Encoder
from tacit.data.generators.worlds import world
from tacit.data.logs.definition import KeepRule, Log, find_log
from tacit.data.preparation import PreparedLog, hashing_encoder, prepare
from tacit.data.reading import parquet, reader
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.reading.reader import LogReader
from tacit.data.reading.text import blocks as blocks_of_lines
from tacit.data.splits import LogSplit
from tacit.data.synthetic import LogDestination, write_log
from tacit.errors import BadInput, TooManyBadRows
from tacit.schema.columns import Column, Kind, LogSchema, Role


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as refusal:
        act()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def log_of(*columns: Column, raw: dict[str, CellType], keep: KeepRule | None = None) -> Log:
    schema = LogSchema("tiny", (*columns, Column("bought", {Role.LABEL}, Kind.FLAG)))
    return Log(
        name="tiny",
        title="tiny",
        about="",
        schema=schema,
        layouts=(FileLayout({**raw, "bought": CellType.WHOLE}),),
        split=LogSplit("chronological", {"train": "0.5", "test": "0.5"}),
        keep=keep,
        public_bins=1000,
        sensitive_bins=500,
    )


CLICKS = log_of(
    Column("site", {Role.PUBLIC}),
    Column("age", {Role.SENSITIVE}, Kind.WHOLE),
    Column("visitor", {Role.USER}),
    Column("at", {Role.TIME}, Kind.WHOLE),
    Column("paid", {Role.PRICE}, Kind.REAL),
    Column("days-offsets", {Role.AUXILIARY}, Kind.WHOLE),
    raw={
        "site": CellType.TEXT, "age": CellType.WHOLE, "visitor": CellType.TEXT, "at": CellType.WHOLE,
        "paid": CellType.REAL, "days-offsets": CellType.WHOLE,
    },
    keep=KeepRule("kept", 1, "rows that are kept"),
)  # fmt: skip
CLICKS = replace(CLICKS, layouts=(FileLayout({**CLICKS.layouts[0].columns, "kept": CellType.WHOLE}),))


def clicks_csv(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["site,age,visitor,at,paid,days-offsets,bought,kept", *rows]) + "\n")
    return path


def prepared(log: Log, path: Path, out: Path, **options: Any) -> PreparedLog:
    return prepare(LogReader(log, path, **options), hashing_encoder(log), out)


def test_prepare_counts_what_it_kept_and_what_not(tmp_path: Path) -> None:
    path = clicks_csv(
        tmp_path / "clicks.csv",
        [
            "a,30,ann,100,0.5,3,1,1",
            "b,,bob,101,,4,0,1",
            "a,31,ann,102,1.5,5,0,0",  # passed over
            "c,x,eve,103,1,6,0,1",  # bad: no number
            "c,1,eve,103,1,6,7,1",  # bad: no flag
            "c,2,eve,104,2,7,1,1",
        ],
    )
    done = prepared(CLICKS, path, tmp_path / "out")
    columns = done.columns
    assert done.positive_rate == columns.manifest["positive_rate"] == pytest.approx(2 / 3)
    assert done.as_json()["rows"] == columns.rows == 3
    assert columns.manifest["rows_read"] == 6
    assert columns.manifest["rows_passed_over"] == 1
    assert columns.manifest["bad_rows"]["count"] == 2
    assert [bad["line"] for bad in columns.manifest["bad_rows"]["first"]] == [5, 6]
    assert done.as_json()["parts"] == {"train": 1, "test": 2}
    assert columns.manifest["fields"] == {"public": ["site"], "sensitive": ["age"]}
    assert columns.manifest["table_rows"] == {"public": 1000, "sensitive": 500}
    assert columns.label.tolist() == [1, 0, 1]
    assert columns["auxiliary-days-offsets"].tolist() == [3, 4, 7]
    assert columns["time"].tolist() == [100, 101, 104]
    np.testing.assert_array_equal(columns["price"], [0.5, np.nan, 2.0])
    assert (columns.public.shape, columns.sensitive.shape) == ((3, 1), (3, 1))


WAITING = log_of(
    Column("site", {Role.PUBLIC}),
    Column("wait", {Role.DELAY}, Kind.WHOLE),
    raw={"site": CellType.TEXT, "wait": CellType.WHOLE},
)


def test_seconds_to_conversion_are_those_of_labels_above_zero(tmp_path: Path) -> None:
    rows = ["a,60,1", "b,,0", "a,0,1", "b,-1,1", "a,90,0", "b,,1"]  # the last came, and nobody knows when
    (tmp_path / "log.csv").write_text("\n".join(["site,wait,bought", *rows]) + "\n")
    columns = prepared(WAITING, tmp_path / "log.csv", tmp_path / "out").columns
    assert columns.delay is not None
    assert columns.delay.tolist() == [60, -1, 0, -1, -1, -1]
    assert columns.delay.dtype == np.int64


def test_a_delay_is_no_feature_and_gives_nothing_away() -> None:
    assert "expected a label or a feature, got both" in refused(
        lambda: Column("wait", {Role.DELAY, Role.PUBLIC}, Kind.WHOLE)
    )
    assert "expected kind whole for role delay, got real" in refused(
        lambda: Column("wait", {Role.DELAY}, Kind.REAL)
    )
    hidden = (Column("wait", {Role.DELAY}, Kind.WHOLE), Column("late", {Role.PUBLIC}, source="wait"))
    assert "would be given away" in refused(lambda: log_of(*hidden, raw={"wait": CellType.WHOLE}))


def test_published_delays_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    """With the same rows, labels and keys as without; and of labels alone."""
    log = find_log("criteo-attribution")
    destination = LogDestination.at(tmp_path / "log.parquet")
    write_log(world("criteo-attribution", 1, rows=3000), 3000, log.layouts[0], destination, {})
    without = prepared(log, tmp_path / "log.parquet", tmp_path / "without").columns
    kept = prepared(with_delay_columns(log), tmp_path / "log.parquet", tmp_path / "kept").columns
    assert without.delay is None
    assert kept.delay is not None
    assert set(kept.manifest["arrays"]) - set(without.manifest["arrays"]) == {"delay"}
    assert {**kept.manifest, "arrays": 0} == {**without.manifest, "arrays": 0}
    raw = pq.read_table(tmp_path / "log.parquet").to_pydict()
    waits = [end - start for end, start in zip(raw["conversion_timestamp"], raw["timestamp"], strict=True)]
    expected = np.where(kept.label > 0, np.array(waits)[kept["row"]], -1)
    assert kept.delay.tolist() == expected.tolist()
    assert (kept.delay >= 0).any()


def test_keys_and_encoders_are_the_same_in_two_files(tmp_path: Path) -> None:
    one = clicks_csv(tmp_path / "one.csv", ["a,1,ann,1,1,1,0,1", "b,2,bob,2,1,1,0,1", "c,3,eve,3,1,1,1,1"])
    two = clicks_csv(tmp_path / "two.csv", ["c,3,zoe,3,1,1,1,1", "b,9,ann,9,1,1,0,1", "b,1,bob,1,1,1,0,1"])
    first, second = (prepared(CLICKS, path, tmp_path / path.stem).columns for path in (one, two))
    ann, bob, eve = first["user"].tolist()
    zoe, *others = second["user"].tolist()
    assert others == [ann, bob]
    assert len({ann, bob, eve, zoe}) == 4
    assert second.public[1, 0] == second.public[2, 0] == first.public[1, 0]
    assert second.public[0, 0] == first.public[2, 0]
    assert second.sensitive[2, 0] == first.sensitive[0, 0]
    assert first.manifest["encoder"] == second.manifest["encoder"]
    assert Encoder.load(first.folder) == Encoder.load(second.folder) == hashing_encoder(CLICKS)
    assert Encoder.load(first.folder).digest == first.manifest["encoder"]


def test_a_log_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    path = clicks_csv(tmp_path / "clicks.csv", ["a,x,ann,1,1,1,0,1"] * 3)
    with pytest.raises(TooManyBadRows):
        prepared(CLICKS, path, tmp_path / "out", bad_rows_limit=2)
    assert "expected examples, got none among 3 rows" in refused(
        lambda: prepared(CLICKS, path, tmp_path / "out", bad_rows_limit=3)
    )
    other = hashing_encoder(log_of(Column("shop", {Role.PUBLIC}), raw={"shop": CellType.TEXT}))
    good = clicks_csv(tmp_path / "good.csv", ["a,1,ann,1,1,1,0,1"])
    assert "column shop: expected a feature of" in refused(
        lambda: prepare(LogReader(CLICKS, good), other, tmp_path / "out")
    )
    assert sorted(place.name for place in tmp_path.iterdir()) == ["clicks.csv", "good.csv"]


def test_a_time_that_is_a_feature_too_is_never_made_up(tmp_path: Path) -> None:
    log = log_of(Column("at", {Role.TIME, Role.PUBLIC}, Kind.WHOLE), raw={"at": CellType.WHOLE})
    path = tmp_path / "times.csv"
    path.write_text("at,bought\n5,1\n,0\n7,1\n")
    columns = prepared(log, path, tmp_path / "out").columns
    assert columns["time"].tolist() == [5, 7]
    (bad,) = columns.manifest["bad_rows"]["first"]
    assert (bad["line"], bad["column"]) == (3, "at")


HISTORY = log_of(
    Column("x", {Role.PUBLIC}),
    Column("seen", {Role.SENSITIVE}, Kind.SEQUENCE),
    Column("seen-offsets", {Role.PUBLIC}, Kind.SEQUENCE),
    raw={"x": CellType.WHOLE, "seen": CellType.LIST, "seen-offsets": CellType.LIST},
    keep=KeepRule("x", 1, "rows where x is 1"),
)


@pytest.mark.parametrize("skipped", [0, 10, 11], ids=lambda rows: f"{rows} rows passed over first")
def test_offsets_of_sequences_go_on_from_block_to_block(
    skipped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROWS_PER_BATCH", 5)
    rng = np.random.default_rng(1)
    lists = [None if n == 0 else [f"v{v}" for v in rng.integers(0, 9, n - 1)] for n in rng.integers(0, 6, 43)]
    others = [[row] * (row % 3) for row in range(43)]
    table = pa.table(
        {
            "x": [0] * skipped + [1] * (43 - skipped),
            "seen": pa.array(lists, pa.list_(pa.string())),
            "seen-offsets": pa.array(others, pa.list_(pa.int64())),
            "bought": [1] * 43,
        }
    )
    pq.write_table(table, tmp_path / "log.parquet")
    columns = prepared(HISTORY, tmp_path / "log.parquet", tmp_path / "out").columns
    assert columns.rows == 43 - skipped
    encoder = hashing_encoder(HISTORY)
    for name, expected in (("seen", lists[skipped:]), ("seen-offsets", others[skipped:])):
        offsets, ids = columns.sequence(name)
        assert (str(offsets.dtype), str(ids.dtype)) == ("int64", "int32")
        assert offsets.tolist() == np.cumsum([0, *(len(items or []) for items in expected)]).tolist()
        texts = [str(item).encode() for items in expected for item in items or []]
        alone = pa.record_batch({"seen": [texts], "seen-offsets": [texts], "x": [1]})
        assert ids.tolist() == encoder.encode(alone).sequences[name][1].tolist()


def most_held(path: Path, out: Path, leaking: bool) -> int:
    """The most bytes that Python, NumPy and Arrow held at a time while a file was prepared."""
    arrow: list[int] = []
    kept: list[bytes] = []

    def progress(_: int) -> None:
        arrow.append(pa.total_allocated_bytes())
        if leaking:
            kept.append(bytes(16 * BLOCK))  # a block and what became of it, with room to be seen

    tracemalloc.start()
    prepare(LogReader(CLICKS, path), hashing_encoder(CLICKS), out, progress=progress)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak + max(arrow)


BLOCK = 2**14


@pytest.mark.parametrize("leaking", [False, True])
def test_memory_does_not_grow_with_the_file(
    leaking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight times the rows: at most three times the memory, as one to three blocks are under way at a time
    with one worker. Keeping each block, as the twin does, takes far more.
    """
    monkeypatch.setattr(reader, "blocks", partial(blocks_of_lines, block_bytes=BLOCK))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    most: list[int] = []
    for rows in (5_000, 5_000, 40_000):  # the first warms up what is kept for good
        lines = [f"site-{row % 97},{row % 80},visitor-{row},{row},1.5,3,{row % 2},1" for row in range(rows)]
        path = clicks_csv(tmp_path / "clicks.csv", lines)
        most.append(most_held(path, tmp_path / f"out-{len(most)}", leaking))
    assert (most[2] < 3 * most[1]) != leaking, most


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (Column("site", {Role.SENSITIVE}), "column site: expected a public category as the encoder knows it"),
        (Column("site", {Role.PUBLIC}, source="place"), "got a public category of place"),
        (Column("page", {Role.PUBLIC}), "column site: expected a feature of tiny as the encoder knows it"),
    ],
)
def test_an_encoder_that_takes_a_column_for_something_else_is_refused(
    column: Column, problem: str, tmp_path: Path
) -> None:
    known = hashing_encoder(log_of(Column("site", {Role.PUBLIC}), raw={"site": CellType.TEXT}))
    log = log_of(column, raw={column.source: CellType.TEXT})
    (tmp_path / "log.csv").write_text(f"{column.source},bought\na,1\n")
    assert problem in refused(lambda: prepare(LogReader(log, tmp_path / "log.csv"), known, tmp_path / "out"))
