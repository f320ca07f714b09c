"""Reading text by streaming: blocks, every bad row found at its line, nothing dropped."""

from __future__ import annotations

import bz2
import gzip
import io
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tacit.data.reading.reader as stream_module
import tacit.data.reading.text as blocks_module
from tacit.data.logs.definition import Log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.reading.reader import LogReader
from tacit.data.reading.text import UTF8_MARK, TextParser, blocks
from tacit.errors import BadInput
from tests.support.reading_checks import COMMAS, GOOD, HEADER, NAMES, TABS, TYPES, Read, of_lines, read


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reading")


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "blocks", partial(blocks, block_bytes=100))


# Blocks


@given(data=st.text("ab\n\r", max_size=60).map(str.encode), size=st.integers(1, 20))
def test_blocks_are_the_file_in_whole_lines_with_their_numbers(folder: Path, data: bytes, size: int) -> None:
    path = folder / "blocks"
    path.write_bytes(data)
    found = list(blocks(path, size))
    assert b"".join(block.lines for block in found) == data
    assert all(block.lines.endswith(b"\n") for block in found[:-1])
    seen = 0
    for block in found:
        assert block.first_line == seen + 1
        assert block.count == len(block.lines.removesuffix(b"\n").split(b"\n"))
        seen += block.count
    if found:
        assert found[-1].position == len(data)


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


PACKERS: list[Callable[[bytes], bytes]] = [gzip.compress, zstd, bz2.compress]
MANY = HEADER + b"\n" + b"".join(b"%d,%d,%d.5,1,v%d,s%d\n" % (i % 2, i % 99, i, i, i % 7) for i in range(1000))


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.usefixtures("tiny_blocks")
def test_compression_is_known_by_the_first_bytes(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    plain, packed, parts = (tmp_path / name for name in ("plain.gz", "packed.csv", "parts.txt"))
    plain.write_bytes(MANY)
    packed.write_bytes(pack(MANY))
    parts.write_bytes(pack(MANY[:9000]) + pack(MANY[9000:]))  # as `cat` makes them
    expected = read(COMMAS, plain)
    assert expected.read == 1000
    assert expected.lines == list(range(2, 1002))
    assert read(COMMAS, packed) == expected
    assert read(COMMAS, parts) == expected
    assert list(blocks(packed, 500))[-1].position == packed.stat().st_size


@pytest.mark.parametrize("pack", PACKERS)
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path, whole = tmp_path / "cut.csv.gz", pack(MANY)
    for size in (4, 10, 30, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(BadInput, match=r"cut\.csv\.gz: expected a whole (gzip|zstd|bz2) file"):
            read(COMMAS, path)


def test_a_damaged_gzip_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(MANY))
    whole[-6] ^= 1  # its checksum
    (tmp_path / "damaged.gz").write_bytes(whole)
    with pytest.raises(BadInput, match=r"damaged\.gz: expected a whole gzip file"):
        read(COMMAS, tmp_path / "damaged.gz")


@pytest.mark.parametrize("data", [b"", b"\n", gzip.compress(b"", mtime=0), UTF8_MARK, b"\r\n" + MANY])
@pytest.mark.parametrize("log", [COMMAS, TABS])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes, log: Log) -> None:
    (tmp_path / "nothing").write_bytes(data)
    with pytest.raises(
        BadInput, match=r"nothing: expected rows, got an empty file or a first line that is empty"
    ):
        LogReader(log, tmp_path / "nothing")


