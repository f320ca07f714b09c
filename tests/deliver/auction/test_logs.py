"""Logs of auctions in blocks: what was written, bids rounded down, and priced by public columns alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tacit.deliver.auction.blocks import AuctionBlock
from tacit.deliver.auction.choices import TopChoiceRule
from tacit.deliver.auction.logs import AuctionLogColumns, logged_blocks
from tacit.deliver.auction.market import Arm, measure
from tacit.deliver.auction.metrics import METRICS
from tacit.errors import BadInput
from tacit.schema.columns import IDS, Column, Kind, LogSchema, Role
from tests.support.auction_blocks import awkward_block


def _log(path: Path, blocks: list[AuctionBlock]) -> None:
    columns: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("auction", "bid", "server", "device", "ad", "user")
    }
    seen = 0
    for block in blocks:
        sizes = np.diff(block.public.offsets)
        auction = np.repeat(np.arange(seen, seen + len(sizes)), sizes)
        seen += len(sizes)
        campaign = block.public.campaign
        assert campaign is not None
        for name, values in (
            ("auction", auction),
            ("bid", block.public.bid_micros / 1e6),
            ("server", block.public.rates.click),
            ("device", block.private.click),
            ("ad", campaign),
            ("user", auction // 3),
        ):
            columns[name].append(values)
    pq.write_table(pa.table({name: np.concatenate(values) for name, values in columns.items()}), path)


NAMES = AuctionLogColumns("auction", "bid", "server", campaign="ad", private_click="device", user="user")


@pytest.mark.parametrize("rows", [1, 7, 64, 10**6])
def test_a_log_in_blocks_is_the_log(tmp_path: Path, rows: int) -> None:
    blocks = [awkward_block(seed) for seed in (1, 2)]
    _log(tmp_path / "log.parquet", blocks)
    streamed = list(logged_blocks(tmp_path / "log.parquet", NAMES, rows))
    sizes = np.concatenate([np.diff(block.public.offsets) for block in streamed])
    np.testing.assert_array_equal(sizes, np.concatenate([np.diff(block.public.offsets) for block in blocks]))
    arms = {"rr": Arm(TopChoiceRule(2.0))}
    found, in_memory = measure(streamed, arms), measure(blocks, arms)
    for metric in METRICS:  # bids went through a decimal of currency units: a micro may be lost
        assert found.mean("rr", metric) == pytest.approx(in_memory.mean("rr", metric), rel=1e-3)


@pytest.mark.parametrize("use", ["bid", "click", "conversion", "campaign"])
def test_no_private_column_may_price(use: str) -> None:
    columns = {"auction": "auction", "bid": "bid", "click": "server"}
    message = f"{use}: expected a public column to price by, got 'device', which is private"
    with pytest.raises(BadInput, match=message):
        AuctionLogColumns(**columns | {use: "device"}, private_click="device")  # type: ignore[arg-type]
    schema = LogSchema(
        "log",
        (
            Column("age_rate", {Role.SENSITIVE}, Kind.REAL),
            Column("clicked", {Role.LABEL}, Kind.FLAG),
        ),
    )
    with pytest.raises(BadInput, match="which is private"):
        AuctionLogColumns(**columns | {use: "age_rate"}, schema=schema)  # type: ignore[arg-type]


@pytest.mark.parametrize("hidden", ["private_click", "private_conversion", "true_click", "user"])
def test_what_a_device_knows_or_did_never_prices(hidden: str) -> None:
    for use in ("auction", "bid", "click", "conversion", "campaign"):
        names = {"auction": "auction", "bid": "bid", "click": "server", use: "x", hidden: "x"}
        with pytest.raises(BadInput, match=f"{use}: expected a public column to price by, got 'x', which is"):
            AuctionLogColumns(**names)  # type: ignore[arg-type]


def test_logged_bids_are_rounded_down(tmp_path: Path) -> None:
    table = {"auction": [1, 1, 1], "bid": [1.9e-6, 2.5e-6, 0.9e-6], "server": [0.5] * 3, "device": [0.5] * 3}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    (block,) = logged_blocks(
        tmp_path / "log.parquet", AuctionLogColumns("auction", "bid", "server", private_click="device")
    )
    assert block.public.bid_micros.tolist() == [1, 2, 0]


@pytest.mark.parametrize("role", list(Role))
def test_a_schema_says_what_may_price(role: Role) -> None:
    fitting = {
        "auction": {Role.PUBLIC, Role.AUCTION},
        "bid": {Role.PUBLIC, Role.PRICE},
        "click": {Role.PUBLIC},
        "conversion": {Role.PUBLIC},
        "campaign": {Role.PUBLIC, Role.ADVERTISER},
    }
    numeric = role not in IDS
    whole = role in (Role.TIME, Role.DELAY)
    column = Column("x", {role}, Kind.WHOLE if whole else Kind.REAL if numeric else Kind.CATEGORY)
    label = () if role is Role.LABEL else (Column("clicked", {Role.LABEL}, Kind.FLAG),)
    schema = LogSchema("log", (column, *label))
    for use, roles in fitting.items():
        names = {"auction": "auction", "bid": "bid", "click": "server", use: "x"}
        if role in roles:
            assert getattr(AuctionLogColumns(**names, schema=schema), use) == "x"  # type: ignore[arg-type]
            continue
        with pytest.raises(BadInput, match=f"{use}: expected a public column to price by, got 'x', which is"):
            AuctionLogColumns(**names, schema=schema)  # type: ignore[arg-type]


def test_a_column_prices_neither_by_its_name_nor_by_its_source() -> None:
    hidden = Column("x", {Role.PROPENSITY}, Kind.REAL, source="in_the_file")
    schema = LogSchema("log", (hidden, Column("y", {Role.LABEL}, Kind.FLAG)))
    for name in ("x", "in_the_file"):
        with pytest.raises(BadInput, match=f"got '{name}', which is propensity"):
            AuctionLogColumns("auction", "bid", name, schema=schema)


def test_a_public_column_with_a_private_use_does_not_price() -> None:
    both = LogSchema("log", (Column("x", {Role.PUBLIC, Role.USER}), Column("y", {Role.LABEL}, Kind.FLAG)))
    with pytest.raises(BadInput, match="which is private"):
        AuctionLogColumns("auction", "bid", "server", campaign="x", schema=both)
    named = LogSchema(
        "log", (Column("x", {Role.PUBLIC, Role.ADVERTISER}), Column("y", {Role.LABEL}, Kind.FLAG))
    )
    assert AuctionLogColumns("auction", "bid", "server", campaign="x", schema=named).campaign == "x"


def test_bad_logs_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "log.parquet"
    with pytest.raises(BadInput, match="Parquet"):
        list(logged_blocks(place, NAMES))
    _log(place, [awkward_block(1)])
    with pytest.raises(BadInput, match="expected columns other"):
        list(logged_blocks(place, AuctionLogColumns("auction", "bid", "other", private_click="device")))
    table = pq.read_table(place)
    bids = table.column("bid").to_numpy().copy()
    bids[3] = -1
    pq.write_table(table.set_column(1, "bid", pa.array(bids)), place)
    with pytest.raises(BadInput, match=r"auction \d+: expected a bid in 0\.\.9,007,.* in bid, got -1\.0"):
        list(logged_blocks(place, NAMES))
