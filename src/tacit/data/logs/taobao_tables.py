"""The tables that Taobao's impressions point into, held in memory: they do not grow with the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.reading.bad_rows import BadRow, BadRows
from tacit.data.reading.blocks import blocks, first_line
from tacit.data.reading.layout import Layout, Raw, found_instead
from tacit.data.reading.parquet import ParquetParser, is_parquet, parquet_names
from tacit.data.reading.stream import in_order
from tacit.data.reading.text import Parsed, TextParser
from tacit.errors import BadInput

SUFFIXES = (".csv", ".csv.gz", ".parquet")
FIRST_DAY = 1_494_000_000  # 2017-05-06 00:00 in UTC+8, when the impressions begin
HISTORY, HISTORY_BRAND = "history_category", "history_brand"
HISTORY_LENGTH = 20
PRUNE_AFTER = 4_000_000


@dataclass(frozen=True)
class Shape:
    """A table's columns, its key among them, with other spellings of their names."""

    key: str
    columns: Mapping[str, Raw]
    aliases: Mapping[str, str] = field(default_factory=dict)


LEVELS = ("cms_segid", "cms_group_id", "final_gender_code", "age_level", "pvalue_level", "shopping_level")
PERSON = (*LEVELS, "occupation", "new_user_class_level")
AD = Shape(
    "adgroup_id",
    MappingProxyType(
        {
            **dict.fromkeys(("adgroup_id", "cate_id", "campaign_id", "customer", "brand"), Raw.WHOLE),
            "price": Raw.REAL,
        }
    ),
)
PROFILE = Shape(
    "userid",
    MappingProxyType(dict.fromkeys(("userid", *PERSON), Raw.WHOLE)),
    MappingProxyType({"new_user_class_level ": "new_user_class_level"}),  # published with that space
)
BEHAVIOUR = Shape(
    "user",
    MappingProxyType(
        {**dict.fromkeys(("user", "time_stamp", "cate", "brand"), Raw.WHOLE), "time_stamp": Raw.TIME}
    ),
)
NO_BRAND = np.iinfo(np.int64).min


@dataclass(frozen=True)
class SideTable:
    """Rows by key, sorted; `of` looks them up."""

    keys: NDArray[np.int64]
    columns: pa.Table

    @classmethod
    def read(cls, path: Path, shape: Shape) -> SideTable:
        found = list(batches(path, shape))
        if not found:
            raise BadInput(f"{path}: expected rows, got none")
        table = pa.Table.from_batches(found)
        keys = table.column(shape.key).to_numpy()
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            raise BadInput(f"{path}: expected every {shape.key} once, got {len(twice)} of them again")
        return cls(keys, table.drop_columns([shape.key]).take(pa.array(order)).combine_chunks())

    def of(self, keys: pa.Array) -> dict[str, pa.Array]:
        """The row of each key, or nulls."""
        numbers = pc.fill_null(keys, 0).to_numpy(zero_copy_only=False)
        at = np.searchsorted(self.keys, numbers)
        last = len(self.keys) - 1
        found = self.keys[np.minimum(at, last)] == numbers if last >= 0 else np.zeros(len(at), np.bool_)
        found &= keys.is_valid().to_numpy(zero_copy_only=False)
        rows = self.columns.take(pa.array(np.where(found, at, 0), mask=~found))
        return {name: rows.column(name).combine_chunks() for name in rows.column_names}


def has_table(folder: Path, name: str) -> bool:
    return any((folder / f"{name}{suffix}").is_file() for suffix in SUFFIXES)


def table_in(folder: Path, name: str) -> Path:
    """The file of a table, however it is stored."""
    if not folder.is_dir():
        raise BadInput(f"taobao: expected a folder with raw_sample, ad_feature and user_profile, got {folder}")
    for suffix in SUFFIXES:
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    raise BadInput(f"{folder}: expected a table {name} ({', '.join(SUFFIXES)}), got none")


