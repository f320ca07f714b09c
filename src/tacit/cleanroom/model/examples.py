"""Examples of the conversion model: rows of a prepared log, and batches of them as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tacit import expect
from tacit.cleanroom.model.settings import ModelSettings
from tacit.cleanroom.protocol.tokens import record_fingerprints, tokens
from tacit.data.columns import Columns
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.fingerprints import key_fingerprints
from tacit.data.encoding.vocabulary import Vocabulary
from tacit.data.splits import RowSet
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.schema.columns import Kind, Role


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of examples; places of a sequence beyond its length may hold any id of the table."""

    fields: Tensor  # i64 (n, fields): the value of each field
    numbers: Tensor  # f32 (n, numbers)
    sequences: Tensor  # i64 (n, positions, parts of an action), the most recent action first
    lengths: Tensor  # i64 (n,)
    advertiser: Tensor  # i64 (n,)

    def __post_init__(self) -> None:
        rows = len(self.fields)
        for name in ("numbers", "sequences", "lengths", "advertiser"):
            if len(getattr(self, name)) != rows:
                raise BadInput(f"expected {rows} rows of {name}, got {len(getattr(self, name))}")

    def __len__(self) -> int:
        return len(self.fields)

    def rows(self, chosen: Tensor) -> Batch:
        """Some of the rows, in the order of `chosen`."""
        return Batch(
            self.fields[chosen],
            self.numbers[chosen],
            self.sequences[chosen],
            self.lengths[chosen],
            self.advertiser[chosen],
        )

    def of_one_advertiser(self, advertiser: int) -> bool:
        return bool(torch.all(self.advertiser == advertiser))


POSITIONS = 16

# What rows have beside their labels: its dimensions, the kinds of number it is of, and these in words.
SHAPES = (
    ("fields", 2, "iu", "whole numbers"),
    ("numbers", 2, "iuf", "numbers"),
    ("sequences", 3, "iu", "whole numbers"),
    ("lengths", 1, "iu", "whole numbers"),
    ("advertiser", 1, "iu", "whole numbers"),
    ("records", 1, "iu", "whole numbers"),
)


