"""What a log looks like in figures, computed over a stream, so that a generated one can be held to a published
one.

These are exact figures of the data: for its owner's eyes. To publish one of them is a release, with a price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.encoding.counting import Tally
from tacit.data.encoding.tokens import Fingerprints, fingerprints, keys, missing_fingerprint
from tacit.data.log import Log
from tacit.data.reading.bad_rows import BadRows
from tacit.data.reading.stream import Examples, LogReader
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, Role

UNITS = {
    "user": (Role.USER,),
    "user x advertiser": (Role.USER, Role.ADVERTISER),
    "user x publisher": (Role.USER, Role.PUBLISHER),
}
DELAYS = (50, 75, 90)
TOP = 20
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class FieldFigures:
    """One feature: how many values it shows, how unevenly they come, and how often it is missing."""

    name: str
    role: str
    values: int
    top_share: float
    top_twenty_share: float
    gini: float  # 0: all values come equally often; near 1: few take nearly everything
    missing: float


@dataclass(frozen=True)
class Description:
    log: Log
    synthetic: bool
    figures: dict[str, float]
    fields: tuple[FieldFigures, ...]
    bad_rows: BadRows

    def published(self, name: str) -> float | None:
        return self.log.published_figure(name)

    def as_json(self) -> dict[str, Any]:
        return {
            "log": self.log.name,
            "synthetic": self.synthetic,
            "bad_rows": self.bad_rows.as_json(),
            "figures": [
                {"name": name, "value": value, "published": self.published(name)}
                for name, value in self.figures.items()
            ],
            "fields": [
                {
                    **vars(each),
                    "published_values": self.published(f"{each.name}: values"),
                    "published_missing": self.published(f"{each.name}: missing"),
                }
                for each in self.fields
            ],
        }


def describe(reader: LogReader, progress: Callable[[int], None] = lambda _: None) -> Description:
    """One pass over the file. The log's delays are read too, if it has any."""
    so_far = _SoFar()
    for block in reader.stream(lambda examples: _block(reader, examples), progress):
        so_far.add(block)
    if not so_far.rows:
        raise BadInput(reader.no_examples)
    figures = dict(_figures(reader, so_far))
    if reader.log.keep is not None:
        figures.update(_of_all_rows(reader, progress))
    fields = tuple(
        _field_figures(column, so_far.fields[column.name])
        for column in reader.log.schema.columns
        if column.is_feature and column.name in so_far.fields
    )
    for each in fields:  # a field's skew stands among the figures where it was published
        skews = {f"{each.name}: top 20": each.top_twenty_share, f"{each.name}: gini": each.gini}
        figures.update(
            {name: skew for name, skew in skews.items() if reader.log.published_figure(name) is not None}
        )
    return Description(reader.log, reader.synthetic, figures, fields, reader.bad_rows)


def to_describe(log: Log) -> Log:
    """The log with what only a description reads."""
    return replace(log, derived_from=(*log.derived_from, *log.delay_from))


@dataclass(frozen=True)
class _Block:
    rows: int
    positives: int
    fields: dict[str, Fingerprints]
    units: dict[str, Fingerprints]
    delays: NDArray[np.float64]


@dataclass
class _SoFar:
    rows: int = 0
    positives: int = 0
    fields: dict[str, Tally] = field(default_factory=dict)
    units: dict[str, Tally] = field(default_factory=dict)
    delays: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, block: _Block) -> None:
        self.rows += block.rows
        self.positives += block.positives
        for tallies, found in ((self.fields, block.fields), (self.units, block.units)):
            for name, tokens in found.items():
                tallies.setdefault(name, Tally()).add(tokens)
        self.delays.append(block.delays)


