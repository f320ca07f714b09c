"""Text files parsed into typed columns, one block of whole lines at a time.

Files may be plain or compressed and are never held whole. pyarrow parses each block; where it refuses one,
the block is halved until the bad lines are found.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from tacit.data.reading.bad_rows import BadRow
from tacit.data.reading.layout import ARROW_TYPE, EXPECTED, CellType, Encoding, FileLayout, parse_numbers
from tacit.errors import BadInput

BLOCK_BYTES = 4 * 2**20
LONGEST_LINE = 2**20
UTF8_MARK = b"\xef\xbb\xbf"
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}


@dataclass(frozen=True)
class TextBlock:
    """A block of whole lines, the last of which may lack its end."""

    lines: bytes
    first_line: int
    position: int  # bytes of the file, as it lies on disk, that were read up to here

    @property
    def count(self) -> int:
        return self.lines.count(b"\n") + (not self.lines.endswith(b"\n"))

    def without_first_line(self) -> TextBlock:
        _, _, rest = self.lines.partition(b"\n")
        return replace(self, lines=rest, first_line=self.first_line + 1)

    def without_mark(self) -> TextBlock:
        """Without the three bytes that some editors put before UTF-8."""
        return replace(self, lines=self.lines.removeprefix(UTF8_MARK))


def blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[TextBlock]:
    """The file's lines in order, numbered from 1."""
    with closing(pa.OSFile(str(path))) as file:
        compression = compression_of(path)
        stream = file if compression is None else pa.CompressedInputStream(file, compression)
        rest, line = b"", 1
        while True:
            try:
                read = stream.read(block_bytes)
            except OSError as problem:
                raise BadInput(
                    f"{path}: expected a whole {compression or 'plain'} file, got an end or an error after "
                    f"line {line - 1}: {_one_line(problem)}"
                ) from None
            if not read:
                break
            whole = rest + read
            _refuse_long_lines(path, whole, line)
            end = whole.rfind(b"\n") + 1
            if end == 0:
                rest = whole
                continue
            block = TextBlock(whole[:end], line, file.tell())
            yield block
            line += block.count
            rest = whole[end:]
        if rest:
            yield TextBlock(rest, line, file.tell())


def first_line(path: Path) -> bytes:
    """The first line, without its end; empty for an empty file."""
    for block in blocks(path, 2**16):
        return block.lines.split(b"\n", 1)[0].removesuffix(b"\r").removeprefix(UTF8_MARK)
    return b""


def compression_of(path: Path) -> str | None:
    """The compression of a file, by its first bytes, whatever it is called."""
    with path.open("rb") as file:
        start = file.read(4)
    return next((name for magic, name in COMPRESSIONS.items() if start.startswith(magic)), None)


def _refuse_long_lines(path: Path, lines: bytes, first_line: int) -> None:
    """Refuse a line that is too long, whichever block it is in; shorter lines are skipped over."""
    start = 0
    while len(lines) - start > LONGEST_LINE:
        end = lines.rfind(b"\n", start, start + LONGEST_LINE + 1)
        if end < 0:
            line = first_line + lines.count(b"\n", 0, start)
            raise BadInput(f"{path}: expected lines of at most {LONGEST_LINE} bytes, got more at line {line}")
        start = end + 1


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())


SPELLED = frozenset({CellType.WHOLE, CellType.FLAG, CellType.TIME, CellType.ID})  # in more ways than by digits
LONG = re.compile(rb"[+-]?[0-9]{19,}(\.0*)?")


@dataclass(frozen=True)
class ParsedBlock:
    """Typed rows, the line of each, and the lines that were no rows."""

    rows: pa.RecordBatch
    lines: NDArray[np.int64]
    bad: list[BadRow]
    position: int


