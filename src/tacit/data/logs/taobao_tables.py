"""The tables that Taobao's impressions refer to, and each person's history.

Ads and profiles are held in memory: they do not grow with the log. A history is what the person looked at
before the first day (`read_histories`, from the behaviour log), or else the ads shown to them before the
row's own second (`ImpressionHistory`, from the impressions themselves). Which ads were shown is a feature;
whether they were clicked is the label and is not read here. A history of clicks would give other rows' labels
to the model as features, and a guarantee for labels would be void.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.arrays import Integers
from tacit.data.reading.bad_rows import BadRow, BadRows
from tacit.data.reading.layout import CellType, FileLayout, found_instead
from tacit.data.reading.parquet import ParquetParser, is_parquet, parquet_names
from tacit.data.reading.reader import map_in_order
from tacit.data.reading.text import ParsedBlock, TextParser, blocks, first_line
from tacit.errors import BadInput

SUFFIXES = (".csv", ".csv.gz", ".parquet")
FIRST_DAY = 1_494_000_000  # 2017-05-06 00:00 in UTC+8, when the impressions begin
HISTORY, HISTORY_BRAND = "history_category", "history_brand"
HISTORY_LENGTH = 20
PRUNE_AFTER = 4_000_000


@dataclass(frozen=True)
class TableShape:
    """A table's columns, its key among them, with other spellings of their names."""

    key: str
    columns: Mapping[str, CellType]
    aliases: Mapping[str, str] = field(default_factory=dict)


LEVELS = ("cms_segid", "cms_group_id", "final_gender_code", "age_level", "pvalue_level", "shopping_level")
PERSON = (*LEVELS, "occupation", "new_user_class_level")
AD = TableShape(
    "adgroup_id",
    MappingProxyType(
        {
            **dict.fromkeys(("adgroup_id", "cate_id", "campaign_id", "customer", "brand"), CellType.WHOLE),
            "price": CellType.REAL,
        }
    ),
)
PROFILE = TableShape(
    "userid",
    MappingProxyType(dict.fromkeys(("userid", *PERSON), CellType.WHOLE)),
    MappingProxyType({"new_user_class_level ": "new_user_class_level"}),  # published with that space
)
BEHAVIOUR = TableShape(
    "user",
    MappingProxyType(
        {**dict.fromkeys(("user", "time_stamp", "cate", "brand"), CellType.WHOLE), "time_stamp": CellType.TIME}
    ),
)
NO_BRAND = np.iinfo(np.int64).min


@dataclass(frozen=True)
class SideTable:
    """A table in memory, sorted by its key; `of` looks rows up."""

    keys: NDArray[np.int64]
    columns: pa.Table

    @classmethod
    def read(cls, path: Path, shape: TableShape) -> SideTable:
        found = list(table_batches(path, shape))
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


def table_path(folder: Path, name: str) -> Path:
    """The file of a table, however it is stored."""
    if not folder.is_dir():
        raise BadInput(f"taobao: expected a folder with raw_sample, ad_feature and user_profile, got {folder}")
    for suffix in SUFFIXES:
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    raise BadInput(f"{folder}: expected a table {name} ({', '.join(SUFFIXES)}), got none")


def read_histories(path: Path) -> SideTable:
    """The last categories, and brands, that each person looked at before the impressions begin, oldest first.

    Later behaviour is passed over: no impression may see its own future.
    """
    kept, waiting = _Events.none(), []
    count = 0
    for rows in table_batches(path, BEHAVIOUR):
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


def table_batches(path: Path, shape: TableShape) -> Iterator[pa.RecordBatch]:
    """A table's rows, a block at a time. A row that cannot be read, or has no key, refuses the table."""
    for parsed in map_in_order(lambda parse: parse(), parsed_blocks(path, shape)):
        BadRows(str(path), limit=0).add(parsed.bad)
        keyless = np.flatnonzero(parsed.rows.column(shape.key).is_null().to_numpy(zero_copy_only=False))
        BadRows(str(path), limit=0).add(
            BadRow(int(parsed.lines[row]), shape.key, "expected a key, got none") for row in keyless[:1]
        )
        yield parsed.rows


def parsed_blocks(
    path: Path, shape: TableShape, *, bad_rows_limit: int = 0
) -> Iterator[Callable[[], ParsedBlock]]:
    """Parsers of a table's blocks; each gives up beyond `bad_rows_limit` rows that cannot be read."""
    layout = FileLayout(shape.columns, missing=("", "NULL", "null"), aliases=shape.aliases)
    wanted, parquet = list(shape.columns), is_parquet(path)
    header = parquet_names(path) if parquet else layout.cells(layout.decode(first_line(path), str(path), 1))
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
        """The last HISTORY_LENGTH events of each person, in the order of person and time."""
        users = np.concatenate([part.user for part in parts])
        time = np.concatenate([part.time for part in parts])
        category = np.concatenate([part.category for part in parts])
        brand = np.concatenate([part.brand for part in parts])
        order = np.lexsort((time, users))
        by_user = users[order]
        ends = np.searchsorted(by_user, by_user, side="right")
        near = order[ends - np.arange(len(order)) <= HISTORY_LENGTH]
        return cls(users[near], time[near], category[near], brand[near])