def histories(path: Path) -> SideTable:
    """The last categories, and brands, that each person looked at before the impressions begin, oldest first.

    Later behaviour is passed over: no impression may see its own future.
    """
    kept, waiting = _Events.none(), []
    count = 0
    for rows in batches(path, BEHAVIOUR):
        # Without a time or a category there is nothing to remember.
        early = rows.filter(
            pc.and_(pc.less(rows.column("time_stamp"), FIRST_DAY), rows.column("cate").is_valid())
        )
        user, time, category = (early.column(name).to_numpy() for name in ("user", "time_stamp", "cate"))
        brand = pc.fill_null(early.column("brand"), NO_BRAND).to_numpy()
        waiting.append(_Events(user, time, category, brand))
        count += early.num_rows
        if count > PRUNE_AFTER:
            kept, waiting, count = _Events.latest([kept, *waiting]), [], 0
    kept = _Events.latest([kept, *waiting])
    users, first = np.unique(kept.user, return_index=True)
    offsets = pa.array(np.append(first, len(kept.user)).astype(np.int32))
    brands = pa.array(kept.brand, mask=kept.brand == NO_BRAND)
    lists = {
        name: pa.ListArray.from_arrays(offsets, values)
        for name, values in ((HISTORY, pa.array(kept.category)), (HISTORY_BRAND, brands))
    }
    return SideTable(users, pa.table(lists))


def batches(path: Path, shape: Shape) -> Iterator[pa.RecordBatch]:
    """A table's rows, a block at a time. A row that cannot be read, or has no key, refuses the table."""
    for parsed in in_order(lambda parse: parse(), parsed_blocks(path, shape)):
        BadRows(str(path), limit=0).add(parsed.bad)
        keyless = np.flatnonzero(parsed.rows.column(shape.key).is_null().to_numpy(zero_copy_only=False))
        BadRows(str(path), limit=0).add(
            BadRow(int(parsed.lines[row]), shape.key, "expected a key, got none") for row in keyless[:1]
        )
        yield parsed.rows


def parsed_blocks(path: Path, shape: Shape, *, bad_rows_limit: int = 0) -> Iterator[Callable[[], Parsed]]:
    """What parses a table, block by block; each block gives up beyond so many rows that cannot be read."""
    layout = Layout(shape.columns, missing=("", "NULL", "null"), aliases=shape.aliases)
    wanted, parquet = list(shape.columns), is_parquet(path)
    header = parquet_names(path) if parquet else layout.cells(layout.decoded(first_line(path), str(path), 1))
    names = layout.in_order(header, str(path))
    for name in wanted:
        if name not in names:
            raise BadInput(
                f"{path}: expected a column {name}, {found_instead(name, header, None if parquet else wanted)}"
            )
    if parquet:
        yield from ParquetParser(layout, path, wanted).blocks()
        return
    parser = TextParser(layout, names, wanted, bad_rows_limit, str(path))
    for block in blocks(path):
        rows = block.without_first_line() if block.first_line == 1 else block
        if rows.lines:
            yield partial(parser.parse, rows)


@dataclass(frozen=True)
class _Events:
    user: NDArray[np.int64]
    time: NDArray[np.int64]
    category: NDArray[np.int64]
    brand: NDArray[np.int64]

    @classmethod
    def none(cls) -> _Events:
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing)

    @classmethod
    def latest(cls, parts: list[_Events]) -> _Events:
        """The last few of each person, in the order of person and time."""
        users = np.concatenate([part.user for part in parts])
        time = np.concatenate([part.time for part in parts])
        category = np.concatenate([part.category for part in parts])
        brand = np.concatenate([part.brand for part in parts])
        order = np.lexsort((time, users))
        by_user = users[order]
        ends = np.searchsorted(by_user, by_user, side="right")
        near = order[ends - np.arange(len(order)) <= HISTORY_LENGTH]
        return cls(users[near], time[near], category[near], brand[near])
