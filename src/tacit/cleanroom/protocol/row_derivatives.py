"""Per-example derivatives of a logit in some rows of a matrix, as numbers of rows and values, and their norms.

An embedding table has a row for each value, and an example touches those of its own values: its derivative is
zero everywhere else. It is sent as the numbers of the rows and what each moves the logit by. Within an example
each row comes once, in rising order: a value that an example has twice is added up before it is sent, and a
room refuses a row that comes twice. So the squared norm is the sum of the squares of all that was sent, and
nothing cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from tacit.arrays import Floats, Floats32
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, absolute_rows, expect_array, squared_rows
from tacit.cleanroom.protocol.layout import ParameterBlock
from tacit.errors import BadInput


@dataclass(frozen=True, eq=False)
class RowDerivatives:
    """n examples' derivatives in a matrix of which each touches some rows, one example after the other."""

    block: ParameterBlock
    places: NDArray[np.int32]  # (touched,): which row of the matrix, rising within each example
    values: Floats32  # (touched, cols)
    counts: NDArray[np.int32]  # (n,): how many rows each touches

    def __post_init__(self) -> None:
        expect_array("places", self.places, np.int32, 1)
        expect_array("values", self.values, np.float32, 2)
        expect_array("counts", self.counts, np.int32, 1)
        block = self.block
        if not block.by_rows or self.values.shape[1] != block.cols or len(self.places) != len(self.values):
            raise BadInput(f"expected rows of block {block.name}, {block.cols} wide, each with its place")
        if len(self.counts) and not 0 <= self.counts.min() <= self.counts.max() <= block.positions:
            raise BadInput(f"expected 0..{block.positions} rows per example of block {block.name}")
        if int(self.counts.sum(dtype=np.int64)) != len(self.places):
            raise BadInput(f"expected counts to add up to {len(self.places)} rows, got another sum")
        if len(self.places) and not 0 <= self.places.min() <= self.places.max() < block.rows:
            raise BadInput(f"expected rows of block {block.name} in 0..{block.rows - 1}, got one outside")
        if not rises(self.places, self.counts):
            raise BadInput(f"expected each row once per example of block {block.name}, in rising order")

    @classmethod
    def of_touched(cls, block: ParameterBlock, places: NDArray[np.integer], values: Floats32) -> RowDerivatives:
        """From the row (n, positions) of each position, -1 for none, and the derivative (n, positions, cols)
        there. What an example has several times is added up."""
        n, positions = places.shape
        known = places >= 0
        example = np.repeat(np.arange(n), positions).reshape(n, positions)[known]
        keys = example * np.int64(block.rows) + places[known]
        order = np.argsort(keys, kind="stable")
        keys, ordered = keys[order], values[known][order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        if len(first) < len(keys):
            ordered = np.add.reduceat(ordered, first, axis=0)
        owner, place = np.divmod(keys[first], block.rows)
        counts = np.bincount(owner, minlength=n).astype(np.int32)
        return cls(block, place.astype(np.int32), np.ascontiguousarray(ordered, np.float32), counts)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def products(self) -> int:
        """How many products an entry of the sum is made of, at most: an example touches a row once."""
        return len(self.counts)

    @property
    def single(self) -> bool:
        """Norms are sums of squares: nothing that was sent cancels."""
        return True

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """(touched,): the example of each."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def rows(self, start: int, stop: int) -> RowDerivatives:
        """The examples start..stop-1, as views."""
        start, stop, _ = slice(start, stop).indices(len(self))
        first, last = (int(self.counts[:at].sum(dtype=np.int64)) for at in (start, max(start, stop)))
        counts = self.counts[start : max(start, stop)]
        return RowDerivatives(self.block, self.places[first:last], self.values[first:last], counts)

    def weighted_sum(self, weights: NDArray[Any], *, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """sum_i weights_i d_i, (rows, cols); each entry adds up at most one product per example, in float64."""
        if np.shape(weights) != (len(self),):
            raise BadInput(f"expected {len(self)} weights, got shape {np.shape(weights)}")
        touched = len(self.places)
        scaled = np.asarray(weights, np.float64)[self.owners]
        picked = csr_array((scaled, (self.places, np.arange(touched))), shape=(self.block.rows, touched))
        total: NDArray[np.float64] = picked @ self.values.astype(np.float64)
        return total.astype(dtype)

    def squared_norms(self) -> Floats:
        """|d_i|^2 in float64, (n,)."""
        return np.bincount(self.owners, squared_rows(self.values), minlength=len(self)).astype(np.float64)

    def absolute_norms(self) -> Floats:
        """The sum of |entries| of each d_i in float64, (n,)."""
        return np.bincount(self.owners, absolute_rows(self.values), minlength=len(self)).astype(np.float64)

    def as_sparse(self) -> csr_array:
        """(n, rows * cols)."""
        cols = self.block.cols
        entries = (self.places[:, None] * np.int64(cols) + np.arange(cols)).reshape(-1)
        starts = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)]) * cols
        return csr_array((self.values.reshape(-1), entries, starts), shape=(len(self), self.block.parameters))

    def gram(self) -> Floats:
        """All inner products <d_i, d_j> in float64, (n, n)."""
        written = self.as_sparse().astype(np.float64)
        found: Floats = (written @ written.T).toarray()
        return found

    def inner_products(self, matrix: Floats) -> Floats:
        """<d_i, matrix> of every example, (n,)."""
        by_row = np.einsum("pc,pc->p", self.values, matrix[self.places], dtype=np.float64)
        return np.bincount(self.owners, by_row, minlength=len(self)).astype(np.float64)

    def as_dense(self) -> Floats32:
        """Every derivative written out, (n, rows * cols)."""
        written: Floats32 = self.as_sparse().toarray()
        return written

    def renumbered(self, touched: NDArray[np.integer], numbers: NDArray[np.integer]) -> RowDerivatives:
        """The same in a matrix of the `touched` rows alone (rising), of which row i is now `numbers[i]`."""
        block = ParameterBlock(
            self.block.name, max(len(touched), 1), self.block.cols, self.block.positions, by_rows=True
        )
        place = numbers[np.searchsorted(touched, self.places)]
        order = np.lexsort((place, self.owners))
        return RowDerivatives(block, place[order].astype(np.int32), self.values[order], self.counts)

    @classmethod
    def join(cls, block: ParameterBlock, parts: Sequence[RowDerivatives]) -> RowDerivatives:
        """The examples of all parts, one part after the other."""
        return cls(
            block,
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.counts for part in parts]),
        )


def rises(places: NDArray[np.integer], counts: NDArray[np.integer]) -> bool:
    """Whether the places of each example come in rising order, none twice."""
    starts = np.cumsum(counts, dtype=np.int64)[:-1]
    up = np.diff(places.astype(np.int64)) > 0
    inner = np.ones(len(up), np.bool_)
    inner[starts[(starts > 0) & (starts <= len(up))] - 1] = False  # from one example to the next
    return bool(np.all(up[inner]))


ExampleDerivatives = BlockDerivatives | RowDerivatives
Derivatives = Mapping[str, ExampleDerivatives]
"""The derivatives of the same examples in every block, by the block's name."""
