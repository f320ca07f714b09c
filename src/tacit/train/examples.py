"""The examples that a model learns from or predicts for: some rows of an encoded log, and whose they are.

Units of a promise (users, windows of time) are found by public keys alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Ids
from tacit.data.columns import Columns
from tacit.data.encoding.vocabulary import VocabularySelection
from tacit.data.splits import RowSet
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.privacy.allocation import unit_ids
from tacit.privacy.units import Unit, UnitKind, Window
from tacit.schema.columns import Kind, Role

Places = NDArray[np.int64]
"""Of examples, among those that are meant; `Examples.rows` has their rows in the log."""

EVERYTHING = "everything"
CHUNK = 2**18


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model's tables: the number of fields and of table rows, public and sensitive."""

    public_fields: int
    sensitive_fields: int
    public_rows: int
    sensitive_rows: int


@dataclass(frozen=True, eq=False)
class EventHistory:
    """What each row's person did before, as ids of the public table: those that a public field reads too."""

    offsets: NDArray[np.int64]  # (rows of the log + 1,)
    ids: Ids
    field: int  # the place of the public field with the same values

    def last(self, rows: NDArray[np.int64], most: int) -> tuple[Ids, NDArray[np.int64]]:
        """The last `most` events of each of these rows, oldest first and one row after the other; and for each
        event, to which of the rows it belongs."""
        starts, ends = np.asarray(self.offsets).take(rows), np.asarray(self.offsets).take(rows + 1)
        starts = np.maximum(starts, ends - most)
        sizes = ends - starts
        of = np.repeat(np.arange(len(rows)), sizes)
        within = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.asarray(self.ids).take(starts[of] + within), of


@dataclass(frozen=True, eq=False)
class Examples:
    """Encoded features of all rows of a log, and which of them are meant.

    `public` and `sensitive` may be memory-mapped: only what a batch asks for is read. `keys` holds whole
    columns too (user, time, ...), `public_keys` names those that the guarantee does not protect.
    """

    public: Ids  # (rows of the log, public fields)
    sensitive: Ids  # (rows of the log, sensitive fields)
    sizes: Sizes
    at: RowSet
    label: NDArray[Any] | None = None
    keys: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    public_keys: frozenset[str] = frozenset()
    synthetic: bool = False
    selection: VocabularySelection | None = None
    encoder_digest: str = ""
    histories: Mapping[str, EventHistory] = field(default_factory=dict)  # whole columns, by name
    delay: NDArray[np.int64] | None = None  # seconds to conversion, which are protected as the label is

    __repr__ = brief_repr

    @classmethod
    def of(cls, columns: Columns, part: str = EVERYTHING) -> Examples:
        """A part of a prepared log by name, such as train or test, or all of it."""
        if not isinstance(columns, Columns):
            raise BadInput(f"expected Columns, as Columns.open(folder) gives, got {type(columns).__name__}")
        parts = columns.parts() if part != EVERYTHING else {EVERYTHING: RowSet(slice(0, columns.rows))}
        if part not in parts:
            raise BadInput(f"{columns.folder}: expected a part named {', '.join(parts)}, got {part!r}")
        encoder = columns.encoder
        sizes = Sizes(
            columns.public.shape[1], columns.sensitive.shape[1], encoder.public.size, encoder.sensitive.size
        )
        return cls(
            public=columns.public,
            sensitive=columns.sensitive,
            sizes=sizes,
            at=parts[part],
            label=columns.label if "label" in columns else None,
            keys={**columns.unit_keys, "row": columns["row"]},
            public_keys=columns.public_keys | {"row"},
            synthetic=columns.synthetic,
            selection=encoder.selection,
            encoder_digest=encoder.digest,
            histories=_histories(columns),
            delay=columns.delay,
        )

    def __len__(self) -> int:
        return len(self.at)

    def rows(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the log at these places within the examples."""
        if isinstance(self.at.at, slice):
            return places + int(self.at.at.start)
        rows: NDArray[np.int64] = self.at.at[places]
        return rows

    def key(self, name: str) -> NDArray[Any]:
        """A key column, these examples only."""
        if name not in self.keys:
            raise BadInput(
                f"expected a column {name!r}, got a log with {', '.join(sorted(self.keys)) or 'none'}"
            )
        return self.at.of(self.keys[name])

    @property
    def labels(self) -> NDArray[np.uint8]:
        """The true labels, which are 0 or 1."""
        if self.label is None:
            raise BadInput("expected a label column, got a log without one")
        labels = np.asarray(self.at.of(self.label))
        if labels.dtype.kind == "f" and np.isnan(labels).any():
            raise BadInput("column label: expected 0 or 1, got a missing value")
        if not np.isin(labels, (0, 1)).all():
            raise BadInput("column label: expected 0 or 1, got another value")
        return labels.astype(np.uint8)

    @property
    def delays(self) -> NDArray[np.int64]:
        """Seconds from each row to its conversion; negative where none has come."""
        if self.delay is None:
            raise BadInput(
                "expected seconds to conversion (a column of role delay, or tacit data prepare --delays), got "
                "a log without them"
            )
        seconds: NDArray[np.int64] = np.asarray(self.at.of(self.delay))
        if seconds.dtype.kind not in "iu":
            raise BadInput(f"expected whole seconds to conversion, got dtype {seconds.dtype}")
        return seconds

    @property
    def public_ids(self) -> Ids:
        """The public features, these examples only: (rows, fields)."""
        return np.asarray(self.at.of(self.public))

    @cached_property
    def public_values(self) -> int:
        """How many rows of the public table these examples read at all."""
        read = np.zeros(self.sizes.public_rows, np.bool_)
        for first in range(0, len(self), CHUNK):
            places = np.arange(first, min(first + CHUNK, len(self)), dtype=np.int64)
            read[np.asarray(self.public).take(self.rows(places), axis=0).ravel()] = True
        return int(read.sum())

    def subset(self, places: NDArray[np.int64]) -> Examples:
        """Some of these examples."""
        from dataclasses import replace

        return replace(self, at=RowSet(self.rows(places)))


def _histories(columns: Columns) -> dict[str, EventHistory]:
    """The log's sequences that share their values with a public field."""
    encoder = columns.encoder
    known = {column.name: column.vocabulary for column in encoder.columns}
    fields = [known[name] for name in encoder.fields(Role.PUBLIC)]
    return {
        column.name: EventHistory(*columns.sequence(column.name), fields.index(column.vocabulary))
        for column in encoder.columns
        if column.kind is Kind.SEQUENCE and column.vocabulary in fields
    }


def group_by_unit(examples: Examples, unit: Unit, now: int | None = None) -> NDArray[np.int64] | None:
    """Each example's unit and window as 0, 1, ..., in the order in which they first appear; None where every
    example is its own. Other names for the same people give the same numbers; `now` refuses open windows."""
    if unit.kind is UnitKind.IMPRESSION:
        return None
    columns = {name: examples.key(name) for name in examples.keys}
    ids = unit_ids(unit, columns, public=examples.public_keys, now=now)
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[inverse]


def count_units(examples: Examples, unit: Unit) -> int:
    """How many units (and windows) the promise is made to."""
    groups = group_by_unit(examples, unit)
    if groups is None or not len(groups):
        return len(examples)
    return int(groups.max()) + 1


def time_windows(examples: Examples, window: Window) -> list[int]:
    """The time windows that the examples lie in; times are public here, or planning would have refused."""
    times = np.asarray(examples.key("time"), np.int64)
    found: list[int] = np.unique((times - window.origin) // window.seconds).tolist()
    return found