@dataclass(frozen=True, eq=False)
class ConversionExamples:
    """n rows with everything a model, a room's tokens and a comparison need of them."""

    fields: NDArray[Any]  # whole (n, fields)
    numbers: NDArray[np.float32]  # (n, numbers)
    sequences: NDArray[Any]  # whole (n, positions, parts)
    lengths: NDArray[Any]  # whole (n,)
    advertiser: NDArray[np.int64]  # (n,)
    records: NDArray[np.uint64]  # (n,): what a room knows a row by
    tasks: Mapping[str, NDArray[np.uint8]]  # labels by task
    sizes: tuple[int, ...]  # values of each field
    sequence_sizes: tuple[int, ...]  # values of each part of an action
    shared: bool = False
    encoder: str = ""  # the digest of the encoder that made them

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, by name: whatever is found only while training has cost something."""
        for name, dimensions, kinds, words in SHAPES:
            array = np.asarray(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.dtype.kind not in kinds:
                raise BadInput(f"{name}: expected {words}, got {array.dtype.str}")
            if array.ndim != dimensions:
                raise BadInput(f"{name}: expected {dimensions} dimensions, got {array.ndim}")
            if len(array) != len(self):
                raise BadInput(f"{name}: expected {len(self)} rows as fields have, got {len(array)}")
        for name, ids in (("sizes", self.fields), ("sequence_sizes", self.sequences)):
            if len(getattr(self, name)) != ids.shape[-1]:
                of = "fields" if name == "sizes" else "sequences"
                raise BadInput(
                    f"{name}: expected {ids.shape[-1]} as {of} has columns, got {len(getattr(self, name))}"
                )
        for column in range(self.numbers.shape[1]):
            if not np.all(np.isfinite(self.numbers[:, column])):
                raise BadInput(f"numbers, column {column}: expected finite numbers, got NaN or an infinity")
        tasks = {task: _as_labels(task, labels, len(self)) for task, labels in self.tasks.items()}
        object.__setattr__(self, "tasks", tasks)

    def __len__(self) -> int:
        return len(self.fields)

    def labels(self, task: str) -> NDArray[np.uint8]:
        if task not in self.tasks:
            raise BadInput(f"expected a task among {', '.join(self.tasks) or 'none'}, got {task!r}")
        return self.tasks[task]

    def batch(self, chosen: ArrayLike | slice) -> Batch:
        """Some rows as tensors."""
        at = chosen if isinstance(chosen, slice) else np.asarray(chosen)
        return Batch(
            torch.from_numpy(self.fields[at].astype(np.int64)),
            torch.from_numpy(self.numbers[at].astype(np.float32)),
            torch.from_numpy(self.sequences[at].astype(np.int64)),
            torch.from_numpy(self.lengths[at].astype(np.int64)),
            torch.from_numpy(self.advertiser[at].astype(np.int64)),
        )

    def select(self, chosen: ArrayLike | slice) -> ConversionExamples:
        """The rows of a mask, of a list of places, or of a slice."""
        at = chosen if isinstance(chosen, slice) else np.asarray(chosen)
        return ConversionExamples(
            self.fields[at],
            self.numbers[at],
            self.sequences[at],
            self.lengths[at],
            self.advertiser[at],
            self.records[at],
            {task: labels[at] for task, labels in self.tasks.items()},
            self.sizes,
            self.sequence_sizes,
            self.shared,
            self.encoder,
        )

    def check_fit(self, settings: ModelSettings) -> None:
        """Refuse what a model of these settings would read as something else."""
        if settings.encoder and settings.encoder != self.encoder:
            raise BadInput("expected examples of the model's encoder, got those of another one")
        for name, ids, sizes in (
            ("fields", self.fields, settings.fields),
            ("sequences", self.sequences, settings.sequence_tables),
        ):
            if ids.shape[-1] != len(sizes):
                raise BadInput(f"expected {len(sizes)} columns of {name}, got {ids.shape[-1]}")
            axes = tuple(range(ids.ndim - 1))
            outside = (
                (ids.max(axes) >= np.array(sizes)) | (ids.min(axes) < 0) if ids.size else np.zeros(0, bool)
            )
            if np.any(outside):
                column = int(np.argmax(outside))
                raise BadInput(
                    f"{name}, column {column}: expected ids in 0..{sizes[column] - 1}, got one outside"
                )
        if settings.has_sequence and self.sequences.shape[1] != settings.positions:
            raise BadInput(f"expected {settings.positions} positions, got {self.sequences.shape[1]}")
        if len(self) and (self.lengths.min() < 0 or self.lengths.max() > self.sequences.shape[1]):
            raise BadInput("expected lengths within the positions, got one outside")
        if self.numbers.shape[1] != settings.numbers:
            raise BadInput(f"expected {settings.numbers} numbers per row, got {self.numbers.shape[1]}")

    def of_advertiser(self, advertiser: int | str) -> ConversionExamples:
        """The rows of one advertiser, by its number here or by the name that its log or frame has for it."""
        here = self.advertiser == (advertiser if isinstance(advertiser, int | np.integer) else 0)
        if isinstance(advertiser, str) or (self.encoder and not here.any()):
            here = self.advertiser == advertiser_key(advertiser)
        if not here.any():
            raise BadInput(f"expected an advertiser with rows, got {advertiser!r}, which has none")
        return self.select(here)

    def tokens(self, key: bytes) -> NDArray[np.uint8]:
        """(n, 16): the rows' names in the collaboration of this key, as the room makes them of the same ids.

        Logs and frames keep fingerprints of ids, and no ids; of rows made by hand, `records` are the ids.
        """
        return tokens(self.records if self.encoder else record_fingerprints(self.records), key)

    def settings(self, **others: Any) -> ModelSettings:
        """Settings of a model that reads these examples; `others` replace the defaults."""
        own = {
            "fields": self.sizes,
            "numbers": self.numbers.shape[1],
            "sequence_tables": self.sequence_sizes,
            "shared": self.shared,
            "positions": self.sequences.shape[1],
            "tasks": tuple(self.tasks),
            "encoder": self.encoder,
        }
        return ModelSettings(**{**own, **others})


ID_VALUES = 100  # in a column: as many as ids have, and categories have not


def has_ids(examples: ConversionExamples) -> bool:
    """Whether a field has so many values among these rows that its embeddings are what to tune."""
    return any(len(np.unique(column)) >= ID_VALUES for column in examples.fields.T)


def advertiser_key(name: int | str) -> int:
    """How a prepared log, or a frame that was read, calls the advertiser that its file calls `name`."""
    raw = pa.array([name.encode() if isinstance(name, str) else name])
    return int(key_fingerprints(raw, str(Role.ADVERTISER)).view(np.int64)[0])


def examples_from_log(
    columns: Columns, rows: RowSet | ArrayLike | slice | None = None, *, positions: int = POSITIONS
) -> ConversionExamples:
    """Rows of a prepared log; of a sequence the first `positions` places: a log has the recent ones first."""
    expect.whole("positions", positions, at_least=1)
    at = _places(columns, rows)
    encoder = columns.encoder
    advertiser, records = columns.key(Role.ADVERTISER), columns.key(Role.RECORD)
    if advertiser is None or records is None:
        raise BadInput(f"{columns.folder}: expected columns of an advertiser and a record, got a log without")
    fields, sizes = field_ids(encoder, columns.public[at])
    sequences, lengths, sequence_sizes = _sequences(columns, encoder, at, positions)
    return ConversionExamples(
        fields,
        np.zeros((len(fields), 0), np.float32),  # a prepared log has numbers as buckets, among the fields
        sequences,
        lengths,
        np.asarray(advertiser[at]).view(np.int64),
        np.asarray(records[at]),
        {name: np.asarray(column[at]).astype(np.uint8) for name, column in _labels(columns).items()},
        sizes,
        sequence_sizes,
        shared=not isinstance(encoder.public, Vocabulary),
        encoder=encoder.digest,
    )


def _as_labels(task: str, given: ArrayLike, rows: int) -> NDArray[np.uint8]:
    """Labels of one task, checked by value and never shown."""
    labels = np.asarray(given)
    if labels.shape != (rows,):
        raise BadInput(f"task {task}: expected {rows} rows as fields have, got {len(np.atleast_1d(labels))}")
    if labels.dtype.kind not in "biuf":
        raise BadInput(f"task {task}: expected labels of 0 or 1, got {labels.dtype.str}")
    if not np.all((labels == 0) | (labels == 1)):
        raise BadInput(f"task {task}: expected labels of 0 or 1, got another")
    return labels.astype(np.uint8, copy=False)


def _places(columns: Columns, rows: RowSet | ArrayLike | slice | None) -> NDArray[np.int64]:
    everywhere = np.arange(columns.rows)
    if isinstance(rows, RowSet):
        rows = rows.at
    if rows is None:
        return everywhere
    return everywhere[rows] if isinstance(rows, slice) else everywhere[np.asarray(rows)]


def _labels(columns: Columns) -> dict[str, NDArray[Any]]:
    named: dict[str, NDArray[Any]] = {}
    for column in columns.manifest["columns"]:
        if str(Role.LABEL) in column["roles"]:
            named[column["name"]] = columns.label
        elif str(Role.AUXILIARY) in column["roles"]:
            named[column["name"]] = columns.auxiliary(column["name"])
    return named


def field_ids(encoder: Encoder, ids: NDArray[np.integer]) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Ids within each public field, so that its size is its own; hashed columns have bins in common."""
    public = (each for each in encoder.columns if Role.PUBLIC in each.roles)
    starts, sizes = _ranges(encoder, [each.vocabulary for each in public if each.kind is not Kind.SEQUENCE])
    return _small(ids - np.array(starts, ids.dtype), max(sizes, default=0)), sizes


