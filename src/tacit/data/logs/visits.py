"""Visits: who was where, when, and what kind of place it was; the stand-in for a trace of mobile searches.

Every row is a visit, so every label is 1: this log holds positives only. Any file with the columns user, place
(or venue_id), category_path (`Parent>Child`), latitude, longitude and time (seconds since the epoch) or
hour_of_week can be read. Made from a time, the hour of the week runs from 0 (Monday midnight, UTC) to 167; a
file's own is taken as it counts them, from 0 or from 1. The time is public, since whoever answers a request
knows when it came; the place, what kind it is and its coordinates are the person's.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.logs.definition import Log, LogTables, PublishedFigure
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.splits import LogSplit
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, LogSchema, Role

HOUR, WEEK, MONDAY = 3600, 168, 72  # the epoch began on a Thursday, 72 hours after a Monday midnight


def with_contexts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the label, the first and the last step of the category path, and the hour of the week."""
    path = rows.column("category_path")
    if pa.types.is_integer(path.type):
        path = path.cast(pa.string())
    added = {
        "visited": pa.array(np.ones(rows.num_rows, dtype=np.int64)),
        "category_root": pc.replace_substring_regex(path, "(?s)>.*$", "").cast(pa.binary()),
        "category": pc.replace_substring_regex(path, "(?s)^.*>", "").cast(pa.binary()),
    }
    if "hour_of_week" not in rows.schema.names:
        if "time" not in rows.schema.names:
            raise BadInput("visits: expected a column time or hour_of_week, got neither")
        times = rows.column("time")
        hours = pc.fill_null(times, 0).to_numpy(zero_copy_only=False) // HOUR
        missing = times.is_null().to_numpy(zero_copy_only=False)
        added["hour_of_week"] = pa.array((hours + MONDAY) % WEEK, mask=missing)
    for name, column in added.items():
        rows = rows.append_column(name, column)
    return rows


def _tables(path: Path) -> LogTables:
    return LogTables(path, with_contexts)


LOG = Log(
    name="visits",
    title="Location-aware visits",
    about="Rows are visits to places: a log of positives only, with the context that the person was in.",
    schema=LogSchema(
        "visits",
        (
            Column("visited", {Role.LABEL}, Kind.FLAG),
            Column("place", {Role.SENSITIVE}),
            Column("category", {Role.SENSITIVE}),
            Column("category_root", {Role.SENSITIVE}),
            Column("hour_of_week", {Role.PUBLIC}, between=(0, 168), optional=True),
            Column("user", {Role.USER}),
            Column("time", {Role.TIME}, Kind.WHOLE, optional=True),
            Column("latitude", {Role.LATITUDE}, Kind.REAL, why="as sensitive as the place"),
            Column("longitude", {Role.LONGITUDE}, Kind.REAL, why="as sensitive as the place"),
        ),
    ),
    layouts=(
        FileLayout(
            {
                "user": CellType.TEXT,
                "time": CellType.WHOLE,
                "hour_of_week": CellType.WHOLE,
                "place": CellType.TEXT,
                "category_path": CellType.TEXT,
                "latitude": CellType.REAL,
                "longitude": CellType.REAL,
            },
            aliases=MappingProxyType({"venue_id": "place"}),
        ),
    ),
    split=LogSplit("chronological", {"train": "0.9", "test": "0.1"}),
    tables=_tables,
    derived_from=("category_path", "time", "hour_of_week"),
    figures_from="a sample",
    published=(
        PublishedFigure("rows", 105_961),
        PublishedFigure("users", 3_785),
        PublishedFigure("place: values", 3_628),
    ),
)
