"""How many bad rows reading bears, what it tells of them (no value), and how little it holds at a time."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tacit.data.reading.reader as stream_module
from tacit.data.logs.definition import Log, find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.bad_rows import SHOWN, BadRows
from tacit.data.reading.reader import LogReader, map_in_order
from tacit.data.reading.text import TextBlock, blocks
from tacit.errors import BadInput, TooManyBadRows
from tests.support.reading_checks import COMMAS, GOOD, HEADER, NAMES, TABS, read

WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
AHEAD = WORKERS + 2
# Marks that no message may hold: a text, and the same as digits where only a number gets past the parser.
SECRET, SECRET_NUMBER = "hush-hush", "7310731"
DAMAGED = (
    f"1,{SECRET},2.5,1,ann,north",
    f"1,30,2.5,1,ann,north,{SECRET}",
    f"{SECRET}",
    f'1,30,2.5,1,ann,"{SECRET}',
    f"1,30,2.5,1,{SECRET}\r,north",
    f"{SECRET_NUMBER},30,2.5,1,ann,north",
    f"1,{SECRET_NUMBER},2.5,1,ann,north",
    f"1,30,-{SECRET_NUMBER},1,ann,north",
    f"1,30,2.5,1,,{SECRET}",
)


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "blocks", partial(blocks, block_bytes=100))


def write(path: Path, *lines: str) -> Path:
    path.write_bytes(b"\n".join([HEADER, *(line.encode() for line in lines)]) + b"\n")
    return path


def tells_nothing(text: str) -> bool:
    return SECRET not in text and SECRET_NUMBER not in text


# The limit


@pytest.mark.usefixtures("tiny_blocks")
def test_at_the_limit_a_file_is_read_and_one_above_it_is_refused(tmp_path: Path) -> None:
    good = [GOOD.decode()] * 7
    path = write(tmp_path / "shop.csv", *(line for bad in DAMAGED for line in (*good, bad)))
    lines = [9 + 8 * at for at in range(len(DAMAGED))]
    found = read(COMMAS, path, limit=len(DAMAGED))
    assert list(found.bad) == lines
    assert len(found.rows) == 7 * len(DAMAGED)
    with pytest.raises(TooManyBadRows) as refusal:
        read(COMMAS, path, limit=len(DAMAGED) - 1)
    assert str(refusal.value) == (
        f"{path}: expected at most 8 bad rows, got 9 so far: "
        "line 9, column age: expected a whole number, got another text; "
        "line 17: expected 6 fields, got 7; "
        "line 25: expected 6 fields, got 1"
    )


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_file_of_bad_rows_alone_is_refused_without_looking_at_all_of_it(tmp_path: Path, limit: int) -> None:
    path = write(tmp_path / "shop.csv", *["x"] * 50_000)
    started = time.monotonic()
    with pytest.raises(
        TooManyBadRows, match=f"expected at most {limit} bad rows, got {limit + 1} so far: line 2: "
    ):
        read(COMMAS, path, limit=limit)
    assert time.monotonic() - started < 5  # some milliseconds; all 50,000 one by one would take minutes


def test_a_refused_file_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write(tmp_path / "shop.csv", *[GOOD.decode()] * 10, *DAMAGED)
    with pytest.raises(TooManyBadRows):
        prepare(LogReader(COMMAS, path, bad_rows_limit=3), hashing_encoder(COMMAS), tmp_path / "out")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("limit", [-1, 1.5, True, "7"])
def test_the_limit_is_a_whole_number(tmp_path: Path, limit: int) -> None:
    with pytest.raises(BadInput, match="expected the limit of bad rows to be a whole number >= 0"):
        LogReader(COMMAS, write(tmp_path / "shop.csv"), bad_rows_limit=limit)


@pytest.mark.usefixtures("tiny_blocks")
def test_a_reader_counts_anew_each_time(tmp_path: Path) -> None:
    path = write(tmp_path / "shop.csv", *DAMAGED, *[GOOD.decode()] * 4, GOOD.decode().replace("1,ann", "0,ann"))
    reader = LogReader(COMMAS, path, bad_rows_limit=len(DAMAGED))
    for _ in range(2):
        assert sum(reader.stream(lambda examples: examples.rows.num_rows)) == 4
        assert (reader.rows_read, reader.rows_passed_over) == (len(DAMAGED) + 5, 1)
        assert reader.bad_rows.count == len(DAMAGED)


# What is told


def test_the_report_shows_the_first_and_counts_all(tmp_path: Path) -> None:
    path = write(tmp_path / "shop.csv", *["x"] * (SHOWN + 5), *DAMAGED[:1])
    reader = LogReader(COMMAS, path)
    list(reader.stream(lambda examples: examples))
    report = reader.bad_rows.as_json()
    assert report["count"] == SHOWN + 6
    problem = {"column": "", "problem": "expected 6 fields, got 1"}
    assert report["first"] == [{"line": 2 + at, **problem} for at in range(SHOWN)]
    assert report["by_problem"] == [
        {**problem, "count": SHOWN + 5},
        {"column": "age", "problem": "expected a whole number, got another text", "count": 1},
    ]


def test_no_manifest_or_report_holds_a_value(tmp_path: Path) -> None:
    good = f"1,30,{SECRET_NUMBER},1,{SECRET},{SECRET}"
    prepared = prepare(
        LogReader(COMMAS, write(tmp_path / "shop.csv", good, *DAMAGED)),
        hashing_encoder(COMMAS),
        tmp_path / "out",
    )
    assert prepared.columns.rows == 1
    assert prepared.columns.manifest["bad_rows"]["count"] == len(DAMAGED)
    assert tells_nothing(json.dumps(prepared.as_json()))
    written = sorted((tmp_path / "out").glob("*.json"))
    assert [path.name for path in written] == ["columns.json", "encoder.json"]
    assert all(tells_nothing(path.read_text()) for path in written)
    # Of the arrays only the price is as it was, being a number that is meant; texts are fingerprints and bins.
    arrays = b"".join(path.read_bytes() for path in (tmp_path / "out").glob("*.npy"))
    assert SECRET.encode() not in arrays
    assert prepared.columns["price"].tolist() == [float(SECRET_NUMBER)]


@pytest.mark.parametrize("line", DAMAGED)
def test_no_refusal_holds_a_value_of_a_text(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "shop.csv", GOOD.decode(), line)
    with pytest.raises(TooManyBadRows, match="line 3") as refusal:
        read(COMMAS, path, limit=0)
    assert tells_nothing("".join(traceback.format_exception(refusal.value)))


@pytest.mark.parametrize("log", [COMMAS, TABS])
@pytest.mark.parametrize("first", [SECRET, f"{SECRET},{SECRET_NUMBER}", f'"{SECRET}', f"a\r{SECRET}"])
def test_no_refusal_holds_a_first_line(tmp_path: Path, log: Log, first: str) -> None:
    (tmp_path / "odd").write_text(f"{first}\n{first}\n", newline="")
    with pytest.raises(BadInput) as refusal:
        LogReader(log, tmp_path / "odd")
    assert tells_nothing(str(refusal.value))


@pytest.mark.parametrize("cell", [SECRET, f"{SECRET_NUMBER}.5", f"{SECRET_NUMBER}9223372036854775807"])
def test_no_refusal_holds_a_value_of_a_parquet_file(tmp_path: Path, cell: str) -> None:
    columns = {name: ["1"] for name in NAMES} | {"age": [cell]}
    pq.write_table(pa.table(columns), tmp_path / "shop.parquet")
    with pytest.raises(BadInput, match="column age: expected a whole number in every row") as refusal:
        read(COMMAS, tmp_path / "shop.parquet")
    assert tells_nothing(str(refusal.value))


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("table", ["ad_feature", "user_profile", "behavior_log"])
@pytest.mark.parametrize("cell", [SECRET, f"{SECRET_NUMBER}.5", f"1,2,{SECRET}", f'"{SECRET}'])
def test_no_refusal_holds_a_value_of_a_joined_table(tmp_path: Path, table: str, form: str, cell: str) -> None:
    people = "cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,occupation"
    headers = {
        "raw_sample": "user,time_stamp,adgroup_id,pid,nonclk,clk",
        "ad_feature": "adgroup_id,cate_id,campaign_id,customer,brand,price",
        "user_profile": f"userid,{people},new_user_class_level ",
        "behavior_log": "user,time_stamp,btag,cate,brand",
    }
    for name, header in headers.items():
        cells = ["1"] * (header.count(",") + 1)
        if name == table:
            cells[3] = cell
        if form == "parquet" and name == table:
            pq.write_table(pa.table({at: [value] for at, value in zip(header.split(","), cells, strict=True)}),
                           tmp_path / f"{name}.parquet")  # fmt: skip
        else:
            data = f"{header}\n{','.join(cells)}\n".encode()
            packed = gzip.compress(data) if form == "csv.gz" else data
            (tmp_path / f"{name}.{form if form != 'parquet' else 'csv'}").write_bytes(packed)
    with pytest.raises(BadInput, match=f"{table}.{form}: ") as refusal:
        LogReader(find_log("taobao"), tmp_path)
    assert tells_nothing("".join(traceback.format_exception(refusal.value)))


# Memory and threads


def test_only_a_few_items_are_taken_ahead_and_results_come_in_order() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(300):
            taken += 1
            yield item

    def slow_at_first(item: int) -> int:
        time.sleep(0.003 if item % 7 == 0 else 0)
        return item

    for place, result in enumerate(map_in_order(slow_at_first, items())):
        assert result == place
        assert taken - place <= AHEAD
    assert taken == 300


def test_a_stream_holds_only_a_few_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow its reader is: 200 blocks, of which some four are there at a time."""
    path = write(tmp_path / "shop.csv", *[GOOD.decode()] * 1000)
    alive: set[int] = set()

    class Counted(TextBlock):
        """A block that says when it goes."""

        def __del__(self) -> None:
            alive.discard(id(self))

    def counted(place: Path) -> Iterator[TextBlock]:
        for block in blocks(place, 105):
            kept = Counted(block.lines, block.first_line, block.position)
            alive.add(id(kept))
            yield kept

    monkeypatch.setattr(stream_module, "blocks", counted)
    most = rows = 0
    for count in LogReader(COMMAS, path).stream(lambda examples: examples.rows.num_rows):
        rows += count
        most = max(most, len(alive))
    assert rows == 1000
    assert 1 <= most <= AHEAD + 2  # those under way, the one in hand and the one that is being cut


