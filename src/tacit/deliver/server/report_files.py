"""Reports as files: CSV that spreadsheets can open safely, and Parquet; a line per row of the report.

Amounts are whole micros. Every line has the statement of its exact figures (unit, epsilon, delta, relation),
and in words that of its clicks and conversions.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tacit.deliver.server.advertiser_report import AdvertiserReport, EventFigures, Grouping, ReportRow, show_day
from tacit.deliver.server.rate_intervals import SUPPRESSION

if TYPE_CHECKING:
    import pyarrow as pa

EVENT_COLUMNS = {"": "int", "_low": "double", "_high": "double", "_rate": "double", "_rate_low": "double",
                 "_rate_high": "double", "_withheld": "text", "_statement": "text"}  # fmt: skip
COLUMNS = {
    "row": "text", "campaign": "int", "context": "text", "day": "text", "epoch": "int", "lane": "text",
    "price_micros": "int", "invoice": "int", "impressions": "int", "spend_micros": "int", "held_micros": "int",
    "invoiced_micros": "int", "unit": "text", "epsilon": "double", "delta": "double", "relation": "text",
    "reasons": "text",
    **{f"clicks{name}": kind for name, kind in EVENT_COLUMNS.items()},
    **{f"conversions{name}": kind for name, kind in EVENT_COLUMNS.items()},
}  # fmt: skip
"""What a line of a file has, and as what."""

_STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def report_records(report: AdvertiserReport, by: Grouping) -> Iterator[dict[str, Any]]:
    """A record per row, with all of `COLUMNS`."""
    for row in report.rows(by):
        promise = row.promise
        one = row.lines[0] if by is Grouping.LINE else None
        yield {
            "row": row.label,
            "campaign": row.campaign,
            "context": None if row.node is None else str(row.node),
            "day": row.day,
            "epoch": None if one is None else one.epoch,
            "lane": None if one is None else str(one.lane),
            "price_micros": None if one is None else one.price_micros,
            "invoice": None if one is None else one.invoice,
            "impressions": row.impressions,
            "spend_micros": row.spend_micros,
            "held_micros": row.held_micros,
            "invoiced_micros": row.invoiced_micros,
            "unit": promise.unit,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "relation": promise.relation,
            "reasons": _reasons(row),
            **_event_record("clicks", row.clicks),
            **_event_record("conversions", row.conversions),
        }


def _reasons(row: ReportRow) -> str:
    return "; ".join(f"{shown} x {reason}" for reason, shown, _ in row.reasons())


def _event_record(name: str, figures: EventFigures) -> dict[str, Any]:
    statement = "" if figures.promise is None else str(figures.promise)
    values: tuple[Any, ...] = (None,) * 6
    if figures.cell is not None:
        hits = figures.cell.hits_interval(figures.noise_sd)
        values = (round(figures.cell.hits), *hits, figures.rate, *(figures.interval or (0.0, 1.0)))
    return dict(
        zip((f"{name}{each}" for each in EVENT_COLUMNS), (*values, figures.withheld, statement), strict=True)
    )


def report_as_csv(report: AdvertiserReport, by: Grouping) -> bytes:
    """RFC 4180, in UTF-8. A text that a spreadsheet would take for a formula has an apostrophe before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for record in report_records(report, by):
        writer.writerow(_cell(record[name]) for name in COLUMNS)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """
    >>> _cell("=HYPERLINK(1)"), _cell(-3), _cell(None)
    ("'=HYPERLINK(1)", -3, '')
    """
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_STARTS_A_FORMULA) else value
    return "" if value is None else value


def report_as_parquet(report: AdvertiserReport, by: Grouping) -> bytes:
    """One table; its metadata says whose it is, of when, and which rates are withheld."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"int": pa.int64(), "double": pa.float64(), "text": pa.string()}
    about = {
        "advertiser": report.advertiser, "from": show_day(report.begin), "until": show_day(report.end),
        "by": str(by), "suppression": SUPPRESSION, "statement": report.whole.promise.as_json(),
    }  # fmt: skip
    schema: pa.Schema = pa.schema(
        [(name, kinds[kind]) for name, kind in COLUMNS.items()],
        metadata={"tacit.report": json.dumps(about, ensure_ascii=False)},
    )
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(report_records(report, by)), schema=schema), made)
    return made.getvalue()