@dataclass(frozen=True)
class TextParser:
    """Parses the wanted columns of a text file whose columns are `names`, in that order."""

    layout: FileLayout
    names: Sequence[str]
    wanted: Sequence[str]
    bad_rows_limit: int
    place: str = "text"  # the file's name, for refusals
    # Columns of numbers that blocks so far have spelled another way than by digits.
    _spelled: set[str] = field(default_factory=set, init=False)

    def parse(self, block: TextBlock) -> ParsedBlock:
        tables: list[pa.Table] = []
        lines: list[NDArray[np.int64]] = []
        bad: list[BadRow] = []
        self._collect(self._in_utf8(block), tables, lines, bad)
        rows = pa.concat_tables(_alike(tables)).combine_chunks() if tables else self._empty
        batches = rows.to_batches()
        return ParsedBlock(
            batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema),
            np.concatenate(lines) if lines else np.empty(0, dtype=np.int64),
            bad,
            block.position,
        )

    def _collect(
        self, block: TextBlock, tables: list[pa.Table], lines: list[NDArray[np.int64]], bad: list[BadRow]
    ) -> None:
        """Parse a block, or its halves. pyarrow itself is the judge of every line, however it is found."""
        if len(bad) > self.bad_rows_limit:
            return  # refused already: no need to find them all
        count = block.count
        table = self._rows_of(block, count)
        if table is not None:
            tables.append(table)
            lines.append(np.arange(block.first_line, block.first_line + count))
        elif count == 1:
            bad.append(self._verdict(block))
        else:
            middle = _nth_line_start(block.lines, count // 2)
            first = TextBlock(block.lines[:middle], block.first_line, block.position)
            second = TextBlock(block.lines[middle:], block.first_line + count // 2, block.position)
            self._collect(first, tables, lines, bad)
            self._collect(second, tables, lines, bad)

    def _rows_of(self, block: TextBlock, count: int) -> pa.Table | None:
        """The block as a table, or nothing where some line of it is not exactly one row."""
        lines = block.lines
        # pyarrow ends a row at a bare carriage return, and an open quote at the end of the block. Apart from
        # these, a line that is no row makes it refuse, or gives fewer rows, as an open quote joins lines.
        if b"\r" in lines and lines.count(b"\r") != lines.count(b"\r\n"):
            return None
        last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
        if self.layout.quoted and b'"' in last and not self._fields(last):
            return None
        if self.layout.quoted and _has_odd_quotes(lines):
            return None
        try:
            table = self._read_lines(lines, self.wanted)
        except pa.ArrowInvalid:
            return None
        # It takes an empty line for nulls throughout. Few blocks have a null in every column and need a look.
        nulls_throughout = "" not in self.layout.missing or all(column.null_count for column in table.columns)
        if nulls_throughout and _has_empty_line(lines):
            return None
        return table if table.num_rows == count else None

    def _in_utf8(self, block: TextBlock) -> TextBlock:
        """The same lines: a letter of another encoding never has the byte of a line's end."""
        if self.layout.encoding is Encoding.UTF8 or block.lines.isascii():
            return block
        return replace(block, lines=self.layout.decode(block.lines, self.place, block.first_line).encode())

    def _read_lines(self, lines: bytes, columns: Sequence[str]) -> pa.Table:
        """pyarrow reads digits by itself, and is asked for texts where a block spells a number another way."""
        by_hand = self._spelled.intersection(columns)
        try:
            return self._read_typed(lines, columns, by_hand)
        except pa.ArrowInvalid:
            whole = {name for name in columns if self.layout.columns[name] in SPELLED}
            if whole <= by_hand:
                raise
            return self._read_typed(lines, columns, whole)

    def _read_typed(self, lines: bytes, columns: Sequence[str], by_hand: Collection[str]) -> pa.Table:
        types = {name: ARROW_TYPE[self.layout.columns[name]] for name in columns}
        table = self._as(lines, types | dict.fromkeys(by_hand, pa.string()))
        for at, name in enumerate(columns):
            raw, column = self.layout.columns[name], table.column(name)
            if name in by_hand:
                typed = parse_numbers(raw, column.combine_chunks(), self.layout.missing)
                if name not in self._spelled and not _are_digits(column):
                    self._spelled.add(name)
                table = table.set_column(at, name, typed)
            elif raw is CellType.TEXT:
                table = table.set_column(at, name, column.cast(pa.binary()))
        return table

    def _as(self, lines: bytes, types: Mapping[str, pa.DataType], *, checked: bool = True) -> pa.Table:
        if lines.startswith(UTF8_MARK):
            lines = UTF8_MARK + lines  # pyarrow drops one: only the file's own may go, and it has gone already
        return arrow_csv.read_csv(
            pa.BufferReader(lines),
            # One thread here: whole blocks are what is spread over the cores.
            read_options=arrow_csv.ReadOptions(
                column_names=self.names, use_threads=False, block_size=len(lines) + 1
            ),
            parse_options=self._parse_options,
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(types),
                column_types=types,
                null_values=list(self.layout.missing),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                check_utf8=checked,
            ),
        )

    @cached_property
    def _parse_options(self) -> arrow_csv.ParseOptions:
        return arrow_csv.ParseOptions(
            delimiter=self.layout.separator,
            quote_char='"' if self.layout.quoted else False,
            ignore_empty_lines=False,
            newlines_in_values=False,
        )

    @cached_property
    def _empty(self) -> pa.Table:
        raw = ((name, self.layout.columns[name]) for name in self.wanted)
        return pa.schema(
            [(name, pa.binary() if each is CellType.TEXT else ARROW_TYPE[each]) for name, each in raw]
        ).empty_table()

    def _verdict(self, block: TextBlock) -> BadRow:
        """Why one line is no row."""
        line = block.lines.removesuffix(b"\r\n").removesuffix(b"\n")
        if not line:
            return BadRow(block.first_line, "", f"expected {len(self.names)} fields, got an empty line")
        if b"\r" in line:
            return BadRow(block.first_line, "", "expected one line, got a carriage return within it")
        fields = self._fields(line)
        if not fields:
            return BadRow(block.first_line, "", "expected a quote to end in its line, got an open one")
        if fields != len(self.names):
            return BadRow(block.first_line, "", f"expected {len(self.names)} fields, got {fields}")
        if self.layout.quoted and line.count(b'"') % 2:
            return BadRow(block.first_line, "", "expected quotes in pairs within the line, got an odd number")
        for name in self.wanted:
            try:
                self._read_lines(block.lines, [name])
            except pa.ArrowInvalid:
                return self._verdict_on(name, block)
        return BadRow(block.first_line, "", "expected a row that can be parsed, got another line")

    def _verdict_on(self, name: str, block: TextBlock) -> BadRow:
        """Why a cell is not what its column holds. Another encoding refuses the file, not the row."""
        raw = self.layout.columns[name]
        (cell,) = self._as(block.lines, {name: pa.string()}, checked=False).column(name).cast(pa.binary())
        if raw is CellType.TEXT:
            raise BadInput(
                f"{self.place}: line {block.first_line}, column {name}: expected UTF-8, got other bytes"
                f"{self.layout.advice}"
            )
        if raw in SPELLED and LONG.fullmatch((cell.as_py() or b"").strip()):
            return BadRow(block.first_line, name, "expected a whole number below 2^63, got a longer one")
        return BadRow(block.first_line, name, f"expected {EXPECTED[raw]}, got another text")

    def _fields(self, line: bytes) -> int:
        """How many fields a line has; 0 where a quote stays open.

        Only the first character of a field can open one, as pyarrow has it.
        """
        separator = self.layout.separator.encode()
        if not self.layout.quoted:
            return line.count(separator) + 1
        fields, at = 1, 0
        while True:
            if line.startswith(b'"', at):
                at = line.find(b'"', at + 1)
                while at >= 0 and line.startswith(b'"', at + 1):  # two of them are one that is meant
                    at = line.find(b'"', at + 2)
                if at < 0:
                    return 0
            at = line.find(separator, at) + 1
            if not at:
                return fields
            fields += 1


def _are_digits(column: pa.ChunkedArray) -> bool:
    try:
        column.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _alike(tables: list[pa.Table]) -> list[pa.Table]:
    """The pieces of a block with the same types: where one has ids beyond 64 bits, all have digits."""
    if len({table.schema for table in tables}) < 2:
        return tables
    digits = {field.name for table in tables for field in table.schema if pa.types.is_binary(field.type)}
    return [
        pa.table(
            {
                name: column.cast(pa.string()).cast(pa.binary())
                if name in digits and pa.types.is_integer(column.type)
                else column
                for name, column in zip(table.column_names, table.columns, strict=True)
            }
        )
        for table in tables
    ]


def _has_odd_quotes(lines: bytes) -> bool:
    """Whether a line has an odd number of quotes: a value that came from a line before, or goes on after it.

    The rest of such a value can look like a row, so that no line is taken at its word.
    """
    if b'"' not in lines:
        return False
    text = np.frombuffer(lines, dtype=np.uint8)
    line_of_quote = np.searchsorted(np.flatnonzero(text == ord("\n")), np.flatnonzero(text == ord('"')))
    return bool(np.any(np.bincount(line_of_quote) % 2))


def _has_empty_line(lines: bytes) -> bool:
    return lines.startswith((b"\n", b"\r\n")) or b"\n\n" in lines or b"\n\r\n" in lines


def _nth_line_start(lines: bytes, n: int) -> int:
    at = 0
    for _ in range(n):
        at = lines.index(b"\n", at) + 1
    return at
