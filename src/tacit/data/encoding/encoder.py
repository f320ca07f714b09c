"""The encoder: which columns become features, in what order and on which side; saved with the model and frozen.

It reveals nothing about people: bins hold no data, a public vocabulary holds public values, and a sensitive
one holds a public domain or values selected under DP. Rows that cannot be read are left out of those counts,
and so is a person whose only rows they are: which rows are bad is assumed to be known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Ids
from tacit.data.encoding.fingerprints import column_fingerprints
from tacit.data.encoding.vocabulary import Hashing, Side, Vocabulary, VocabularySelection
from tacit.data.folders import map_array, read_manifest
from tacit.errors import BadInput
from tacit.files import refuse_bad_record
from tacit.schema.columns import FEATURES, Column, Kind, LogSchema, Role

VERSION = 1
MANIFEST = "encoder.json"
SIDES = (Role.PUBLIC, Role.SENSITIVE)


@dataclass(frozen=True)
class EncodedRows:
    """Encoded features by side: a matrix of ids with a row per example and a column per field."""

    public: Ids  # (rows, public fields)
    sensitive: Ids  # (rows, sensitive fields)
    sequences: Mapping[str, tuple[NDArray[np.int64], Ids]]  # lengths, and all ids one after the other


@dataclass(frozen=True, eq=False)
class Encoder:
    """Features of a log as ids of embedding rows: frozen, and equal exactly when its `digest` is.

    `selection` is the release by which the sensitive vocabulary was drawn, if it was: whoever trains with this
    encoder on the same data composes it with what training releases.
    """

    columns: tuple[Column, ...]
    public: Side
    sensitive: Side
    utc_offset_hours: int = 0
    selection: VocabularySelection | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", expect.several("columns", self.columns, Column))
        for column in self.columns:
            side = self.side(column)
            if isinstance(side, Vocabulary) and column.vocabulary not in side.fields:
                raise BadInput(
                    f"column {column.name}: expected it in its side's vocabulary, got none of that name"
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoder) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def of(
        cls, schema: LogSchema, public: Side, sensitive: Side, selection: VocabularySelection | None = None
    ) -> Encoder:
        expect.kind("schema", schema, LogSchema)
        features = tuple(column for column in schema.columns if column.is_feature)
        if not features:
            raise BadInput(f"log {schema.name}: expected at least one feature, got none")
        return cls(features, public, sensitive, schema.utc_offset_hours, selection)

    def fields(self, role: Role) -> tuple[str, ...]:
        """The names of a side's fields, in the order of its matrix."""
        return tuple(column.name for column in self._of_side(role) if column.kind is not Kind.SEQUENCE)

    def encode(self, rows: pa.RecordBatch) -> EncodedRows:
        """The features of these rows as ids of embedding rows."""
        matrices = [self._matrix(rows, role) for role in SIDES]
        sequences = {
            column.name: self._sequence(rows, column) for column in self.columns if column.kind is Kind.SEQUENCE
        }
        return EncodedRows(matrices[0], matrices[1], sequences)

    def encode_column(self, column: Column, values: pa.Array) -> Ids:
        """The ids of one column's values, in its side's table."""
        tokens = column_fingerprints(column, values, self.utc_offset_hours)
        return self.side(column).ids(column.vocabulary, tokens)

    def side(self, column: Column) -> Side:
        """The side that encodes a column.

        A sequence of a public column's values reads that column's rows, even where the sequence is sensitive:
        what somebody saw earlier can then be compared with what they see now.
        """
        shared = column.kind is Kind.SEQUENCE and column.vocabulary in self._public_vocabularies
        return self.public if Role.PUBLIC in column.roles or shared else self.sensitive

    @cached_property
    def _public_vocabularies(self) -> frozenset[str]:
        fields = (column for column in self._of_side(Role.PUBLIC) if column.kind is not Kind.SEQUENCE)
        return frozenset(column.vocabulary for column in fields)

    @property
    def digest(self) -> str:
        """A hash of all that this encoder does, in 64 hex digits: a model refuses columns of another one."""
        spelled = hashlib.sha256(json.dumps(self._as_json(), sort_keys=True).encode())
        for side in (self.public, self.sensitive):
            for values in side.listed if isinstance(side, Vocabulary) else ():
                spelled.update(values.astype("<u8").tobytes())
        return spelled.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the encoder and its vocabularies into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for role, side in zip(SIDES, (self.public, self.sensitive), strict=True):
            if isinstance(side, Vocabulary):
                np.save(
                    _vocabulary_path(folder, role),
                    np.concatenate(side.listed) if side.listed else np.empty(0, np.uint64),
                )
        record = {**self._as_json(), "digest": self.digest}
        (folder / MANIFEST).write_text(json.dumps(record, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Encoder:
        folder = expect.path("folder", folder)
        place = folder / MANIFEST
        record = read_manifest(folder, MANIFEST, what="an encoder", version=VERSION)
        with refuse_bad_record(place, "an encoder"):
            columns = tuple(Column(**column) for column in record["columns"])
            sides = [_side(folder, role, record[role]) for role in SIDES]
            selection = (
                None if record["selection"] is None else VocabularySelection.from_json(record["selection"])
            )
            loaded = cls(columns, sides[0], sides[1], record["utc_offset_hours"], selection)
            if loaded.digest != record.get("digest"):
                raise BadInput("expected an encoder that fits its digest, got one that was changed")
        return loaded

    def _of_side(self, role: Role) -> list[Column]:
        return [column for column in self.columns if role in column.roles]

    def _matrix(self, rows: pa.RecordBatch, role: Role) -> Ids:
        columns = [column for column in self._of_side(role) if column.kind is not Kind.SEQUENCE]
        matrix = np.empty((rows.num_rows, len(columns)), dtype=np.int32)
        for index, column in enumerate(columns):
            matrix[:, index] = self.encode_column(column, _source(rows, column))
        return matrix

    def _sequence(self, rows: pa.RecordBatch, column: Column) -> tuple[NDArray[np.int64], Ids]:
        array = _source(rows, column)
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            raise BadInput(f"column {column.name}: expected lists, got {array.type}")
        lengths = pc.fill_null(array.value_lengths(), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        tokens = column_fingerprints(column, array.flatten(), self.utc_offset_hours)
        return lengths, self.side(column).ids(column.vocabulary, tokens)

    def _as_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "utc_offset_hours": self.utc_offset_hours,
            "columns": [encoding_record(column) for column in self.columns],
            "public": _side_json(self.public),
            "sensitive": _side_json(self.sensitive),
            "selection": None if self.selection is None else self.selection.as_json(),
        }


def _source(rows: pa.RecordBatch, column: Column) -> pa.Array:
    if rows.schema.get_field_index(column.source) < 0:
        raise BadInput(f"expected a column {column.source} as the encoder knows it, got none")
    return rows.column(column.source)


def encoding_record(column: Column) -> dict[str, Any]:
    """All of a column that its encoding depends on."""
    return {
        "name": column.name,
        "roles": sorted(column.roles & FEATURES),
        "kind": str(column.kind),
        "source": column.source,
        "buckets_per_doubling": column.buckets_per_doubling,
        "vocabulary": column.vocabulary,
    }


def _side_json(side: Side) -> dict[str, Any]:
    if isinstance(side, Hashing):
        return {"way": "hashing", "bins": side.size}
    if isinstance(side, Vocabulary):
        return {
            "way": "vocabulary",
            "fields": list(side.fields),
            "values": [len(values) for values in side.listed],
        }
    raise BadInput(f"expected hashing or a vocabulary, got {type(side).__name__}")


def _side(folder: Path, role: Role, record: Mapping[str, Any]) -> Side:
    if record["way"] == "hashing":
        return Hashing(record["bins"])
    if record["way"] != "vocabulary":
        raise BadInput(f"expected hashing or vocabulary, got {record['way']!r}")
    return Vocabulary(tuple(record["fields"]), tuple(_lists(_vocabulary_path(folder, role), record["values"])))


def _lists(path: Path, lengths: Sequence[int]) -> list[NDArray[np.uint64]]:
    """The vocabularies of a side's fields, stored one after the other, as one list each."""
    try:
        values = np.array(map_array(path))
    except BadInput:
        raise BadInput(f"expected a vocabulary in {path.name}, got none or a torn one") from None
    if values.shape != (sum(lengths),):
        raise BadInput(f"expected {sum(lengths)} values in {path.name}, got shape {values.shape}")
    return list(np.split(values, np.cumsum(lengths)[:-1])) if lengths else []


def _vocabulary_path(folder: Path, role: Role) -> Path:
    return folder / f"vocabulary-{role}.npy"
