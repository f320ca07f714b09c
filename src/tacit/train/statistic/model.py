"""The model that is fitted to the statistic, also in a form that is saved like any other model.

The logit is a base, an effect for each value, and products of the values' factors: a factorization machine in
which every field has rows of its own. It reads public features only. The row of value `id` in field f is f *
public rows + id, so that values of two fields which an encoder hashes to the same id stay apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit import expect
from tacit.arrays import Floats, Floats32
from tacit.errors import BadInput
from tacit.kernels import cells as cell_kernels
from tacit.kernels import training as kernels
from tacit.train.examples import Examples, Sizes
from tacit.train.models.factorization_machine import TABLE, FmModel
from tacit.train.models.model import NormalSource, Part, TableIds
from tacit.train.statistic.tables import CellTables

CHUNK = 2**17
MOST_ROWS = 2**31 - 1  # ids are 32 bits wide


@dataclass(frozen=True, eq=False)
class FactorModel:
    """logit = base + sum_f effect(x_f) + sum_{f < g} factors(x_f) . factors(x_g); linear where rank is 0.

    `rows` holds a row for each value, fields one after another: its factors, then its effect. A value that was
    not there in training adds nothing.
    """

    values: tuple[NDArray[np.int64], ...]
    base: float
    rows: Floats32  # (values of all fields, rank + 1)
    simulated: bool

    @property
    def rank(self) -> int:
        return int(self.rows.shape[1]) - 1

    def logits(self, ids: NDArray[np.integer]) -> Floats:
        """(rows,) from public ids, (rows, fields)."""
        rows = np.concatenate(
            [self.rows, np.zeros((1, self.rank + 1), np.float32)]
        )  # the last one for no value
        parts = [
            ValuePlaces.of(self.values, ids[start : start + CHUNK]).scores(rows)[0]
            for start in range(0, len(ids), CHUNK)
        ]
        return self.base + np.concatenate([np.zeros(0), *parts])

    def predict_proba(self, ids: NDArray[np.integer]) -> Floats:
        probabilities: Floats = expit(self.logits(ids))
        return probabilities


@dataclass(frozen=True, eq=False)
class ValuePlaces:
    """Which values each row has: (rows, fields) places among those of all fields, fields one after another."""

    places: NDArray[np.int32]

    @classmethod
    def of(cls, values: tuple[NDArray[np.int64], ...], ids: NDArray[np.integer]) -> ValuePlaces:
        """A value that is not among them has the place after the last."""
        found = CellTables(values, (), ()).places(ids)
        starts = np.concatenate([[0], np.cumsum([len(known) for known in values])])
        places = np.empty((len(ids), len(values)), np.int32)
        for field, place in enumerate(found):
            places[:, field] = np.where(place < len(values[field]), place + starts[field], starts[-1])
        return cls(places)

    def scores(self, rows: Floats32) -> tuple[Floats, Floats32]:
        """Logits without the base, (rows,), and sums of factors, (rows, rank). A value has its factors and
        then its effect."""
        count, fields = self.places.shape
        logits, squares = np.empty(count, np.float32), np.empty(count, np.float32)
        sums = np.empty((count, rows.shape[1] - 1), np.float32)
        kernels.fm_forward(_effects_first(rows), self.places, fields, logits, sums, squares)
        return logits.astype(np.float64), sums

    def gradient(self, rows: Floats32, sums: Floats32, by_score: Floats) -> Floats:
        """Of a loss in `rows`, from its derivatives in the scores."""
        table, residual = _effects_first(rows), by_score.astype(np.float32)
        total, some = np.zeros(table.shape), np.zeros_like(table)
        for first in range(0, len(residual), CHUNK):  # of so many, single precision is enough
            here = slice(first, first + CHUNK)
            kernels.fm_scatter(table, self.places[here], 0, residual[here], sums[here], some)
            total += some
            some[...] = 0
        return np.roll(total, -1, axis=1)

    def gather(self, by_row: Floats, values: int) -> Floats:
        """For each value the sum over its rows."""
        total = np.zeros(values)
        cell_kernels.add_rows_to_cells(self.places, np.ascontiguousarray(by_row, np.float64), total)
        return total


def _effects_first(rows: Floats32) -> Floats32:
    return np.ascontiguousarray(np.roll(rows, 1, axis=1))


@dataclass(frozen=True)
class FieldFactors:
    """An effect and `rank` factors for each value of each public field."""

    rank: int = 4
    name: ClassVar[str] = "field-fm"

    def __post_init__(self) -> None:
        expect.whole("rank", self.rank, at_least=0)

    def build(self, sizes: Sizes, normal: NormalSource) -> FieldFmModel:
        del normal  # it is filled from a fit
        rows = sizes.public_fields * sizes.public_rows
        if rows > MOST_ROWS:
            raise BadInput(f"expected at most {MOST_ROWS:,} rows for all fields of a {self.name}, got {rows:,}")
        table = np.zeros((rows, 1 + self.rank), np.float32)
        return FieldFmModel(self, sizes, table, np.zeros(1, np.float32))

    def filled(self, sizes: Sizes, fitted: FactorModel) -> FieldFmModel:
        """A machine that predicts what a fitted model does; values that it never met add nothing."""
        machine = self.build(sizes, _nothing)
        first = 0
        for field, values in enumerate(fitted.values):
            rows = fitted.rows[first : first + len(values)]  # (values, rank + 1): factors, then the effect
            machine.table[field * sizes.public_rows + values] = np.roll(rows, 1, axis=1)
            first += len(values)
        machine.bias[0] = fitted.base
        return machine


class FieldFmModel(FmModel):
    """`FmModel` with other rows; every part of it is the public one."""

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        del part
        read = np.asarray(examples.public).take(rows, axis=0)  # (batch, fields)
        if read.size and (read.min() < 0 or read.max() >= self.sizes.public_rows):
            raise BadInput(f"expected public ids from 0 to {self.sizes.public_rows - 1}, got another")
        starts = np.arange(self.sizes.public_fields, dtype=np.int32) * np.int32(self.sizes.public_rows)
        return {TABLE: read + starts}


def _nothing(shape: object = None, *, scale: float = 1.0) -> None:
    del shape, scale
