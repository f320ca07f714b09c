"""Statistics of a log in one streaming pass: rates, units, delays, and how skewed each field is.

They are computed under the names of the published figures, so that a generated log can be compared with a
published one. All figures are exact, so they are for the data's owner: publishing one is a release with a
cost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit import expect
from tacit.data.encoding.fingerprints import (
    Fingerprints,
    column_fingerprints,
    key_fingerprints,
    missing_fingerprint,
)
from tacit.data.logs.definition import Log
from tacit.data.reading.bad_rows import BadRows
from tacit.data.reading.reader import ExampleBlock, LogReader
from tacit.data.value_counts import (
    MOST_HELD,
    DiskTallies,
    ValueCounts,
    count_values,
    numbers_from_bits,
    open_tallies,
    sortable_bits,
)
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.progress import Count, no_count
from tacit.schema.columns import Column, Kind, Role

UNITS = {
    "user": (Role.USER,),
    "user x advertiser": (Role.USER, Role.ADVERTISER),
    "user x publisher": (Role.USER, Role.PUBLISHER),
}
DELAYS = (50, 75, 90)
TOP = 20
DELAY = "delay"
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class FieldFigures:
    """One feature: its number of distinct values, how skewed they are, and how often it is missing."""

    name: str
    role: str
    values: int
    top_share: float
    top_twenty_share: float
    gini: float  # 0: all values come equally often; near 1: few take nearly everything
    missing: float


@dataclass(frozen=True)
class LogDescription:
    """The statistics of one log file, beside the published ones."""

    log: Log
    synthetic: bool
    figures: dict[str, float]
    fields: tuple[FieldFigures, ...]
    bad_rows: BadRows

    __repr__ = brief_repr

    def published_figure(self, name: str) -> float | None:
        return self.log.published_figure(name)

    def as_json(self) -> dict[str, Any]:
        return {
            "log": self.log.name,
            "synthetic": self.synthetic,
            "bad_rows": self.bad_rows.as_json(),
            "figures": [
                {"name": name, "value": value, "published": self.published_figure(name)}
                for name, value in self.figures.items()
            ],
            "fields": [
                {
                    **vars(each),
                    "published_values": self.published_figure(f"{each.name}: values"),
                    "published_missing": self.published_figure(f"{each.name}: missing"),
                }
                for each in self.fields
            ],
        }


def describe(reader: LogReader, progress: Count = no_count, *, most_held: int = MOST_HELD) -> LogDescription:
    """The statistics of a log, in one pass over its file, and a second where only some rows are examples.

    The log's delays are read too. All figures are exact. Memory does not grow with the file: at most
    `most_held` values of fields are held, and as many of units and delays; the others wait in temporary files.
    """
    expect.kind("reader", reader, LogReader)
    with open_tallies(most_held) as fields_so_far, open_tallies(most_held) as units_so_far:
        so_far = _SoFar(fields_so_far, units_so_far)
        for block in reader.stream(lambda examples: _block(reader, examples), progress):
            so_far.add(block)
        if not so_far.rows:
            raise BadInput(reader.no_examples)
        figures = dict(_figures(reader, so_far))
        fields = tuple(
            _field_figures(column, so_far)
            for column in reader.log.schema.columns
            if column.is_feature and column.name in so_far.fields
        )
    if reader.log.keep is not None:
        figures.update(_of_all_rows(reader, progress, most_held))
    for each in fields:  # a field's skew stands among the figures where it was published
        skews = {f"{each.name}: top 20": each.top_twenty_share, f"{each.name}: gini": each.gini}
        figures.update(
            {name: skew for name, skew in skews.items() if reader.log.published_figure(name) is not None}
        )
    return LogDescription(reader.log, reader.synthetic, figures, fields, reader.bad_rows)


def with_delay_columns(log: Log) -> Log:
    """The log, reading also the columns that only its delays need."""
    return replace(log, derived_from=(*log.derived_from, *log.delay_from))


@dataclass(frozen=True)
class _Block:
    rows: int
    positives: int
    fields: dict[str, ValueCounts]
    missing: dict[str, int]
    units: dict[str, ValueCounts]


@dataclass
class _SoFar:
    fields: DiskTallies
    units: DiskTallies  # and the delays
    rows: int = 0
    positives: int = 0
    missing: Counter[str] = field(default_factory=Counter)

    def add(self, block: _Block) -> None:
        self.rows += block.rows
        self.positives += block.positives
        self.missing.update(block.missing)
        for so_far, found in ((self.fields, block.fields), (self.units, block.units)):
            for name, counts in found.items():
                so_far.add(name, counts)


def _block(reader: LogReader, examples: ExampleBlock) -> _Block:
    rows, schema = examples.rows, reader.log.schema
    fields, missing = {}, {}
    for column in schema.columns:
        if column.is_feature and column.source in rows.schema.names:
            array = rows.column(column.source)
            flat = array.flatten() if column.kind is Kind.SEQUENCE else array
            tokens = column_fingerprints(column, flat, schema.utc_offset_hours)
            there = tokens != missing_fingerprint(column.vocabulary)
            fields[column.name] = count_values(tokens[there])
            missing[column.name] = len(tokens) - int(there.sum())
    units = {}
    for name, roles in {**UNITS, "auction": (Role.AUCTION,)}.items():
        columns = [schema.only_column_with(role) for role in roles]
        present = [each for each in columns if each is not None and each.source in rows.schema.names]
        if len(present) == len(roles):
            units[name] = count_values(
                _joint([key_fingerprints(rows.column(each.source), each.name) for each in present])
            )
    units[DELAY] = count_values(sortable_bits(_delays(reader.log, rows)))
    label = rows.column(schema.label.source)
    return _Block(
        rows.num_rows,
        pc.sum(pc.greater(label, 0)).as_py() or 0,
        fields,
        missing,
        units,
    )


def _joint(each: list[Fingerprints]) -> Fingerprints:
    joint = each[0]
    for other in each[1:]:
        joint = (joint ^ (other >> np.uint64(1))) * GOLDEN
    return joint


def _delays(log: Log, rows: pa.RecordBatch) -> NDArray[np.float64]:
    if log.delay is None:
        return np.empty(0)
    delays: NDArray[np.float64] = (
        pc.drop_null(log.delay(rows)).to_numpy(zero_copy_only=False).astype(np.float64)
    )
    return delays


def _figures(reader: LogReader, so_far: _SoFar) -> Iterator[tuple[str, float]]:
    yield "rows", so_far.rows
    if reader.rows_read != so_far.rows:
        yield "rows read", reader.rows_read
    yield "positive rate", so_far.positives / max(1, so_far.rows)
    for name in UNITS:
        if name in so_far.units:
            sizes = so_far.units.sizes(name)
            yield f"{name}s" if name == "user" else name, len(sizes)
            yield f"examples a {name}, mean", sizes.mean
            yield f"examples a {name}, median", sizes.quantile(0.5)
            yield f"examples a {name}, 99%", sizes.quantile(0.99)
            yield f"{name}: share with exactly one", sizes.share_from(1, 1)
    if "auction" in so_far.units:
        sizes = so_far.units.sizes("auction")
        yield "auctions", len(sizes)
        yield "candidates per auction, mean", sizes.mean
        yield "auctions of ten or more candidates, share", sizes.share_from(10)
    for percent, seconds in zip(DELAYS, _percentiles(so_far.units, DELAYS), strict=False):
        yield f"delay in hours, {percent}%", seconds / 3600


def _percentiles(so_far: DiskTallies, percents: Sequence[int]) -> Iterator[float]:
    """Percentiles of the delays, as NumPy computes them; none where there are no delays."""
    total = sum(int(counts.sum()) for _, counts in so_far.iterate_sorted(DELAY))
    if not total:
        return
    places = [percent / 100 * (total - 1) for percent in percents]
    wanted = {edge: 0.0 for place in places for edge in (math.floor(place), math.ceil(place))}
    passed = 0
    for values, counts in so_far.iterate_sorted(DELAY):
        ends = passed + np.cumsum(counts)
        for edge in wanted:
            if len(ends) and passed <= edge < ends[-1]:
                wanted[edge] = float(numbers_from_bits(values)[np.searchsorted(ends, edge, side="right")])
        passed = int(ends[-1]) if len(ends) else passed
    for place in places:
        below, above = wanted[math.floor(place)], wanted[math.ceil(place)]
        yield below + (above - below) * (place - math.floor(place))


def _of_all_rows(reader: LogReader, progress: Count, most_held: int) -> Iterator[tuple[str, float]]:
    """Figures of all rows, by a second pass, where only some of them are examples."""
    log = replace(
        reader.log,
        keep=None,
        derived_from=(*reader.log.derived_from, *(c for c, _ in reader.log.shares.values())),
    )
    again = LogReader(log, reader.path, bad_rows_limit=reader.bad_rows.limit)
    user = log.schema.only_column_with(Role.USER)
    counts = dict.fromkeys(log.shares, 0)

    def look(examples: ExampleBlock) -> tuple[ValueCounts | None, dict[str, int]]:
        rows = examples.rows
        found = {
            name: pc.sum(pc.equal(rows.column(column), value)).as_py() or 0
            for name, (column, value) in log.shares.items()
        }
        return None if user is None else count_values(
            key_fingerprints(rows.column(user.source), user.name)
        ), found

    with open_tallies(most_held) as users:
        for people, found in again.stream(look, progress):
            if people is not None:
                users.add("user", people)
            for name, count in found.items():
                counts[name] += count
        if user is not None:
            sizes = users.sizes("user")
            yield "users of all rows", len(sizes)
            yield "rows per user, mean", sizes.mean
            yield "rows per user, median", sizes.quantile(0.5)
            yield "users with exactly one row, share", sizes.share_from(1, 1)
    for name, count in counts.items():
        yield name, count / max(1, again.rows_read)


def _field_figures(column: Column, so_far: _SoFar) -> FieldFigures:
    sizes, missing = so_far.fields.sizes(column.name), so_far.missing[column.name]
    present = max(1, sizes.total)
    return FieldFigures(
        name=column.name,
        role=str(Role.PUBLIC if Role.PUBLIC in column.roles else Role.SENSITIVE),
        values=len(sizes),
        top_share=sizes.top(1) / present,
        top_twenty_share=sizes.top(TOP) / present,
        gini=sizes.gini,
        missing=missing / max(1, sizes.total + missing),
    )
