"""Criteo Sponsored Search: clicks on product ads, and whether a sale followed.

As in the study of semi-sensitive features (arXiv 2401.15246): the label is Sale; device, audience and user are
sensitive; everything else is public, but for the outcome columns and product_price, which are left out. The
click's time becomes its hour and weekday, the clicks of the week their log2. Rows are not in the order of time.
"""

from __future__ import annotations

from types import MappingProxyType

from tacit.data.logs.definition import Log, PublishedFigure
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.splits import LogSplit
from tacit.schema.columns import Column, Kind, LogSchema, Role

LEVELS = tuple(f"product_category{level}" for level in range(1, 8))
RAW = {
    "Sale": CellType.WHOLE,
    "SalesAmountInEuro": CellType.REAL,
    "time_delay_for_conversion": CellType.WHOLE,
    "click_timestamp": CellType.WHOLE,
    "nb_clicks_1week": CellType.WHOLE,
    "product_price": CellType.REAL,
    "product_age_group": CellType.TEXT,
    "device_type": CellType.TEXT,
    "audience_id": CellType.TEXT,
    "product_gender": CellType.TEXT,
    "product_brand": CellType.TEXT,
    **dict.fromkeys(LEVELS, CellType.TEXT),
    "product_country": CellType.TEXT,
    "product_id": CellType.TEXT,
    "product_title": CellType.TEXT,
    "partner_id": CellType.TEXT,
    "user_id": CellType.TEXT,
}
PUBLIC = ("product_age_group", "product_gender", "product_brand", *LEVELS, "product_country", "product_id")

LOG = Log(
    name="criteo-search",
    title="Criteo Sponsored Search Conversion Log (CriteoSearchData)",
    about="Rows are clicks; the label is a sale. Device, audience and user are sensitive. Read as published "
    "(tabs, no header) or as the comma-separated extracts by partner that circulate.",
    schema=LogSchema(
        "criteo-search",
        (
            Column("Sale", {Role.LABEL}, Kind.FLAG),
            Column("click_hour", {Role.PUBLIC}, Kind.HOUR, source="click_timestamp"),
            Column("click_weekday", {Role.PUBLIC}, Kind.WEEKDAY, source="click_timestamp"),
            Column("nb_clicks_1week", {Role.PUBLIC}, Kind.WHOLE),
            *(Column(name, {Role.PUBLIC}) for name in PUBLIC),
            Column("product_title", {Role.PUBLIC}),
            Column("partner_id", {Role.PUBLIC, Role.ADVERTISER}),
            Column("device_type", {Role.SENSITIVE}),
            Column("audience_id", {Role.SENSITIVE}),
            Column("user_id", {Role.SENSITIVE, Role.USER}),
            Column("time", {Role.TIME}, Kind.WHOLE, source="click_timestamp"),
            Column("SalesAmountInEuro", {Role.LEFT_OUT}, Kind.REAL, why="an outcome"),
            Column("time_delay_for_conversion", {Role.LEFT_OUT}, Kind.WHOLE, why="an outcome"),
            Column("product_price", {Role.LEFT_OUT}, Kind.REAL, why="0 without a sale: it tells the label"),
        ),
    ),
    layouts=(
        FileLayout(RAW, separator="\t", header=False, quoted=False, missing=("-1", "")),
        FileLayout(
            RAW,
            missing=("-1", "", "-1.0"),
            aliases=MappingProxyType({f"prod_category{level}": name for level, name in enumerate(LEVELS, 1)}),
        ),
    ),
    delay=lambda rows: rows.column("time_delay_for_conversion"),
    delay_from=("time_delay_for_conversion",),
    split=LogSplit("random", {"train": "0.8", "test": "0.2"}),
    published=(
        PublishedFigure("rows", 15_995_634),
        PublishedFigure("positive rate", 0.108),
        PublishedFigure("partner_id: values", 313),
    ),
)
