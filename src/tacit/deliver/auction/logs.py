"""Blocks of auctions from a generated market or from a Parquet log, as they stream by.

Columns of an `AuctionLog` are checked before anything runs, and a bad row is refused by its auction's id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import (
    EVENT_CODES,
    AuctionBlock,
    AuctionNames,
    BidEvent,
    PublicCandidates,
    Rates,
)
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.files import open_parquet, parquet_batches
from tacit.kernels.auctions import MOST_MICROS
from tacit.schema.columns import LogSchema, Role

MICROS = 1_000_000
ROWS_PER_BLOCK = 2**17
MOST_NAMED = 30  # columns in a message

PRIVATE = frozenset({Role.SENSITIVE, Role.LABEL, Role.AUXILIARY, Role.DELAY, Role.USER})
PRICED_BY = {
    "auction": Role.AUCTION,
    "bid": Role.PRICE,
    "click": Role.PUBLIC,
    "conversion": Role.PUBLIC,
    "campaign": Role.ADVERTISER,
}
"""What prices and bills are made of, and the role beside that of a public feature that fits each."""


class GeneratedAuctions(Protocol):
    """What a generator of auctions hands over: bids in currency units per click, two click probabilities."""

    @property
    def offsets(self) -> Integers: ...
    @property
    def bid(self) -> Floats: ...
    @property
    def server(self) -> Floats: ...
    @property
    def device(self) -> Floats: ...


NumberCampaigns = Callable[[int, Integers, Floats], Integers]
"""The campaigns of a block's candidates, by the block's number in the stream, its offsets and bids."""


def generated_blocks(
    auctions: Iterable[GeneratedAuctions], campaigns: NumberCampaigns | None = None
) -> Iterator[AuctionBlock]:
    """Auctions that a generator or a study hands over; bids rounded down to whole micros. `campaigns` says
    whose the candidates are; without it they are numbered in the stream, each a campaign of its own."""
    first = rows = 0
    for number, some in enumerate(auctions):
        bids = np.floor(some.bid * MICROS).astype(np.int64)
        campaign = (
            np.arange(rows, rows + len(bids), dtype=np.int64)
            if campaigns is None
            else campaigns(number, some.offsets, some.bid)
        )
        names = AuctionNames(first=first)
        public = PublicCandidates(some.offsets, bids, Rates(some.server), campaign=campaign, names=names)
        yield AuctionBlock(public, Rates(some.device))
        first, rows = first + len(some.offsets) - 1, rows + len(bids)


@dataclass(frozen=True)
class AuctionLogColumns:
    """Which columns of a log say what. Rows of an auction lie together; their order breaks ties.

    The first five are public, and prices are made of them alone. `private` names columns that may never be
    among them, beside the device's probabilities. With a log's schema, they must be public by it: features
    that anybody may know, or the log's price, auction and advertiser where a bid, auction and campaign go. Of
    columns that the schema does not have, only the caller knows.
    """

    auction: str
    bid: str  # currency units; rounded down to whole micros
    click: str
    conversion: str | None = None
    campaign: str | None = None
    private_click: str = "private_click"
    private_conversion: str | None = None
    true_click: str | None = None  # logged clicks, to measure by
    user: str | None = None
    bids_for: BidEvent = BidEvent.CLICK
    private: frozenset[str] = frozenset()
    schema: LogSchema | None = None

    def __post_init__(self) -> None:
        for use in (*PRICED_BY, "private_click", "private_conversion", "true_click", "user"):
            expect.kind(use, getattr(self, use), str, type(None))
        expect.kind("schema", self.schema, LogSchema, type(None))
        hidden = {self.private_click, self.private_conversion, self.true_click, self.user, *self.private}
        for use, own_role in PRICED_BY.items():
            name = getattr(self, use)
            if name is None:
                continue
            if name in hidden:
                raise BadInput(f"{use}: expected a public column to price by, got {name!r}, which is private")
            for column in self.schema.columns if self.schema is not None else ():
                if name not in (column.name, column.source):
                    continue
                if column.roles & PRIVATE:
                    raise BadInput(
                        f"{use}: expected a public column to price by, got {name!r}, which is private"
                    )
                if Role.PUBLIC not in column.roles and not column.roles <= {own_role}:
                    roles = ", ".join(sorted(column.roles))
                    raise BadInput(
                        f"{use}: expected a public column to price by, got {name!r}, which is {roles}"
                    )

    @property
    def columns(self) -> list[str]:
        used = (self.auction, self.bid, self.click, self.conversion, self.campaign, self.private_click)
        more = (self.private_conversion, self.true_click, self.user)
        return list(dict.fromkeys(name for name in used + more if name is not None))


def logged_blocks(
    path: str | Path, names: AuctionLogColumns, rows: int = ROWS_PER_BLOCK
) -> Iterator[AuctionBlock]:
    """A Parquet log, about `rows` rows at a time; an auction is never cut in two."""
    with open_auction_log(path) as file:
        expect_columns(path, names.columns, file.schema_arrow.names)
        waiting: pa.Table | None = None
        for batch in parquet_batches(path, file, names.columns, rows):
            table = pa.Table.from_batches([batch])
            waiting = table if waiting is None else pa.concat_tables([waiting, table])
            starts = _starts(waiting, names)
            if len(starts) < 2:
                continue  # one auction, perhaps not whole yet
            yield _block(waiting.slice(0, starts[-1]), starts[:-1], names)
            waiting = waiting.slice(starts[-1])
        if waiting is not None and waiting.num_rows:
            yield _block(waiting, _starts(waiting, names), names)


def open_auction_log(path: str | Path) -> pq.ParquetFile:
    """The file, or a refusal that says whether there is none or another kind."""
    if not Path(path).is_file():
        raise BadInput(f"{path}: expected a Parquet file, got {'a folder' if Path(path).is_dir() else 'none'}")
    with Path(path).open("rb") as file:
        if file.read(4) != b"PAR1":
            raise BadInput(f"{path}: expected a Parquet file, got another kind")
    return open_parquet(path)


def expect_columns(path: str | Path, wanted: Iterable[str], there: Collection[str]) -> None:
    """Refuse a log that lacks a column, by naming those that it has."""
    lacking = [name for name in wanted if name not in there]
    if lacking:
        close = expect.nearest(lacking[0], there) if len(lacking) == 1 else ""
        known = ", ".join([*there][:MOST_NAMED]) + (" and others" if len(there) > MOST_NAMED else "")
        raise BadInput(f"{path}: expected columns {', '.join(lacking)}, got only {known}{close}")


def _starts(table: pa.Table, names: AuctionLogColumns) -> Integers:
    """Where the auctions begin."""
    ids = _numpy(table, names.auction)
    if not len(ids):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1]).astype(np.int64)


def _block(table: pa.Table, starts: Integers, names: AuctionLogColumns) -> AuctionBlock:
    offsets = np.append(starts, table.num_rows)
    auctions = AuctionNames(_numpy(table, names.auction)[starts])

    def reals(name: str | None) -> Floats | None:
        return None if name is None else np.ascontiguousarray(_numpy(table, name), dtype=np.float64)

    def numbers(name: str | None) -> Integers | None:
        return None if name is None else _whole(_numpy(table, name), name)

    bid, click, private_click = reals(names.bid), reals(names.click), reals(names.private_click)
    assert bid is not None
    assert click is not None
    assert private_click is not None
    _refuse_where(
        ~(bid >= 0) | (bid > MOST_MICROS / MICROS),
        bid,
        f"a bid in 0..{MOST_MICROS // MICROS:,} currency units (2^53 micros) in {names.bid}",
        offsets,
        auctions,
    )
    campaign, user = numbers(names.campaign), numbers(names.user)
    if campaign is not None:
        _refuse_where(campaign < 0, campaign, f"campaigns >= 0 in {names.campaign}", offsets, auctions)
    if user is not None:
        changes = user != np.repeat(user[starts], np.diff(offsets))
        _refuse_where(changes, None, f"one user for all its rows in {names.user}", offsets, auctions)
    public = PublicCandidates(
        offsets,
        np.floor(bid * MICROS).astype(np.int64),
        Rates(click, reals(names.conversion)),
        names.bids_for,
        campaign,
        auctions,
    )
    private = Rates(private_click, reals(names.private_conversion))
    logged = reals(names.true_click)
    return AuctionBlock(
        public,
        private,
        None if logged is None else Rates(logged, private.conversion),
        None if user is None else np.ascontiguousarray(user[starts]),
    )


def _refuse_where(
    wrong: NDArray[np.bool_], public: NDArray[Any] | None, expected: str, offsets: Integers, names: AuctionNames
) -> None:
    """Refuse the first such row by its auction, with its value where that is public."""
    if wrong.any():
        at = int(np.argmax(wrong))
        got = "another" if public is None else public[at].item()
        auction = names.of(int(np.searchsorted(offsets, at, side="right")) - 1)
        raise BadInput(f"auction {auction}: expected {expected}, got {got}")


def _numpy(table: pa.Table, name: str) -> NDArray[Any]:
    column = table.column(name)
    if column.null_count:
        raise BadInput(f"{name}: expected a value in every row, got none in some")
    array: NDArray[Any] = column.to_numpy()
    return array


def _whole(values: NDArray[Any], name: str) -> Integers:
    if values.dtype.kind not in "iu":
        raise BadInput(f"{name}: expected whole numbers, got {values.dtype}")
    return np.ascontiguousarray(values, dtype=np.int64)


WHOLE_COLUMNS = ("campaign", "user")
NUMBER_COLUMNS = ("bid", "click", "conversion", "private_click", "private_conversion", "true_click")


@dataclass(frozen=True)
class AuctionLog:
    """Auctions of a Parquet file; `bid_kind` names a column that says what each bid is for, else it is the
    same for all: clicks, where nothing is said."""

    path: Path
    names: AuctionLogColumns
    bid_kind: str | None = None

    __repr__ = brief_repr

    @property
    def columns(self) -> list[str]:
        return [*self.names.columns, *([] if self.bid_kind is None else [self.bid_kind])]

    def count_rows(self) -> int:
        """Rows of the file, after a look at its columns: all there, and of kinds that can be read."""
        with open_auction_log(self.path) as file:
            schema = file.schema_arrow
            expect_columns(self.path, self.columns, schema.names)
            expect_columns(f"{self.path}, columns.private", sorted(self.names.private), schema.names)
            for use in (*WHOLE_COLUMNS, *NUMBER_COLUMNS):
                name = getattr(self.names, use)
                if name is None:
                    continue
                kind = schema.field(name).type
                fits = pa.types.is_integer(kind) or (use in NUMBER_COLUMNS and pa.types.is_floating(kind))
                if not fits:
                    wanted = "whole numbers" if use in WHOLE_COLUMNS else "numbers"
                    raise BadInput(f"{self.path}: expected {wanted} in column {name}, got {kind}")
            rows: int = file.metadata.num_rows
        if not rows:
            raise BadInput(f"{self.path}: expected at least one auction, got none")
        return rows

    def blocks(self, rows: int = ROWS_PER_BLOCK) -> Iterator[AuctionBlock]:
        """The log, about `rows` rows at a time; the same each time it is asked."""
        kinds = None if self.bid_kind is None else _Kinds(self.path, self.bid_kind)
        blocks = logged_blocks(self.path, self.names, rows)
        while True:
            try:
                block = next(blocks)
            except StopIteration:
                return
            except BadInput:
                self._refuse_first_gap()
                raise
            yield block if kinds is None else _with_kinds(block, kinds)

    def auction_type(self) -> pa.DataType:
        """Of auction ids."""
        with open_auction_log(self.path) as file:
            kind = file.schema_arrow.field(self.names.auction).type
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    def _refuse_first_gap(self) -> None:
        """After a refusal: if some row lacks a value, say in which auction the first one is."""
        with open_auction_log(self.path) as file:
            for batch in parquet_batches(self.path, file, self.columns, ROWS_PER_BLOCK):
                table: Any = pa.Table.from_batches([batch])
                for name in self.columns:
                    column = table.column(name)
                    if not column.null_count:
                        continue
                    at = int(np.argmax(column.is_null().to_numpy()))
                    auction = table.column(self.names.auction)[at].as_py()
                    whose = "one without an id" if auction is None else auction
                    raise BadInput(f"auction {whose}: expected a value in {name}, got none") from None


class _Kinds:
    """The column of bid kinds, read alongside: codes of events, in the order of the rows."""

    def __init__(self, path: Path, column: str) -> None:
        self._path, self._column = path, column
        self._codes = self._read()
        self._waiting = np.zeros(0, np.int64)

    def take(self, block: AuctionBlock) -> NDArray[np.uint8]:
        """The codes of the block's rows, which are the next in the file."""
        rows = len(block.public.bid_micros)
        while len(self._waiting) < rows:
            self._waiting = np.concatenate([self._waiting, next(self._codes)])
        codes, self._waiting = self._waiting[:rows], self._waiting[rows:]
        if (codes < 0).any():
            auction = block.public.name_at(int(np.argmax(codes < 0)))
            known = ", ".join(EVENT_CODES)
            raise BadInput(f"auction {auction}: expected one of {known} in {self._column}, got another")
        return codes.astype(np.uint8)

    def _read(self) -> Iterator[NDArray[np.int64]]:
        words = pa.array([str(event) for event in EVENT_CODES])
        with open_auction_log(self._path) as file:
            for batch in parquet_batches(self._path, file, [self._column], ROWS_PER_BLOCK):
                column = batch.column(0)
                if pa.types.is_dictionary(column.type):
                    column = column.dictionary_decode()
                if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
                    raise BadInput(f"{self._path}: expected texts in column {self._column}, got {column.type}")
                # An unknown word and an empty cell are both -1.
                places = pc.index_in(column.cast(pa.string()), value_set=words)
                yield pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _with_kinds(block: AuctionBlock, kinds: _Kinds) -> AuctionBlock:
    codes = kinds.take(block)
    converting = codes == EVENT_CODES[BidEvent.CONVERSION]
    for rates, whose in ((block.public.rates, "public"), (block.private, "private")):
        if converting.any() and rates.conversion is None:
            auction = block.public.name_at(int(np.argmax(converting)))
            raise BadInput(
                f"auction {auction}: expected a column of {whose} conversion rates for its bid, got none"
            )
    return replace(block, public=replace(block.public, bids_for=codes))
