"""A log that tacit can read: its columns, its layouts on disk, its rules and its published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from tacit.data.reading.layout import Layout, Raw
from tacit.data.splits import Split
from tacit.schema.columns import Kind, LogSchema, Role

MOMENTS = frozenset({Kind.HOUR, Kind.WEEKDAY})
Derive = Callable[[pa.RecordBatch], pa.RecordBatch]  # adds columns; rows stay as they are


@dataclass(frozen=True)
class Keep:
    """A rule for which rows are examples at all: those where `column` is `value`."""

    column: str
    value: int
    words: str


@dataclass(frozen=True)
class Figure:
    """A published figure, under the name that `tacit data describe` gives to the same figure of a file."""

    name: str
    value: float


@dataclass(frozen=True)
class Tables:
    """Where a log's rows are, and what is joined to them."""

    rows: Path
    derive: Derive
    joined: tuple[Path, ...] = ()


def no_more(path: Path) -> Tables:
    """A log that is one file, with nothing to derive."""
    return Tables(path, lambda batch: batch)


@dataclass(frozen=True)
class Log:
    """One log. `derived_from` names the raw columns that `tables(path).derive` needs."""

    name: str
    title: str
    about: str
    schema: LogSchema
    layouts: tuple[Layout, ...]
    split: Split
    keep: Keep | None = None
    tables: Callable[[Path], Tables] = no_more
    derived_from: Sequence[str] = ()
    published: Sequence[Figure] = field(default=())
    figures_from: str = "published"  # what stands over those figures
    shares: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # of all rows: a column and its value
    delay: Callable[[pa.RecordBatch], pa.Array] | None = None  # seconds from the row to its conversion, or null
    delay_from: Sequence[str] = ()  # the raw columns that `delay` needs
    public_bins: int = 100_000
    sensitive_bins: int = 50_000

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """What has to be read of a file, in the order of its layout."""
        needed = {column.source for column in self.schema.columns if column.is_used} | set(self.derived_from)
        if self.keep is not None:
            needed.add(self.keep.column)
        return tuple(name for name in self.layouts[0].columns if name in needed)

    def as_read(self, layout: Layout) -> Layout:
        """The layout, with whole numbers read as what their columns mean: flags, moments, ids of any length."""
        return replace(layout, columns={name: self._meant(name, raw) for name, raw in layout.columns.items()})

    def _meant(self, name: str, raw: Raw) -> Raw:
        if raw is not Raw.WHOLE:
            return raw
        uses = [column for column in self.schema.columns if column.is_used and column.source == name]
        if any(Role.TIME in column.roles or column.kind in MOMENTS for column in uses):
            return Raw.TIME
        counted = {self.keep.column if self.keep else None, *(column for column, _ in self.shares.values())}
        if name in counted or any(column.kind is Kind.FLAG for column in uses):
            return Raw.FLAG
        computed = {*self.derived_from, *self.delay_from}
        if uses and name not in computed and all(column.kind is Kind.CATEGORY for column in uses):
            return Raw.ID
        return raw

    def published_figure(self, name: str) -> float | None:
        return next((figure.value for figure in self.published if figure.name == name), None)

    @property
    def optional_columns(self) -> frozenset[str]:
        return frozenset(column.source for column in self.schema.columns if column.optional)
