"""Taobao ad display: eight days of impressions, joined with what is known of the ads and of the people.

A folder holds `raw_sample`, `ad_feature`, `user_profile` and, where given, `behavior_log`, each as .csv,
.csv.gz or .parquet. As in the study of private recommendations (Appendix E): the ads with the same user and
time_stamp are the candidates of one auction, and an advertiser bids in proportion to the price of the item.
What belongs to the person is sensitive; the ad, the place on the page and the time are public. Days are cut in
UTC+8. A history is what the person looked at before the first day (`behavior_log`), or else the ads that they
were shown before the row's own second (`taobao_tables`); clicks are in neither.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.logs.definition import Log, LogTables, PublishedFigure
from tacit.data.logs.taobao_tables import (
    AD,
    HISTORY,
    HISTORY_BRAND,
    PERSON,
    PROFILE,
    ImpressionHistory,
    SideTable,
    has_table,
    read_histories,
    table_path,
)
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.splits import LogSplit
from tacit.schema.columns import Column, Kind, LogSchema, Role

BID_SHARE = 0.01  # of the item's price: what an advertiser bids for a click
HIGHEST_PRICE = 100_000.0  # above this a price is a placeholder (they go up to 99,999,999); it is cut here


def join_tables(
    ads: SideTable, profiles: SideTable, history: SideTable | ImpressionHistory, rows: pa.RecordBatch
) -> pa.RecordBatch:
    """Add the ad's and the person's columns, their history, the bid and the auction. An unknown ad or person
    has nulls."""
    users = rows.column("user")
    added = {
        **ads.of(rows.column("adgroup_id")),
        **profiles.of(users),
        "auction": pc.bit_wise_xor(pc.shift_left(users, 32), rows.column("time_stamp")),
    }
    added["bid"] = pc.multiply(pc.min_element_wise(added["price"], HIGHEST_PRICE, skip_nulls=False), BID_SHARE)
    if isinstance(history, ImpressionHistory):
        added.update(history.of(users, rows.column("time_stamp")))
    else:
        added.update(history.of(users))
    for name, column in added.items():
        rows = rows.append_column(name, column)
    return rows


def _tables(folder: Path) -> LogTables:
    ads = SideTable.read(table_path(folder, "ad_feature"), AD)
    profiles = SideTable.read(table_path(folder, "user_profile"), PROFILE)
    rows = table_path(folder, "raw_sample")
    others = ["ad_feature", "user_profile"]
    history: SideTable | ImpressionHistory = ImpressionHistory(rows, ads)
    if has_table(folder, "behavior_log"):
        history = read_histories(table_path(folder, "behavior_log"))
        others.append("behavior_log")
    joins = partial(join_tables, ads, profiles, history)
    return LogTables(rows, joins, tuple(table_path(folder, name) for name in others))


LOG = Log(
    name="taobao",
    title="Taobao ad display (raw_sample, ad_feature, user_profile, behavior_log)",
    about="Rows are impressions; the label is a click. An auction is the ads of the same user and time_stamp; "
    f"a bid is {BID_SHARE:g} of the item's price, which is cut at {HIGHEST_PRICE:,.0f}. Behaviour before the "
    "first day becomes the person's history; without that table, the ads that they were shown before do.",
    schema=LogSchema(
        "taobao",
        (
            Column("clk", {Role.LABEL}, Kind.FLAG),
            *(Column(name, {Role.PUBLIC}) for name in ("adgroup_id", "pid", "cate_id", "campaign_id", "brand")),
            Column("customer", {Role.PUBLIC, Role.ADVERTISER}),
            Column("price", {Role.PUBLIC}, Kind.REAL, buckets_per_doubling=2),
            Column("hour", {Role.PUBLIC}, Kind.HOUR, source="time_stamp"),
            Column("weekday", {Role.PUBLIC}, Kind.WEEKDAY, source="time_stamp"),
            *(Column(name, {Role.SENSITIVE}) for name in PERSON),
            Column(HISTORY, {Role.SENSITIVE}, Kind.SEQUENCE, vocabulary="cate_id"),
            Column(HISTORY_BRAND, {Role.SENSITIVE}, Kind.SEQUENCE, vocabulary="brand"),
            Column("user", {Role.USER}),
            Column("time_stamp", {Role.TIME}, Kind.WHOLE),
            Column("auction", {Role.AUCTION}),
            Column("bid", {Role.PRICE}, Kind.REAL),
            Column("nonclk", {Role.LEFT_OUT}, Kind.FLAG, why="1 - clk: it tells the label"),
        ),
        utc_offset_hours=8,
    ),
    layouts=(
        FileLayout(
            {
                "user": CellType.WHOLE,
                "time_stamp": CellType.WHOLE,
                "adgroup_id": CellType.WHOLE,
                "pid": CellType.TEXT,
                "nonclk": CellType.WHOLE,
                "clk": CellType.WHOLE,
            }
        ),
    ),
    split=LogSplit("chronological", {"train": "0.875", "test": "0.125"}),
    tables=_tables,
    derived_from=("user", "time_stamp", "adgroup_id"),
    published=(
        PublishedFigure("rows", 26_557_961),
        PublishedFigure("positive rate", 0.0514),
        PublishedFigure("users", 1_141_729),
        PublishedFigure("examples a user, mean", 26_557_961 / 1_141_729),
        PublishedFigure("candidates per auction, mean", 4),
    ),
)
