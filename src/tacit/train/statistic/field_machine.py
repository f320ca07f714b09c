"""A factorization machine in which every field has rows of its own: what one noisy statistic is fitted to.

It reads public features only. The row of value `id` in field f is f * public rows + id, so that values of two
fields which an encoder hashes to the same id stay apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.train.examples import Examples, Sizes
from tacit.train.models.factorization_machine import TABLE, Machine
from tacit.train.models.model import Normal, Part, TableIds
from tacit.train.statistic.model import FactorModel

MOST_ROWS = 2**31 - 1  # ids are 32 bits wide


@dataclass(frozen=True)
class FieldFactors:
    """An effect and `rank` factors for each value of each public field."""

    rank: int = 4
    name: ClassVar[str] = "field-fm"

    def __post_init__(self) -> None:
        expect.whole("rank", self.rank, at_least=0)

    def build(self, sizes: Sizes, normal: Normal) -> FieldMachine:
        del normal  # it is filled from a fit
        rows = sizes.public_fields * sizes.public_rows
        if rows > MOST_ROWS:
            raise BadInput(f"expected at most {MOST_ROWS:,} rows for all fields of a {self.name}, got {rows:,}")
        table = np.zeros((rows, 1 + self.rank), np.float32)
        return FieldMachine(self, sizes, table, np.zeros(1, np.float32))

    def filled(self, sizes: Sizes, fitted: FactorModel) -> FieldMachine:
        """A machine that predicts what a fitted model does; values that it never met add nothing."""
        machine = self.build(sizes, _nothing)
        first = 0
        for field, values in enumerate(fitted.values):
            rows = fitted.rows[first : first + len(values)]  # (values, rank + 1): factors, then the effect
            machine.table[field * sizes.public_rows + values] = np.roll(rows, 1, axis=1)
            first += len(values)
        machine.bias[0] = fitted.base
        return machine


class FieldMachine(Machine):
    """`Machine` with other rows; every part of it is the public one."""

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        del part
        read = np.asarray(examples.public).take(rows, axis=0)  # (batch, fields)
        if read.size and (read.min() < 0 or read.max() >= self.sizes.public_rows):
            raise BadInput(f"expected public ids from 0 to {self.sizes.public_rows - 1}, got another")
        starts = np.arange(self.sizes.public_fields, dtype=np.int32) * np.int32(self.sizes.public_rows)
        return {TABLE: read + starts}


def _nothing(shape: object = None, *, scale: float = 1.0) -> None:
    del shape, scale
