"""Conversions: clicks on the ads of several advertisers, some of whom share their conversions and some do not.

No published file has this form, so the log is always generated. The features are the platform's own, and public
towards the label, which is the advertiser's.
"""

from __future__ import annotations

from tacit.data.logs.definition import Log, PublishedFigure
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.splits import LogSplit
from tacit.schema.columns import Column, Kind, LogSchema, Role

FIELDS = tuple(f"f{number}" for number in range(1, 12))
SEQUENCES = ("sequence_topic", "sequence_item", "sequence_action")

LOG = Log(
    name="conversions",
    title="Conversions of several advertisers (synthetic only)",
    about="Rows are clicks; the label is a conversion; cart and engaged are auxiliary labels.",
    schema=LogSchema(
        "conversions",
        (
            Column("conversion", {Role.LABEL}, Kind.FLAG),
            Column("cart", {Role.AUXILIARY}, Kind.FLAG),
            Column("engaged", {Role.AUXILIARY}, Kind.FLAG),
            Column("topic", {Role.PUBLIC}),
            *(Column(name, {Role.PUBLIC}) for name in FIELDS),
            Column("sequence_topic", {Role.PUBLIC}, Kind.SEQUENCE, vocabulary="topic"),
            *(Column(name, {Role.PUBLIC}, Kind.SEQUENCE) for name in SEQUENCES if name != "sequence_topic"),
            Column("advertiser", {Role.ADVERTISER}),
            Column("user", {Role.USER}),
            Column("click_id", {Role.RECORD}),
            Column("time", {Role.TIME}, Kind.WHOLE),
        ),
    ),
    layouts=(
        FileLayout(
            {
                **dict.fromkeys(("click_id", "user", "time", "advertiser", "topic", *FIELDS), CellType.WHOLE),
                **dict.fromkeys(SEQUENCES, CellType.LIST),
                **dict.fromkeys(("conversion", "cart", "engaged"), CellType.WHOLE),
            }
        ),
    ),
    split=LogSplit("chronological", {"train": "0.8", "validation": "0.1", "test": "0.1"}),
    figures_from="asked for",
    published=(PublishedFigure("positive rate", 0.015),),
)
