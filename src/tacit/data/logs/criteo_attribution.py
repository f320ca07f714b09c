"""Criteo Attribution: a month of impressions, of which the clicks are the examples.

The task is that of the evaluation of label DP by privacy units (Ghazi, Google Research): the examples are
clicks; the features are the campaign, nine contextual categories and the cost; the label is a conversion that
is attributed to this click as the last touch. The file does not have that label ready. Ours is

    conversion = 1  and  attribution = 1  and  click_pos = click_nb - 1

(an attributed conversion whose last click this is). Attributed rows alone are 7.45% of clicks, more than the
6.74% that the evaluation reports for its label, so its rule is narrower than attribution; that it is exactly
this one was not published.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.logs.definition import KeepRule, Log, LogTables, PublishedFigure
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.splits import LogSplit
from tacit.schema.columns import Column, Kind, LogSchema, Role

CONTEXTS = tuple(f"cat{number}" for number in range(1, 10))
LEFT_OUT = {
    "conversion": "an outcome: the label is made of it",
    "conversion_timestamp": "an outcome",
    "conversion_id": "an outcome",
    "attribution": "an outcome: the label is made of it",
    "click_pos": "known only after the conversion",
    "click_nb": "known only after the conversion",
    "cpo": "paid only for attributed conversions",
    "time_since_last_click": "not among the features of the task",
}
RAW = {
    **dict.fromkeys(
        ("timestamp", "uid", "campaign", "conversion", "conversion_timestamp", "conversion_id", "attribution"),
        CellType.WHOLE,
    ),
    **dict.fromkeys(("click", "click_pos", "click_nb"), CellType.WHOLE),
    **dict.fromkeys(("cost", "cpo"), CellType.REAL),
    **dict.fromkeys(("time_since_last_click", *CONTEXTS, "publisher"), CellType.WHOLE),
}
CARDINALITIES = dict(zip(CONTEXTS, (9, 70, 1829, 21, 51, 30, 57196, 11, 30), strict=True))


def add_last_touch_label(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the label, `last_touch_conversion`."""
    is_last = pc.equal(rows.column("click_pos"), pc.subtract(rows.column("click_nb"), 1))
    attributed = pc.and_(pc.equal(rows.column("conversion"), 1), pc.equal(rows.column("attribution"), 1))
    label = pc.fill_null(pc.and_(attributed, is_last), False).cast(pa.int64())
    return rows.append_column("last_touch_conversion", label)


def conversion_delay(rows: pa.RecordBatch) -> pa.Array:
    """Seconds from the click to its conversion."""
    return pc.subtract(rows.column("conversion_timestamp"), rows.column("timestamp"))


LOG = Log(
    name="criteo-attribution",
    title="Criteo Attribution Modeling for Bidding (criteo_attribution_dataset.tsv.gz)",
    about="Rows are impressions; the examples are the clicks, in the order of time. The label is a conversion "
    "attributed to this click as the last touch: conversion = 1, attribution = 1 and click_pos = click_nb - 1.",
    schema=LogSchema(
        "criteo-attribution",
        (
            Column("last_touch_conversion", {Role.LABEL}, Kind.FLAG),
            Column("campaign", {Role.PUBLIC, Role.ADVERTISER}),
            *(Column(name, {Role.PUBLIC}) for name in CONTEXTS),
            Column("cost", {Role.PUBLIC, Role.PRICE}, Kind.REAL, buckets_per_doubling=2),
            Column("uid", {Role.USER}),
            Column("publisher", {Role.PUBLISHER}, optional=True, why="only the generated log has it"),
            Column("timestamp", {Role.TIME}, Kind.WHOLE),
            *(Column(name, {Role.LEFT_OUT}, Kind.WHOLE, why=why) for name, why in LEFT_OUT.items()),
        ),
    ),
    layouts=(FileLayout(RAW, separator="\t", quoted=False, missing=("-1", "")),),
    split=LogSplit("chronological", {"train": "0.8", "validation": "0.1", "test": "0.1"}),
    keep=KeepRule("click", 1, "rows that are clicks"),
    tables=lambda path: LogTables(path, add_last_touch_label),
    derived_from=("conversion", "attribution", "click_pos", "click_nb"),
    shares={
        "clicks, share of rows": ("click", 1),
        "conversions, share of rows": ("conversion", 1),
        "attributed, share of rows": ("attribution", 1),
    },
    delay=conversion_delay,
    delay_from=("conversion_timestamp",),
    published=(
        PublishedFigure("rows", 5_947_563),
        PublishedFigure("rows read", 16_468_027),
        PublishedFigure("positive rate", 0.0674),
        PublishedFigure("campaign: values", 675),
        PublishedFigure("users of all rows", 6_142_256),
        PublishedFigure("rows per user, mean", 2.68),
        PublishedFigure("rows per user, median", 1),
        PublishedFigure("users with exactly one row, share", 0.517),
        PublishedFigure("clicks, share of rows", 0.3612),
        PublishedFigure("conversions, share of rows", 0.0490),
        PublishedFigure("attributed, share of rows", 0.0269),
        PublishedFigure("campaign: top 20", 0.30),
        PublishedFigure("campaign: gini", 0.66),
        PublishedFigure("delay in hours, 50%", 89.9),
        PublishedFigure("delay in hours, 75%", 287),
        PublishedFigure("delay in hours, 90%", 504),
        *(PublishedFigure(f"{name}: values", count) for name, count in CARDINALITIES.items()),
    ),
)