def test_progress_ends_with_the_size_of_the_file(tmp_path: Path) -> None:
    lines = b"\n".join([HEADER, *[GOOD] * 200_000])
    for data in (lines, gzip.compress(lines, 1)):
        (tmp_path / "shop").write_bytes(data)
        told: list[int] = []
        list(LogReader(COMMAS, tmp_path / "shop").stream(lambda examples: examples.read, told.append))
        assert len(told) > 1
        assert np.all(np.diff(told) >= 0)
        assert told[-1] == len(data)


class OddProblem(Exception):
    """Nothing that tacit knows."""


@pytest.mark.usefixtures("tiny_blocks")
def test_a_workers_exception_comes_out_as_it_is_and_threads_end(tmp_path: Path) -> None:
    path = write(tmp_path / "shop.csv", *[GOOD.decode()] * 100)
    problem = OddProblem("kept as it is")
    before = threading.active_count()
    results = LogReader(COMMAS, path).stream(lambda examples: 1 / 0 if 50 in examples.lines else 0)
    with pytest.raises(ZeroDivisionError):
        list(results)
    assert threading.active_count() == before

    def fail(_: object) -> None:
        raise problem

    with pytest.raises(OddProblem) as raised:
        next(LogReader(COMMAS, path).stream(fail))
    assert raised.value is problem
    assert threading.active_count() == before