IMPRESSION = TableShape(
    "user",
    MappingProxyType({"user": CellType.WHOLE, "time_stamp": CellType.TIME, "adgroup_id": CellType.WHOLE}),
)
ANY_NUMBER = 2**62  # of rows that cannot be read: the log's own reader has the limit
TIME_BITS = 34  # seconds of five centuries; what is left of 63 bits counts people


class ImpressionHistory:
    """The ads that each person was shown earlier: read in one pass at first use, 12 bytes per impression."""

    def __init__(self, impressions: Path, ads: SideTable) -> None:
        self._path, self._ads = impressions, ads
        self._lock = Lock()  # blocks are joined on several threads
        self._shown: _ImpressionOrder | None = None

    def of(self, users: pa.Array, times: pa.Array) -> dict[str, pa.Array]:
        """The last ads of each person strictly before each time, oldest first: their categories and brands."""
        with self._lock:
            if self._shown is None:
                self._shown = _ImpressionOrder.read(self._path, self._ads)
        starts, ends = self._shown.before(_numbers(users), _numbers(times))
        offsets = np.concatenate([[0], np.cumsum(ends - starts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], ends - starts)
        ads = pa.array(self._shown.ad[np.repeat(starts, ends - starts) + within])
        where = pa.array(offsets.astype(np.int32))
        columns = ((HISTORY, "cate_id"), (HISTORY_BRAND, "brand"))
        values = self._ads.columns
        return {
            name: pa.ListArray.from_arrays(where, values.column(of_ad).take(ads).combine_chunks())
            for name, of_ad in columns
        }


@dataclass(frozen=True)
class _ImpressionOrder:
    """Impressions in the order of person and time, equal times in that of the file."""

    people: Integers  # rising
    first: Integers  # (people + 1,): where each one's begin
    key: Integers  # (impressions,): the person's number, then the time since `epoch`
    ad: NDArray[np.int32]  # (impressions,): a row of the ads' table
    epoch: int

    @classmethod
    def read(cls, path: Path, ads: SideTable) -> _ImpressionOrder:
        """Read all impressions.

        Rows that cannot be read, or whose ad is unknown, are passed over: the log's own reader reports them.
        """
        users, times, shown = [], [], []
        for parsed in map_in_order(lambda parse: parse(), _blocks(path)):
            rows = parsed.rows.filter(_whole(parsed.rows))
            number = rows.column("adgroup_id").to_numpy()
            at = np.minimum(np.searchsorted(ads.keys, number), len(ads.keys) - 1)
            known = ads.keys[at] == number
            users.append(rows.column("user").to_numpy()[known])
            times.append(rows.column("time_stamp").to_numpy()[known])
            shown.append(at[known].astype(np.int32))
        nothing = np.empty(0, np.int64)
        user, time = np.concatenate([nothing, *users]), np.concatenate([nothing, *times])
        people, person = np.unique(user, return_inverse=True)
        epoch = int(time.min()) if len(time) else 0
        if len(time) and int(time.max()) - epoch >= 2**TIME_BITS:
            raise BadInput(f"{path}: expected times within {2**TIME_BITS} seconds of each other, got others")
        key = (person << TIME_BITS) | (time - epoch)
        order = np.argsort(key, kind="stable")
        first = np.searchsorted(person[order], np.arange(len(people) + 1))
        ad = np.concatenate([np.empty(0, np.int32), *shown])
        return cls(people, first, key[order], ad[order], epoch)

    def before(self, users: Integers, times: Integers) -> tuple[Integers, Integers]:
        """The start and end of each person's last impressions before each time."""
        if not len(self.people):
            return np.zeros_like(users), np.zeros_like(users)
        person = np.minimum(np.searchsorted(self.people, users), len(self.people) - 1)
        since = np.clip(times - self.epoch, 0, 2**TIME_BITS - 1)
        ends = np.searchsorted(self.key, (person << TIME_BITS) | since, side="left")
        ends = np.where(self.people[person] == users, ends, self.first[person])
        return np.maximum(self.first[person], ends - HISTORY_LENGTH), ends


def _blocks(path: Path) -> Iterator[Callable[[], ParsedBlock]]:
    return parsed_blocks(path, IMPRESSION, bad_rows_limit=ANY_NUMBER)


def _whole(rows: pa.RecordBatch) -> pa.Array:
    user, time, ad = (rows.column(name).is_valid() for name in IMPRESSION.columns)
    return pc.and_(user, pc.and_(time, ad))


def _numbers(array: pa.Array) -> Integers:
    """The array as int64, with 0 for null: such rows are refused later on."""
    return np.asarray(pc.fill_null(array, 0).to_numpy(zero_copy_only=False), np.int64)
