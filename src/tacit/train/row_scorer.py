"""Scores of single rows as a server gets them: a dictionary in, a number out, in some tens of microseconds.

A value's id is looked up by the encoder once and remembered; factorization machines are then summed up over a
handful of table rows. Everything else goes the way of batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32
from tacit.data.frames import encode_rows, is_missing, read_frame, typed_rows
from tacit.data.splits import RowSet
from tacit.errors import BadInput
from tacit.schema.columns import Column, Role
from tacit.train.examples import Examples
from tacit.train.models.factorization_machine import FmModel
from tacit.train.models.model import Part
from tacit.train.models.saving import SavedModel
from tacit.train.statistic.model import FieldFmModel
from tacit.train.statistic.offset import OffsetModel, own_model

MOST_REMEMBERED = 2**16  # values of a column; then they are looked up anew


class RowScorer:
    """What a model expects of one row. Remembers ids of values, and nothing of any row."""

    def __init__(self, saved: SavedModel) -> None:
        model, encoder = saved.model, saved.encoder
        self._saved, self._model, self._encoder, self._head = saved, model, encoder, saved.head
        self._columns = read_columns(saved)
        self._ids: list[dict[Any, int]] = [{} for _ in self._columns]
        machines = [own_model(model), *([model.fixed] if isinstance(model, OffsetModel) else [])]
        self._machines: list[_Machine] = []
        if all(isinstance(each, FmModel) for each in machines):
            self._machines = [
                _Machine.of(each, self._columns) for each in machines if isinstance(each, FmModel)
            ]

    def score(self, row: Mapping[str, Any]) -> float:
        """The expected label: a probability, a count or a value, by the head."""
        if not self._machines:
            return self._score_slowly(row)
        ids = np.empty(len(self._columns), np.intp)
        for place, column in enumerate(self._columns):
            try:
                value = row[column.source]
            except KeyError:
                near = expect.nearest(column.source, [*map(str, row)])
                raise BadInput(f"expected a value of {column.source!r}, got a row without{near}") from None
            try:
                ids[place] = self._ids[place][value]
            except (KeyError, TypeError):
                ids[place] = self._look_up(place, column, value)
        score = np.float32(sum(machine.score(ids) for machine in self._machines))
        return float(self._head.mean(np.array([score], np.float32))[0])

    def _score_slowly(self, row: Mapping[str, Any]) -> float:
        """Any other model, as a batch of one."""
        public, sensitive = encode_rows(self._encoder, read_frame({key: [value] for key, value in row.items()}))
        one, digest = RowSet(slice(0, 1)), self._encoder.digest
        examples = Examples(public, sensitive, self._model.sizes, one, encoder_digest=digest)
        return float(self._saved.predict(examples)[0])

    def _look_up(self, place: int, column: Column, value: Any) -> int:
        table = read_frame({column.source: [value]})
        batch = next(typed_rows([column], table))
        found = int(self._encoder.encode_column(column, batch.column(0))[0])
        known = self._ids[place]
        if not is_missing(value) and isinstance(value, str | int | float | bytes):  # a NaN is not found again
            if len(known) >= MOST_REMEMBERED:
                known.clear()
            known[value] = found
        return found


@dataclass(frozen=True, eq=False)
class _Machine:
    """A factorization machine over the first of a row's ids: all of them, or the public ones."""

    table: Floats32
    starts: NDArray[np.intp]
    bias: float

    @classmethod
    def of(cls, model: FmModel, columns: list[Column]) -> _Machine:
        read = columns[: model.sizes.public_fields] if isinstance(model, FieldFmModel) else columns
        return cls(model.table, np.array(first_rows(model, read), np.intp), float(model.bias[0]))

    def score(self, ids: NDArray[np.intp]) -> float:
        rows = self.table[ids[: len(self.starts)] + self.starts]
        total = rows[:, 1:].sum(axis=0)
        pairs = float(total @ total) - float(np.vdot(rows[:, 1:], rows[:, 1:]))
        return self.bias + float(rows[:, 0].sum()) + pairs / 2


def read_columns(saved: SavedModel) -> list[Column]:
    """The columns that predictions read, in the order of their fields: those of the public side first."""
    roles = [Role.PUBLIC] if saved.part is Part.TRUNCATED else [Role.PUBLIC, Role.SENSITIVE]
    return [column for role in roles for column in saved.encoder.columns if role in column.roles]


def first_rows(model: FmModel, columns: list[Column]) -> list[int]:
    """The first row of each column's part of the table."""
    size = model.sizes.public_rows
    if isinstance(model, FieldFmModel):
        return [place * size for place in range(len(columns))]
    return [0 if Role.PUBLIC in column.roles else size for column in columns]
