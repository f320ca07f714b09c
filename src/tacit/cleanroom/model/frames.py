"""Frames of clicks as examples: a platform's table of any library, encoded for the conversion model.

    reader = ClickReader.of(clicks, record="click_id", advertiser="shop", labels=["bought"])
    examples = reader.examples(clicks)

A reader is made once, of the clicks that a model is pre-trained on, and reads every later frame alike: values
that it has not listed share a row of their field. Numbers fall into buckets, texts are values, times become
hours and weekdays, as `tacit.Classifier` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.cleanroom.model.examples import ConversionExamples, field_ids
from tacit.cleanroom.protocol.tokens import record_fingerprints
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.fingerprints import key_fingerprints
from tacit.data.encoding.vocabulary import Vocabulary
from tacit.data.frame_roles import FrameRoles
from tacit.data.frames import encode_rows, key_column, list_names, read_frame
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, Role
from tacit.train.frame_examples import frame_encoder


@dataclass(frozen=True)
class ClickReader:
    """How a platform's frames become examples: which columns are what, and their encoder."""

    encoder: Encoder
    record: str
    advertiser: str
    labels: tuple[str, ...]

    @classmethod
    def of(
        cls, frame: Any, *, record: str, advertiser: str, labels: Sequence[str],
        features: Sequence[str] | None = None, categories: Sequence[str] = (), bins: int | None = None,
    ) -> ClickReader:  # fmt: skip
        """A reader for frames like this one.

        `record` is the id that the advertisers know, too, and `labels` the tasks, the main one first. All other
        columns are features unless `features` names them. Columns of numbers that are codes belong into
        `categories`. Without `bins` the frame's values are listed, up to 65,536 of them; more are hashed.
        """
        if isinstance(labels, str) or not labels:
            raise BadInput(f"expected labels as a list of at least one column, got {labels!r}")
        table = read_frame(frame, "clicks")
        own = (record, advertiser, *labels)
        _expect_columns(table, (*own, *(features or ())))
        chosen = tuple(each for each in table.column_names if each not in own) if features is None else features
        if not chosen:
            raise BadInput("expected a column of features beside record, advertiser and labels, got none")
        roles = FrameRoles(tuple(chosen), (), categories=tuple(categories))
        schema = roles.schema(table.select(list(dict.fromkeys((labels[0], *chosen, *categories)))), labels[0])
        return cls(frame_encoder(schema, table, bins), record, advertiser, tuple(labels))

    def examples(self, frame: Any) -> ConversionExamples:
        """The rows of a frame. A label that is missing counts as 0: those who share nothing have none here."""
        table = read_frame(frame, "clicks")
        _expect_columns(table, (self.record, self.advertiser))
        ids, _ = encode_rows(self.encoder, table)
        fields, sizes = field_ids(self.encoder, ids)
        rows = len(table)
        advertiser = key_column(table, Column(self.advertiser, {Role.ADVERTISER}), Kind.CATEGORY)
        return ConversionExamples(
            fields=fields,
            numbers=np.zeros((rows, 0), np.float32),  # numbers are buckets, among the fields
            sequences=np.zeros((rows, 1, 0), np.int16),
            lengths=np.zeros(rows, np.int16),
            advertiser=key_fingerprints(advertiser, str(Role.ADVERTISER)).view(np.int64),
            records=record_fingerprints(table.select([self.record]), self.record),
            tasks={name: _labels(table, name) for name in self.labels},
            sizes=sizes,
            sequence_sizes=(),
            shared=not isinstance(self.encoder.public, Vocabulary),
            encoder=self.encoder.digest,
        )


def _labels(table: pa.Table, name: str) -> NDArray[np.uint8]:
    if name not in table.column_names:
        return np.zeros(len(table), np.uint8)
    column = table.column(name)
    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), None, column)
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise BadInput(f"column {name}: expected labels of 0 or 1, got values of type {kind}")
    values: NDArray[np.float64] = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy()
    if not np.all((values == 0) | (values == 1)):
        raise BadInput(f"column {name}: expected labels of 0 or 1, got another value")
    return values.astype(np.uint8)


def _expect_columns(table: pa.Table, names: Sequence[str]) -> None:
    if not len(table):
        raise BadInput("expected clicks with rows, got none")
    for name in names:
        if name not in table.column_names:
            raise BadInput(f"expected a column {name!r}, got {list_names(table.column_names)}")
