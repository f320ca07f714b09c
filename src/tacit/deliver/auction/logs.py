"""Blocks of auctions from a generated market or from a Parquet log, as they stream by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import AuctionBlock, AuctionNames, BidEvent, PublicCandidates, Rates
from tacit.errors import BadInput
from tacit.files import open_parquet, parquet_batches
from tacit.kernels.auctions import MOST_MICROS
from tacit.schema.columns import LogSchema, Role

MICROS = 1_000_000
ROWS_PER_BLOCK = 2**17
MOST_NAMED = 30  # columns in a message

PRIVATE = frozenset({Role.SENSITIVE, Role.LABEL, Role.AUXILIARY, Role.USER})
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
