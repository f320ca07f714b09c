"""Reads a log file as a stream of checked, typed blocks, parsed on all cores and returned in order.

The layout is recognised from the first line or the Parquet schema. Each row is checked against the log's
schema (labels must be labels, keys must be present, probabilities in range); bad rows are counted by line,
and a file with too many is refused.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Flags
from tacit.data.logs.definition import Log, LogTables
from tacit.data.reading.bad_rows import DEFAULT_LIMIT, BadRow, BadRows
from tacit.data.reading.layout import CellType, FileLayout, found_instead
from tacit.data.reading.parquet import ParquetParser, is_parquet, parquet_names
from tacit.data.reading.text import ParsedBlock, TextParser, blocks, first_line
from tacit.data.synthetic import is_synthetic
from tacit.display import brief
from tacit.errors import BadInput
from tacit.progress import Count, no_count
from tacit.schema.columns import IDS, Column, Kind, LogSchema, Role

COORDINATES = {Role.LATITUDE: (-90.0, 90.0), Role.LONGITUDE: (-180.0, 180.0)}
NEEDED_KEYS = frozenset(IDS) | {Role.TIME}


def find_bad_rows(
    schema: LogSchema, rows: pa.RecordBatch, lines: NDArray[np.int64]
) -> tuple[Flags | None, list[BadRow]]:
    """Which rows to keep (None: all), and what is wrong with each other one: its first column at fault."""
    good: Flags | None = None
    bad: list[BadRow] = []
    for column in schema.columns:
        if not column.is_used or column.source not in rows.schema.names:
            continue
        for wrong, problem in _problems(column, rows.column(column.source)):
            if good is None:
                good = np.ones(rows.num_rows, dtype=np.bool_)
            new = np.flatnonzero(wrong & good)
            good[new] = False
            bad.extend(BadRow(int(lines[row]), column.source, problem) for row in new)
    bad.sort(key=lambda row: row.line)
    return good, bad


def _problems(column: Column, array: pa.Array) -> Iterator[tuple[Flags, str]]:
    """The rows that break a rule, by rule. A null is wrong only where a value is needed."""
    if array.null_count and _needs_value(column):
        yield _bools(pc.is_null(array)), f"expected {_role_in_words(column)}, got none"
    for fits, expected in _rules(column, array):
        if not pc.all(fits).as_py():  # nulls apart
            yield ~_bools(pc.fill_null(fits, True)), f"expected {expected}, got another number"


def _needs_value(column: Column) -> bool:
    """Whether every row needs a value. A key that is a feature too may be missing; a time may not."""
    return (
        (column.is_target and Role.DELAY not in column.roles)
        or Role.TIME in column.roles
        or bool(column.roles & NEEDED_KEYS and not column.is_feature)
    )


def _rules(column: Column, array: pa.Array) -> Iterator[tuple[pa.Array, str]]:
    if column.kind is Kind.FLAG:
        yield pc.is_in(array, value_set=pa.array([0, 1, None], array.type)), "0 or 1"
    if Role.PROPENSITY in column.roles:
        yield pc.and_(pc.greater(array, 0), pc.less_equal(array, 1)), "a probability above 0"
    if Role.PRICE in column.roles:
        yield pc.and_(pc.greater_equal(array, 0), pc.is_finite(array)), "a price of at least 0"
    if column.is_target and column.kind is Kind.REAL:
        yield pc.is_finite(array), "a finite number"
    limits = COORDINATES.get(next(iter(column.roles & COORDINATES.keys()), Role.LABEL), column.between)
    if limits is not None:
        low, high = limits
        yield pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high)), f"{low:g} to {high:g}"


def _role_in_words(column: Column) -> str:
    role = next(str(role) for role in Role if role in column.roles)
    return f"an {role}" if role.startswith("a") else f"a {role}"


def _bools(array: pa.Array) -> Flags:
    bools: Flags = pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return bools


# What a feature that is not there would have been read as.
ABSENT = {kind: pa.int64() for kind in Kind} | {Kind.CATEGORY: pa.binary(), Kind.REAL: pa.float64()}

SEPARATORS = (",", ";", "\t", "|")

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ExampleBlock:
    """A block of examples, in the order of the file, with counts of the rows that are none."""

    rows: pa.RecordBatch
    lines: NDArray[np.int64]
    read: int  # rows of the file, bad ones included
    passed_over: int  # rows that the log's rule does not count as examples
    bad: list[BadRow]
    position: int


class LogReader:
    """A log file, opened and its layout recognised; `stream` reads it."""

    def __init__(self, log: Log, path: str | Path, *, bad_rows_limit: int = DEFAULT_LIMIT) -> None:
        expect.kind("log", log, Log)
        path = expect.path("path", path)
        self.log = log
        if not Path(path).exists():
            raise BadInput(f"{log.name}: expected a file or folder at {path}, got nothing there")
        self.tables: LogTables = log.tables(Path(path))
        self.path = self.tables.rows
        if not self.path.is_file():
            raise BadInput(f"{log.name}: expected a plain file at {self.path}, got a folder or a pipe")
        self.bad_rows = BadRows(str(self.path), bad_rows_limit)
        self.rows_read = self.rows_passed_over = 0
        self.bytes = self.path.stat().st_size
        self._parquet = is_parquet(self.path)
        self._layout, self._names = self._recognise_layout()
        self.columns = self._columns_to_read()
        self.synthetic = all(is_synthetic(table) for table in (self.path, *self.tables.joined))
        self.first_line = 1 if self._parquet or not self._layout.header else 2  # of the rows

    def __repr__(self) -> str:
        return brief(self, log=self.log.name, path=str(self.path))

    def stream(self, work: Callable[[ExampleBlock], Result], progress: Count = no_count) -> Iterator[Result]:
        """The results of `work` on every block, spread over the cores; they come in order, one at a time.

        Every call reads and counts anew. Raises TooManyBadRows as soon as the limit is passed. `progress` is
        told the bytes read so far.
        """

        def examine(parse: Callable[[], ParsedBlock]) -> tuple[ExampleBlock, Result]:
            examples = self._examples(parse())
            return examples, work(examples)

        self.bad_rows = BadRows(str(self.path), self.bad_rows.limit)
        self.rows_read = self.rows_passed_over = 0
        for examples, result in map_in_order(examine, self._blocks()):
            self.rows_read += examples.read
            self.rows_passed_over += examples.passed_over
            self.bad_rows.add(examples.bad)
            progress(examples.position)
            yield result

    @property
    def no_examples(self) -> str:
        """The refusal of a file that has no examples."""
        first = f"; the first bad one: {self.bad_rows.first[0]}" if self.bad_rows.first else ""
        return f"{self.path}: expected examples, got none among {self.rows_read} rows{first}"

    def _blocks(self) -> Iterator[Callable[[], ParsedBlock]]:
        if self._parquet:
            yield from ParquetParser(self._layout, self.path, self.columns).blocks()
            return
        parser = TextParser(self._layout, self._names, self.columns, self.bad_rows.limit, str(self.path))
        for block in blocks(self.path):
            if block.first_line == 1:
                rows = block.without_first_line() if self._layout.header else block.without_mark()
            else:
                rows = block
            if rows.lines:
                yield partial(parser.parse, rows)

    def _examples(self, parsed: ParsedBlock) -> ExampleBlock:
        rows, lines = parsed.rows, parsed.lines
        read, passed_over = rows.num_rows + len(parsed.bad), 0
        if self.log.keep is not None:
            mask = pc.fill_null(pc.equal(rows.column(self.log.keep.column), self.log.keep.value), False)
            passed_over = rows.num_rows - pc.sum(mask).as_py() if rows.num_rows else 0
            rows, lines = rows.filter(mask), lines[mask.to_numpy(zero_copy_only=False)]
        rows = self._with_absent(self.tables.derive(rows))
        good, bad = find_bad_rows(self.log.schema, rows, lines)
        if good is not None:
            rows, lines = rows.filter(pa.array(good)), lines[good]
        in_order_of_lines = sorted(parsed.bad + bad, key=lambda row: row.line)
        return ExampleBlock(rows, lines, read, passed_over, in_order_of_lines, parsed.position)

    def _with_absent(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """An optional feature that the file lacks is missing in every row."""
        for column in self.log.schema.columns:
            if column.is_feature and column.optional and column.source not in rows.schema.names:
                kind = pa.list_(pa.binary()) if column.kind is Kind.SEQUENCE else ABSENT[column.kind]
                rows = rows.append_column(column.source, pa.nulls(rows.num_rows, kind))
        return rows

    def _recognise_layout(self) -> tuple[FileLayout, list[str]]:
        """The first layout that fits, and the file's columns by our names."""
        layouts = tuple(self.log.as_read(layout) for layout in self.log.layouts)
        if self._parquet:  # which may have any layout's names and words
            aliases = {theirs: ours for each in layouts for theirs, ours in each.aliases.items()}
            missing = tuple(dict.fromkeys(word for each in layouts for word in each.missing))
            layout = replace(layouts[0], aliases=aliases, missing=missing)
            self._found = parquet_names(self.path)
            return layout, layout.in_order(self._found, str(self.path))
        lists = [name for name in self.log.raw_columns if self.log.layouts[0].columns[name] is CellType.LIST]
        if lists:
            raise BadInput(
                f"{self.path}: expected a Parquet file, which can hold the lists of {lists[0]}, got a text"
            )
        start = first_line(self.path)
        if not start:
            raise BadInput(f"{self.path}: expected rows, got an empty file or a first line that is empty")
        misfits, instead = [], "got another first line"
        needed = [name for name in self.log.raw_columns if name not in self.log.optional_columns]
        for layout in layouts:
            line = layout.decode(start, str(self.path), 1)
            cells = layout.cells(line)
            names = layout.in_order(cells if layout.header else None, str(self.path))
            lacking = [name for name in needed if name not in names]
            if layout.header and lacking:
                misfits.append(f"a header with column {lacking[0]}, separated by {layout.separator!r}")
                instead = _instead(layout, line, needed, lacking[0])
            elif not layout.header and len(cells) != len(names):
                misfits.append(f"{len(names)} fields separated by {layout.separator!r} in line 1")
            else:
                self._found = cells if layout.header else names
                return layout, names
        raise BadInput(f"{self.path}: expected {' or '.join(misfits)}, {instead}")

    def _columns_to_read(self) -> list[str]:
        wanted: list[str] = []
        for name in self.log.raw_columns:
            if name in self._names:
                wanted.append(name)
            elif name not in self.log.optional_columns:
                raise BadInput(f"{self.path}: expected a column {name}, {found_instead(name, self._found)}")
        return wanted


def _instead(layout: FileLayout, line: str, needed: Sequence[str], lacking: str) -> str:
    """What a header that does not fit has; another separator is named where it makes the header fit."""
    for separator in SEPARATORS:
        other = replace(layout, separator=separator)
        if set(needed) <= {layout.aliases.get(name, name) for name in other.cells(line)}:
            return f'got one separated by {separator!r}: say separator = "{separator}" under [file]'
    return found_instead(lacking, layout.cells(line), [*layout.columns, *layout.aliases])


def map_in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """A parallel map over threads that keeps the order and only a few items in memory."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    under_way: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                under_way.append(pool.submit(work, item))
                if len(under_way) > workers + 1:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for waiting in under_way:
                waiting.cancel()