def test_a_header_alone_has_no_rows_and_cannot_be_prepared(tmp_path: Path) -> None:
    for data in (HEADER, HEADER + b"\r\n"):
        (tmp_path / "header").write_bytes(data)
        assert read(COMMAS, tmp_path / "header") == Read()
    reader = LogReader(COMMAS, tmp_path / "header")
    with pytest.raises(BadInput, match="expected examples, got none among 0 rows"):
        prepare(reader, hashing_encoder(COMMAS), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["header"]


@pytest.mark.parametrize("size", [1, 10, 99, 100, 101, 150, 10_000])
def test_a_long_line_is_refused_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(blocks_module, "LONGEST_LINE", 100)
    path = tmp_path / "long"
    for end in (b"", b"\n", b"\nshort\n"):
        path.write_bytes(b"a\nb\n" + b"x" * 100 + end)
        assert b"".join(block.lines for block in blocks(path, size)) == path.read_bytes()
        path.write_bytes(b"a\nb\n" + b"x" * 101 + end)
        with pytest.raises(BadInput, match="expected lines of at most 100 bytes, got more at line 3"):
            list(blocks(path, size))


@pytest.mark.parametrize("log", [COMMAS, TABS])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"", b"the same end"])
@pytest.mark.parametrize("mark", [b"", UTF8_MARK])
@pytest.mark.usefixtures("tiny_blocks")
def test_ends_of_lines_and_marks_change_nothing(
    tmp_path: Path, log: Log, end: bytes, last: bytes, mark: bytes
) -> None:
    lines = [GOOD, b"0,,,1,bob,south", b"0,31,0,0,cat,"] * 5
    if log is TABS:
        lines = [line.replace(b",", b"\t") for line in lines]
    before = [HEADER] if log is COMMAS else []
    (tmp_path / "file").write_bytes(mark + end.join([*before, *lines]) + (end if last else b""))
    found = read(log, tmp_path / "file")
    ann = {"bought": 1, "age": 30, "paid": 2.5, "shown": 1, "visitor": b"ann", "site": b"north"}
    bob = {"bought": 0, "age": None, "paid": None, "shown": 1, "visitor": b"bob", "site": b"south"}
    assert found.rows == [ann, bob] * 5
    assert (found.read, found.passed_over, found.bad) == (15, 5, {})
    first = 1 + len(before)
    assert found.lines == [first + 3 * at + step for at in range(5) for step in range(2)]


# Lines


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"1,thirty,2.5,1,ann,north", "age: expected a whole number, got another text"),
        (b"1,30.5,2.5,1,ann,north", "age: expected a whole number, got another text"),
        (b"1,9223372036854775808,2.5,1,ann,north", "age: expected a whole number below 2^63, got a longer one"),
        (b"1,30,2,5,1,ann,north", "expected 6 fields, got 7"),
        (b"1,30,2.5,1,ann", "expected 6 fields, got 5"),
        (b"1,30,2.5,1,ann,north,", "expected 6 fields, got 7"),
        (b"x", "expected 6 fields, got 1"),
        (b"", "expected 6 fields, got an empty line"),
        (b'1,30,2.5,1,ann,"north', "expected a quote to end in its line, got an open one"),
        (b'1,30,2.5,1,"ann,north', "expected a quote to end in its line, got an open one"),
        (b"1,30,2.5,1,ann,no\rrth", "expected one line, got a carriage return within it"),
        (b"1,30,2.5,1,ann,north\r1,30,2.5,1,ann,north", "expected one line, got a carriage return within it"),
        (b"2,30,2.5,1,ann,north", "bought: expected 0 or 1, got another number"),
        (b",30,2.5,1,ann,north", "bought: expected a label, got none"),
        (b"1,30,2.5,1,,north", "visitor: expected a user, got none"),
        (b"1,30,-0.5,1,ann,north", "paid: expected a price of at least 0, got another number"),
        (b"1,30,inf,1,ann,north", "paid: expected a price of at least 0, got another number"),
        (b"1,30,nan,1,ann,north", "paid: expected a price of at least 0, got another number"),
        (b"1,151,2.5,1,ann,north", "age: expected 0 to 150, got another number"),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_bad_line_is_told_from_its_neighbours(tmp_path: Path, line: bytes, problem: str, end: bytes) -> None:
    """Wherever it lies: first, last, in between, twice in a row."""
    for before, after in ((0, 0), (0, 3), (3, 0), (2, 5)):
        found = of_lines(tmp_path, *[GOOD] * before, line, line, *[GOOD] * after, end=end)
        assert found.bad == {before + 2: problem, before + 3: problem}
        assert len(found.rows) == before + after


