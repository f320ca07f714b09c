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
from scipy.sparse import csr_matrix
from scipy.special import expit

from tacit import expect
from tacit.arrays import Floats, Floats32
from tacit.errors import BadInput
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
        parts = [
            factor_scores(DesignMatrix.of(self.values, ids[start : start + CHUNK]), self.rows)[0]
            for start in range(0, len(ids), CHUNK)
        ]
        return self.base + np.concatenate([np.zeros(0), *parts])

    def predict_proba(self, ids: NDArray[np.integer]) -> Floats:
        probabilities: Floats = expit(self.logits(ids))
        return probabilities


@dataclass(frozen=True, eq=False)
class DesignMatrix:
    """Which values each row has, as a sparse matrix of ones: (rows, values of all fields)."""

    ones: csr_matrix
    turned: csr_matrix  # its transpose, by rows too: twice as fast as reading it sideways

    @classmethod
    def of(cls, values: tuple[NDArray[np.int64], ...], ids: NDArray[np.integer]) -> DesignMatrix:
        places = CellTables(values, (), ()).places(ids)
        sizes = [len(known) for known in values]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        column = np.stack([start + place for start, place in zip(starts, places, strict=False)], axis=1)
        seen = np.stack([place < size for place, size in zip(places, sizes, strict=True)], axis=1)
        ends = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
        data = np.ones(int(ends[-1]), np.float32)
        ones = csr_matrix((data, column[seen].astype(np.int32), ends), shape=(len(ids), int(starts[-1])))
        return cls(ones, ones.T.tocsr())


def factor_scores(design: DesignMatrix, rows: Floats32) -> tuple[Floats, Floats32]:
    """Logits without the base, (rows,), and the sums of factors and effects, (rows, rank + 1)."""
    sums: Floats32 = design.ones @ rows
    factors = rows[:, :-1]
    squares = design.ones @ np.einsum("vk,vk->v", factors, factors)
    pairs = np.einsum("rk,rk->r", sums[:, :-1], sums[:, :-1]) - squares
    return sums[:, -1].astype(np.float64) + 0.5 * pairs, sums


def factor_gradient(design: DesignMatrix, rows: Floats32, sums: Floats32, by_score: Floats) -> Floats32:
    """Of a loss in `rows`, from its derivatives in the scores."""
    residual = by_score.astype(np.float32)
    spread = sums * residual[:, None]
    spread[:, -1] = residual
    found: Floats32 = design.turned @ spread
    found[:, :-1] -= rows[:, :-1] * found[:, -1:]  # a value is no partner of itself
    return found


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
