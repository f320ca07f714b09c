"""A saved model as one file for devices without Python: what `score_row` needs, and what was promised of it.

    export_device(saving.load("model"), "model.tacit")

Four bytes with the length of a JSON record, the record, and then arrays in little-endian order: for each column
that lists its values their fingerprints (64 bits each), and the table (32-bit floats, a linear weight and the
embedding in each row). The record has the columns in the order in which they are read, how each value becomes a
row of the table, the bias, and the privacy statement. A truncated model's file holds nothing of sensitive
columns.

Factorization machines and logistic regression of single values go into such a file, with a logistic head: a
device wants the chance of a click. The rest is refused by name.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tacit import expect
from tacit.arrays import Words
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.fingerprints import HOUR, MONDAY, bucket_edges, missing_fingerprint, value_seed
from tacit.data.encoding.vocabulary import Vocabulary
from tacit.errors import BadInput
from tacit.files import place_file
from tacit.schema.columns import Column, Kind
from tacit.train.models.factorization_machine import FmModel
from tacit.train.models.model import Architecture, Part
from tacit.train.models.saving import SavedModel
from tacit.train.promise_words import NO_PROMISE
from tacit.train.row_scorer import first_rows, read_columns
from tacit.train.statistic.offset import BesideStatistic
from tacit.train.targets import Head

FORMAT = "tacit device model 1"
LARGEST_BYTES = 8 * 2**20
"""Of weights: people's devices fetch them."""

SHAPES = ("fm", "logistic", "field-fm")
DAY_HOURS, WEEK_DAYS = 24, 7


def check_device_export(shape: Architecture, head: Head, encoder: Encoder, weights: int) -> None:
    """Refuse, before such a model with `weights` bytes of weights is trained, what no device's file holds."""
    if shape.name not in SHAPES:
        raise BadInput(f"expected an {', '.join(SHAPES)} model for devices, got {shape.name}{_instead(shape)}")
    if head is not Head.LOGISTIC:
        raise BadInput(f"expected a logistic head for devices, which want a chance, got {head}")
    for column in encoder.columns:
        if column.kind is Kind.SEQUENCE:
            raise BadInput(f"column {column.name}: expected single values for devices, got a sequence")
    if weights > LARGEST_BYTES:
        raise BadInput(
            f"expected at most {LARGEST_BYTES} bytes of weights for devices, got {weights}: take fewer bins "
            "or a smaller dim"
        )


def _instead(shape: Architecture) -> str:
    if shape.name != BesideStatistic.name:
        return ""
    return ": train with privacy.k = 0, or another number, and there is none beside it"


def export_device(saved: SavedModel, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the model as a file for devices."""
    target = expect.path("path", path)
    place_file(target, device_bytes(saved), what="the model for devices", overwrite=overwrite)


def device_bytes(saved: SavedModel) -> bytes:
    """The file's content.

    Guarantee:  what the model's own statement says, which is in the file; nothing more was released.
    Neighbours: those of the statement.
    Assumes:    those of the statement. A vocabulary of public values is in the file, as fingerprints, which
                hide nothing.
    Source:     post-processing (Dwork, Roth 2014, proposition 2.1).
    """
    expect.kind("saved", saved, SavedModel)
    check_device_export(saved.model.architecture, saved.head, saved.encoder, 0)
    assert isinstance(saved.model, FmModel), "by its name"
    columns = read_columns(saved)
    read = saved.model.table
    if saved.part is Part.TRUNCATED and saved.model.architecture.name != "field-fm":
        read = read[: saved.model.sizes.public_rows]
    check_device_export(saved.model.architecture, saved.head, saved.encoder, read.nbytes)
    described, arrays = [], []
    for column, first in zip(columns, first_rows(saved.model, columns), strict=True):
        record, listed = _describe(saved.encoder, column, first)
        described.append(record)
        arrays.append(listed.astype("<u8").tobytes())
    record = {
        "format": FORMAT,
        "columns": described,
        "width": int(read.shape[1]),
        "bias": float(saved.model.bias[0]),
        "synthetic": saved.synthetic,
        "encoder_digest": saved.encoder.digest,
        "statement": NO_PROMISE if saved.statement is None else dict(saved.statement),
    }
    head = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join([struct.pack(">I", len(head)), head, *arrays, read.astype("<f4").tobytes()])


def _describe(encoder: Encoder, column: Column, first: int) -> tuple[dict[str, Any], Words]:
    """How a value becomes a row, and the values that are listed.

    source    the column of a row that is scored
    seed      of fingerprints, in decimal digits: a number of 64 bits
    missing   the table row of a missing value
    start     the first row; with `bins`, behind it are so many hashed ones; without, one for a missing value,
              one for others, and `values` for those that are listed
    edges     of buckets, where values are numbers; `whole` where they have no fraction
    cycle     where values are seconds: the place of (second + shift) / unit in a cycle of so many
    """
    side, name = encoder.side(column), column.vocabulary
    missing = side.ids(name, np.array([missing_fingerprint(name)], np.uint64))
    record: dict[str, Any] = {"source": column.source, "seed": str(value_seed(name)), "start": first}
    record["missing"] = first + int(missing[0])
    listed: Words = np.empty(0, np.uint64)
    if isinstance(side, Vocabulary):
        at = side.fields.index(name)
        listed = side.listed[at]
        record["start"] += side.starts[at]
    else:
        record["bins"] = side.size
    record["values"] = len(listed)
    offset = encoder.utc_offset_hours * HOUR
    match column.kind:
        case Kind.WHOLE | Kind.REAL:
            edges = bucket_edges(column.kind, column.buckets_per_doubling)
            record |= {"edges": edges.astype(np.float64).tolist(), "whole": column.kind is Kind.WHOLE}
        case Kind.HOUR:
            record |= {"cycle": DAY_HOURS, "unit": HOUR, "shift": offset, "whole": True}
        case Kind.WEEKDAY:
            day = DAY_HOURS * HOUR
            record |= {"cycle": WEEK_DAYS, "unit": day, "shift": offset + MONDAY * day, "whole": True}
    return record, listed