def test_damages_that_make_up_for_one_another_are_found(tmp_path: Path) -> None:
    """An open quote joins two lines, a carriage return splits one: three lines, and three rows for pyarrow."""
    found = of_lines(tmp_path, b'1,30,2.5,1,"an', b'n",north', GOOD + b"\r" + GOOD)
    assert found.rows == []
    assert found.bad == {
        2: "expected a quote to end in its line, got an open one",
        3: "expected 6 fields, got 2",
        4: "expected one line, got a carriage return within it",
    }


def test_an_empty_line_is_not_passed_over_as_a_row_that_was_not_shown(tmp_path: Path) -> None:
    found = of_lines(tmp_path, GOOD, b"", b",,,,,", GOOD)
    assert found.bad == {3: "expected 6 fields, got an empty line"}
    assert found.passed_over == 1


@pytest.mark.usefixtures("tiny_blocks")
def test_a_mark_within_the_file_is_part_of_its_line(tmp_path: Path) -> None:
    """Also where a block begins with it: with files put one after the other, it stands before a header."""
    found = of_lines(tmp_path, *[GOOD, UTF8_MARK + HEADER, UTF8_MARK + GOOD] * 30)
    assert set(found.bad.values()) == {"bought: expected 0 or 1, or true or false, got another text"}
    assert found.lines == list(range(2, 92, 3))


def test_quotes_are_text_where_a_layout_has_none(tmp_path: Path) -> None:
    line = b'1\t30\t2.5\t1\t"ann\t"'
    found = of_lines(tmp_path, line, line, log=TABS)
    assert [(row["visitor"], row["site"]) for row in found.rows] == [(b'"ann', b'"')] * 2


def test_texts_are_kept_as_they_are(tmp_path: Path) -> None:
    found = of_lines(tmp_path, "1,30,2.5,1,\u00ff\u00fe,\x00".encode())
    assert (found.rows[0]["visitor"], found.rows[0]["site"]) == ("\u00ff\u00fe".encode(), b"\x00")


@pytest.mark.parametrize(
    "first",
    [
        b"some,other,header",
        b'1,"2',
        b"a\rb",
        b"\x00",
        b"x" * 200_000,
        b'"' + HEADER,
    ],
)
@pytest.mark.parametrize("log", [COMMAS, TABS])
def test_another_first_line_is_refused_without_showing_it(tmp_path: Path, first: bytes, log: Log) -> None:
    (tmp_path / "odd").write_bytes(first + b"\n")
    with pytest.raises(BadInput, match=r"odd: expected (a header with|6 fields).*, got another first line$"):
        LogReader(log, tmp_path / "odd")


def test_a_column_that_comes_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice").write_bytes(HEADER + b",age\n")
    with pytest.raises(BadInput, match="twice: expected column age once, got it 2 times"):
        LogReader(COMMAS, tmp_path / "twice")


def test_a_place_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"shop: expected a file or folder at .*, got nothing there"):
        LogReader(COMMAS, tmp_path / "absent")
    with pytest.raises(BadInput, match=r"shop: expected a plain file at .*, got a folder"):
        LogReader(COMMAS, tmp_path)


# The slow, obvious reader: a line at a time, a byte at a time.


def slow_cells(line: bytes, separator: bytes, *, quoted: bool) -> list[bytes] | None:
    cells, cell, state = [], b"", "start"
    for at in range(len(line)):
        byte = line[at : at + 1]
        if byte == separator and state != "quoted":
            cells.append(cell)
            cell, state = b"", "start"
        elif byte == b'"' and quoted and state == "start":
            state = "quoted"
        elif byte == b'"' and state == "quoted":
            state = "closed"
        elif byte == b'"' and state == "closed":
            cell, state = cell + byte, "quoted"
        else:
            cell, state = cell + byte, "quoted" if state == "quoted" else "plain"
    return None if state == "quoted" else [*cells, cell]


def slow_value(raw: CellType, cell: bytes) -> Any:
    """None for a missing value; raises for another text than expected."""
    if not cell or raw is CellType.TEXT:
        return cell or None
    if raw is CellType.WHOLE and not re.fullmatch(rb"-?[0-9]+", cell):
        raise ValueError
    return int(cell) if raw is CellType.WHOLE else float(cell)


