"""The market of `tacit simulate`: auctions of a log or a generated market, in blocks, and the arms that choose.

Columns of a log are checked before anything runs, and a bad row is refused by its auction's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.commands.simulate_config import NOISES, Chooser, GeneratedMarket, LoggedMarket, SimulationConfig
from tacit.data.generators.markets import Market
from tacit.deliver.auction.blocks import EVENT_CODES, AuctionBlock, BidEvent
from tacit.deliver.auction.choices import (
    GREEDY,
    NON_PERSONALISED,
    ChoiceRule,
    Greedy,
    NonPersonalised,
    TopChoiceRule,
)
from tacit.deliver.auction.logs import (
    MICROS,
    ROWS_PER_BLOCK,
    AuctionLogColumns,
    expect_columns,
    generated_blocks,
    logged_blocks,
    open_auction_log,
)
from tacit.deliver.auction.market import Arm
from tacit.deliver.auction.noisy_choices import NoisyMaxRule
from tacit.deliver.auction.planned_choices import planned_rule
from tacit.deliver.protocol.forecasts import LOW_SPREAD, Spread
from tacit.errors import BadInput
from tacit.files import parquet_batches
from tacit.privacy.choice.noise import Noise

WHOLE_COLUMNS = ("campaign", "user")
NUMBER_COLUMNS = ("bid", "click", "conversion", "private_click", "private_conversion", "true_click")


def count_log_rows(log: LoggedMarket) -> int:
    """Rows of the file, after a look at its columns: all there, and of kinds that can be read."""
    with open_auction_log(log.path) as file:
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


def read_auction_blocks(log: LoggedMarket, rows: int = ROWS_PER_BLOCK) -> Iterator[AuctionBlock]:
    """The log, about `rows` rows at a time."""
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

    def __init__(self, log: LoggedMarket, column: str) -> None:
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
        with open_auction_log(self._log.path) as file:
            for batch in parquet_batches(self._log.path, file, [self._column], ROWS_PER_BLOCK):
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
    converting = codes == EVENT_CODES[BidEvent.CONVERSION]
    for rates, whose in ((block.public.rates, "public"), (block.private, "private")):
        if converting.any() and rates.conversion is None:
            auction = block.public.name_at(int(np.argmax(converting)))
            raise BadInput(
                f"auction {auction}: expected a column of {whose} conversion rates for its bid, got none"
            )
    return replace(block, public=replace(block.public, bids_for=codes))


def _refuse_first_gap(log: LoggedMarket) -> None:
    """After a refusal: if some row lacks a value, say in which auction the first one is."""
    with open_auction_log(log.path) as file:
        for batch in parquet_batches(log.path, file, _columns(log), ROWS_PER_BLOCK):
            table: Any = pa.Table.from_batches([batch])
            for name in _columns(log):
                column = table.column(name)
                if not column.null_count:
                    continue
                at = int(np.argmax(column.is_null().to_numpy()))
                auction = table.column(log.names.auction)[at].as_py()
                whose = "one without an id" if auction is None else auction
                raise BadInput(f"auction {whose}: expected a value in {name}, got none") from None


def _columns(log: LoggedMarket) -> list[str]:
    names: AuctionLogColumns = log.names
    return [*names.columns, *([] if log.bid_kind is None else [log.bid_kind])]


MARKETS = {"display": Market.taobao_like, "search": Market.search_like}


def count_rows(config: SimulationConfig) -> tuple[int, str]:
    """How much there is to go through, and in what unit; a log's columns are checked on the way."""
    if isinstance(config.market, GeneratedMarket):
        return config.market.auctions, "auctions"
    return count_log_rows(config.market), "rows"


def stream_auctions(config: SimulationConfig) -> Iterator[AuctionBlock]:
    """All auctions once; the same ones each time it is asked."""
    market = config.market
    if isinstance(market, GeneratedMarket):
        auctions = MARKETS[market.kind]().auctions(market.auctions, market.seed)
        return generated_blocks(auctions, market.campaigns.numbers)
    return read_auction_blocks(market)


def build_arms(config: SimulationConfig) -> dict[str, Arm]:
    """The two ends, and every choice that was asked for, all under the same public rules."""
    ends = {NON_PERSONALISED: Arm(NonPersonalised(), config.rules), GREEDY: Arm(Greedy(), config.rules)}
    asked = {
        each.name: Arm(
            MAKERS[each.mechanism](each),
            config.rules if each.gamma is None else replace(config.rules, cutoff=each.gamma),
        )
        for each in config.choosers
    }
    return {**ends, **asked}


def _trunc(chooser: Chooser) -> ChoiceRule:
    return planned_rule(Spread(chooser.settings.get("spread", LOW_SPREAD)), chooser.epsilon)


def _rr(chooser: Chooser) -> ChoiceRule:
    return TopChoiceRule(chooser.epsilon, chooser.settings.get("kept"), chooser.settings.get("top", 1))


def _noisy(chooser: Chooser) -> ChoiceRule:
    clip = chooser.settings.get("clip")
    return NoisyMaxRule(
        chooser.epsilon,
        Noise(chooser.mechanism),
        None if clip is None else float(clip) * MICROS,
        bool(chooser.settings.get("calibrated", False)),
    )


MAKERS: dict[str, Callable[[Chooser], ChoiceRule]] = {
    "rr": _rr,
    "trunc": _trunc,
    **dict.fromkeys(NOISES, _noisy),
}
"""How each of `MECHANISMS` is made; one that is not here is not made at all."""
