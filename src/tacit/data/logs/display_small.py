"""A small display log for studies: ten public and ten sensitive categories, few enough values to be learned.

No published file has this form, so the log is always generated.
"""

from __future__ import annotations

from tacit.data.logs.definition import Log, PublishedFigure
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.splits import LogSplit
from tacit.schema.columns import Column, Kind, LogSchema, Role

PUBLIC = tuple(f"P{number}" for number in range(1, 11))
SENSITIVE = tuple(f"S{number}" for number in range(1, 11))

LOG = Log(
    name="display-small",
    title="A small display log for studies (synthetic only)",
    about="Rows are impressions; the label is a click. P1 to P10 are public, S1 to S10 sensitive.",
    schema=LogSchema(
        "display-small",
        (
            Column("label", {Role.LABEL}, Kind.FLAG),
            *(Column(name, {Role.PUBLIC}) for name in PUBLIC),
            *(Column(name, {Role.SENSITIVE}) for name in SENSITIVE),
        ),
    ),
    layouts=(FileLayout({"label": CellType.WHOLE, **dict.fromkeys((*PUBLIC, *SENSITIVE), CellType.TEXT)}),),
    split=LogSplit("random", {"train": "0.8", "test": "0.2"}),
    figures_from="asked for",
    published=(PublishedFigure("positive rate", 0.2562),),
)