def _block(reader: LogReader, examples: Examples) -> _Block:
    rows, schema = examples.rows, reader.log.schema
    fields = {}
    for column in schema.columns:
        if column.is_feature and column.source in rows.schema.names:
            array = rows.column(column.source)
            flat = array.flatten() if column.kind is Kind.SEQUENCE else array
            fields[column.name] = fingerprints(column, flat, schema.utc_offset_hours)
    units = {}
    for name, roles in {**UNITS, "auction": (Role.AUCTION,)}.items():
        columns = [schema.the(role) for role in roles]
        present = [each for each in columns if each is not None and each.source in rows.schema.names]
        if len(present) == len(roles):
            units[name] = _joint([keys(rows.column(each.source), each.name) for each in present])
    label = rows.column(schema.label.source)
    return _Block(
        rows.num_rows,
        pc.sum(pc.greater(label, 0)).as_py() or 0,
        fields,
        units,
        _delays(reader.log, rows),
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
            counts = so_far.units[name].counts
            yield f"{name}s" if name == "user" else name, len(counts)
            yield f"examples a {name}, mean", float(counts.mean())
            yield f"examples a {name}, median", float(np.median(counts))
            yield f"examples a {name}, 99%", float(np.quantile(counts, 0.99))
            yield f"{name}: share with exactly one", float((counts == 1).mean())
    if "auction" in so_far.units:
        counts = so_far.units["auction"].counts
        yield "auctions", len(counts)
        yield "candidates an auction, mean", float(counts.mean())
        yield "auctions of ten or more candidates, share", float((counts >= 10).mean())
    delays = np.concatenate(so_far.delays) if so_far.delays else np.empty(0)
    if len(delays):
        for percent in DELAYS:
            yield f"delay in hours, {percent}%", float(np.percentile(delays, percent)) / 3600


def _of_all_rows(reader: LogReader, progress: Callable[[int], None]) -> Iterator[tuple[str, float]]:
    """Where only some rows are examples: figures of all of them, by a second pass."""
    log = replace(
        reader.log,
        keep=None,
        derived_from=(*reader.log.derived_from, *(c for c, _ in reader.log.shares.values())),
    )
    again = LogReader(log, reader.path, bad_rows_limit=reader.bad_rows.limit)
    user, users = log.schema.the(Role.USER), Tally()
    counts = dict.fromkeys(log.shares, 0)

    def look(examples: Examples) -> tuple[Fingerprints | None, dict[str, int]]:
        rows = examples.rows
        found = {
            name: pc.sum(pc.equal(rows.column(column), value)).as_py() or 0
            for name, (column, value) in log.shares.items()
        }
        return None if user is None else keys(rows.column(user.source), user.name), found

    for tokens, found in again.stream(look, progress):
        if tokens is not None:
            users.add(tokens)
        for name, count in found.items():
            counts[name] += count
    if user is not None:
        yield "users of all rows", len(users.counts)
        yield "rows a user, mean", float(users.counts.mean())
        yield "rows a user, median", float(np.median(users.counts))
        yield "users with exactly one row, share", float((users.counts == 1).mean())
    for name, count in counts.items():
        yield name, count / max(1, again.rows_read)


def _field_figures(column: Column, tally: Tally) -> FieldFigures:
    missing = tally.values == missing_fingerprint(column.vocabulary)
    absent = int(tally.counts[missing].sum())
    counts = np.sort(tally.counts[~missing])[::-1]
    present = max(1, int(counts.sum()))
    whole = max(1, int(tally.counts.sum()))
    return FieldFigures(
        name=column.name,
        role=str(Role.PUBLIC if Role.PUBLIC in column.roles else Role.SENSITIVE),
        values=len(counts),
        top_share=float(counts[:1].sum()) / present,
        top_twenty_share=float(counts[:TOP].sum()) / present,
        gini=_gini(counts),
        missing=absent / whole,
    )


def _gini(falling: NDArray[np.int64]) -> float:
    size, total = len(falling), falling.sum()
    if not total:
        return 0.0
    weights = np.arange(size - 1, -size - 1, -2, dtype=np.float64)  # largest first
    return float((weights * falling).sum() / (size * total))
