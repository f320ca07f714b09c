"""A user's own log as blocks of auctions: columns checked before, bad rows refused by their auction's id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.commands.simulate_config import Logged
from tacit.deliver.auction.candidates import EVENT_CODES, AuctionBlock, Event
from tacit.deliver.auction.logs import ROWS_PER_BLOCK, LogNames, expect_columns, logged_blocks, opened
from tacit.errors import BadInput
from tacit.parquet import batches

WHOLE_COLUMNS = ("campaign", "user")
NUMBER_COLUMNS = ("bid", "click", "conversion", "private_click", "private_conversion", "true_click")


def row_count(log: Logged) -> int:
    """Rows of the file, after a look at its columns: all there, and of kinds that can be read."""
    with opened(log.path) as file:
        schema = file.schema_arrow
        expect_columns(log.path, _columns(log), schema.names)
        expect_columns(f"{log.path}, columns.private", sorted(log.names.private), schema.names)
        for use in (*WHOLE_COLUMNS, *NUMBER_COLUMNS):
            name = getattr(log.names, use)
            if name is None:
                continue
            kind = schema.field(name).type
            fits = pa.types.is_integer(kind) or (use in NUMBER_COLUMNS and pa.types.is_floating(kind))
            if not fits:
                wanted = "whole numbers" if use in WHOLE_COLUMNS else "numbers"
                raise BadInput(f"{log.path}: expected {wanted} in column {name}, got {kind}")
        rows: int = file.metadata.num_rows
    if not rows:
        raise BadInput(f"{log.path}: expected at least one auction, got none")
    return rows


def blocks_of(log: Logged, rows: int = ROWS_PER_BLOCK) -> Iterator[AuctionBlock]:
    """The log, about so many rows at a time."""
    kinds = None if log.bid_kind is None else _Kinds(log, log.bid_kind)
    blocks = logged_blocks(log.path, log.names, rows)
    while True:
        try:
            block = next(blocks)
        except StopIteration:
            return
        except BadInput:
            _refuse_first_gap(log)
            raise
        yield block if kinds is None else _with_kinds(block, kinds)


class _Kinds:
    """The column of bid kinds, read alongside: codes of events, in the order of the rows."""

    def __init__(self, log: Logged, column: str) -> None:
        self._log, self._column = log, column
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
        with opened(self._log.path) as file:
            for batch in batches(self._log.path, file, [self._column], ROWS_PER_BLOCK):
                column = batch.column(0)
                if pa.types.is_dictionary(column.type):
                    column = column.dictionary_decode()
                if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
                    raise BadInput(
                        f"{self._log.path}: expected texts in column {self._column}, got {column.type}"
                    )
                # An unknown word and an empty cell are both -1.
                places = pc.index_in(column.cast(pa.string()), value_set=words)
                yield pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _with_kinds(block: AuctionBlock, kinds: _Kinds) -> AuctionBlock:
    codes = kinds.take(block)
    converting = codes == EVENT_CODES[Event.CONVERSION]
    for rates, whose in ((block.public.rates, "public"), (block.private, "private")):
        if converting.any() and rates.conversion is None:
            auction = block.public.name_at(int(np.argmax(converting)))
            raise BadInput(
                f"auction {auction}: expected a column of {whose} conversion rates for its bid, got none"
            )
    return replace(block, public=replace(block.public, bids_for=codes))


def _refuse_first_gap(log: Logged) -> None:
    """After a refusal: if some row lacks a value, say in which auction the first one is."""
    with opened(log.path) as file:
        for batch in batches(log.path, file, _columns(log), ROWS_PER_BLOCK):
            table: Any = pa.Table.from_batches([batch])
            for name in _columns(log):
                column = table.column(name)
                if not column.null_count:
                    continue
                at = int(np.argmax(column.is_null().to_numpy()))
                auction = table.column(log.names.auction)[at].as_py()
                whose = "one without an id" if auction is None else auction
                raise BadInput(f"auction {whose}: expected a value in {name}, got none") from None


def _columns(log: Logged) -> list[str]:
    names: LogNames = log.names
    return [*names.columns, *([] if log.bid_kind is None else [log.bid_kind])]