def slow_read(data: bytes, log: Log) -> Read:
    layout, found = log.layouts[0], Read()
    for number, ended in enumerate(io.BytesIO(data), start=1):
        if number == 1 and layout.header:
            continue
        found.read += 1
        line = ended.removesuffix(b"\r\n").removesuffix(b"\n")
        cells = slow_cells(line, layout.separator.encode(), quoted=layout.quoted)
        try:
            odd = layout.quoted and line.count(b'"') % 2
            if b"\r" in line or not line or odd or cells is None or len(cells) != len(NAMES):
                raise ValueError
            row = {name: slow_value(TYPES[name], cell) for name, cell in zip(NAMES, cells, strict=True)}
        except ValueError:
            found.bad[number] = ""
            continue
        if row["shown"] != 1:
            found.passed_over += 1
        elif (
            row["bought"] not in (0, 1)
            or row["visitor"] is None
            or (row["paid"] is not None and not row["paid"] >= 0)
            or (row["age"] is not None and not 0 <= row["age"] <= 150)
        ):
            found.bad[number] = ""
        else:
            found.rows.append(row)
            found.lines.append(number)
    return found


CELLS = (
    st.sampled_from([b"0", b"1", b"0", b"1", b"2", b""]),
    st.sampled_from([b"", b"7", b"30", b"150", b"151", b"-1"]),
    st.sampled_from([b"", b"0", b"2.5", b".5", b"12e3", b"-1"]),
    st.sampled_from([b"1", b"1", b"1", b"0", b""]),
    st.sampled_from([b"ann", b"bob", b"", b"\xc3\xa9", b'"q,q"', b'"a""b"']),
    st.sampled_from([b"north", b"south", b"", b'"quoted"']),
)


DAMAGES = (b"", b'"', b'""', b"\r", b"e", b"-", b"1", b"\n", b"\n\n", b"\r\n", UTF8_MARK)


@st.composite
def damaged_lines(draw: st.DrawFn, separator: bytes) -> bytes:
    line = separator.join(draw(cell) for cell in CELLS)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(line)))
        cut = draw(st.integers(0, 3))
        put = draw(st.sampled_from([*DAMAGES, separator]))
        line = line[:at] + put + line[at + cut :]
    assume(_is_utf8(line))  # a second damage may tear the mark of the first; other bytes refuse the whole file
    return line


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("log", [COMMAS, TABS], ids=["commas", "tabs"])
@given(data=st.data())
def test_nothing_is_dropped_and_every_line_is_judged_as_by_the_slow_reader(
    folder: Path, log: Log, data: st.DataObject
) -> None:
    separator = log.layouts[0].separator.encode()
    end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    lines = data.draw(st.lists(damaged_lines(separator), max_size=12))
    first = HEADER if log is COMMAS else b"\t".join([b"1", b"2", b"3", b"1", b"eve", b"west"])
    text = end.join([first, *lines]) + data.draw(st.sampled_from([b"", end]))
    path = folder / "damaged"
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "blocks", partial(blocks, block_bytes=data.draw(st.integers(1, 200))))
        fast = read(log, path)
    slow = slow_read(text, log)
    assert fast.bad.keys() == slow.bad.keys()
    assert replace(fast, bad={}) == replace(slow, bad={})


def test_the_rest_of_a_value_that_runs_over_lines_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "torn.csv"
    rows = ["a,1,x,1", '"two', 'lines",2,y,0', "b,3,z,1"]
    path.write_text("site,n,who,bought\n" + "\n".join(rows) + "\n")
    columns = {"site": CellType.TEXT, "n": CellType.WHOLE, "who": CellType.TEXT, "bought": CellType.WHOLE}
    parser = TextParser(FileLayout(columns), list(columns), list(columns), bad_rows_limit=10)
    (block,) = blocks(path)
    parsed = parser.parse(block.without_first_line())
    assert parsed.lines.tolist() == [2, 5]
    assert sorted(row.line for row in parsed.bad) == [3, 4]
    assert parsed.rows.column("site").to_pylist() == [b"a", b"b"]