def _sequences(
    columns: Columns, encoder: Encoder, at: NDArray[np.int64], positions: int
) -> tuple[NDArray[Any], NDArray[Any], tuple[int, ...]]:
    features = [
        each for each in encoder.columns if each.kind is Kind.SEQUENCE and encoder.side(each) is encoder.public
    ]
    starts, sizes = _ranges(encoder, [each.vocabulary for each in features])
    padded = _small(np.zeros((len(at), positions, len(features)), np.int16), max(sizes, default=0))
    counts = np.zeros(len(at), np.int64)
    for part, (feature, start) in enumerate(zip(features, starts, strict=True)):
        offsets, ids = columns.sequence(feature.name)
        begins = np.asarray(offsets[at])
        lengths = np.minimum(np.asarray(offsets[at + 1]) - begins, positions)
        if part and np.any(lengths != counts):
            raise BadInput(f"column {feature.name}: expected lists as long as those beside it, got others")
        counts = lengths
        filled = np.arange(positions) < lengths[:, None]
        padded[..., part][filled] = (ids - start)[(begins[:, None] + np.arange(positions))[filled]]
    return padded, counts.astype(np.int16 if positions < 2**15 else np.int32), sizes


def _ranges(encoder: Encoder, vocabularies: list[str]) -> tuple[list[int], tuple[int, ...]]:
    """Where each vocabulary's ids begin and how many it has."""
    side = encoder.public
    if not isinstance(side, Vocabulary):
        return [0] * len(vocabularies), (side.size,) * len(vocabularies)
    places = [side.fields.index(name) for name in vocabularies]
    return [side.starts[place] for place in places], tuple(len(side.listed[place]) + 2 for place in places)


def _small(ids: NDArray[Any], size: int) -> NDArray[Any]:
    return ids.astype(np.int16 if size < 2**15 else np.int32, copy=False)
