"""A log that tacit can read: its columns, its layouts on disk, its rules and its published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tacit.data.reading.layout import Layout
from tacit.data.splits import Split
from tacit.schema.columns import LogSchema

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

    def published_figure(self, name: str) -> float | None:
        return next((figure.value for figure in self.published if figure.name == name), None)

    @property
    def optional_columns(self) -> frozenset[str]:
        return frozenset(column.source for column in self.schema.columns if column.optional)