def test_an_exception_of_the_source_comes_out_too() -> None:
    def items() -> Iterator[int]:
        yield from range(10)
        raise OddProblem

    before = threading.active_count()
    with pytest.raises(OddProblem):
        list(map_in_order(lambda item: item, items()))
    assert threading.active_count() == before


@pytest.mark.usefixtures("tiny_blocks")
def test_a_stream_that_is_left_early_ends_its_threads_and_takes_no_more(tmp_path: Path) -> None:
    path = write(tmp_path / "shop.csv", *[GOOD.decode()] * 1000)
    before, done = threading.active_count(), []
    results = LogReader(COMMAS, path).stream(lambda examples: done.append(examples.lines[0]))
    next(results)
    assert threading.active_count() > before
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert len(done) <= AHEAD


def test_what_waits_is_not_begun_once_nobody_wants_it() -> None:
    begun = []

    def work(item: int) -> None:
        begun.append(item)
        time.sleep(0.1 if item else 0)

    results = map_in_order(work, range(100))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < AHEAD  # all but the last of those that were taken had a core


def test_bad_rows_raise_as_soon_as_the_limit_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def counted(place: Path) -> Iterator[TextBlock]:
        nonlocal taken
        for block in blocks(place, 100):
            taken += 1
            yield block

    monkeypatch.setattr(stream_module, "blocks", counted)
    path = write(tmp_path / "shop.csv", "x", "x", *[GOOD.decode()] * 1000)
    with pytest.raises(TooManyBadRows):
        read(COMMAS, path, limit=1)
    assert taken <= AHEAD + 1


def test_an_empty_count_is_fine() -> None:
    rows = BadRows("nowhere", limit=0)
    rows.add([])
    assert rows.as_json() == {"count": 0, "first": [], "by_problem": []}
