"""Tables over public fields, the cells that rows fall into, and how far one unit can move their sums.

There is one table for each field, some for pairs of fields, and one with a single cell for all rows. A unit
whose rows together are too long is weighed down, and the exact sensitivity follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats, Integers
from tacit.errors import BadInput

Fields = tuple[int, ...]

DIRECT = 2**22
"""Crossed values up to this many are looked up in an array; more are searched for."""
GRID = 2.0**-20
"""Weights are multiples of it, so that sums of weights over fewer than 2^33 rows are exact in any order."""

ROUNDING = 1 + 2.0**-30
"""More than rounding can take from a norm, a sum of positive terms: 2^-53 for each of fewer than 2^22."""


@dataclass(frozen=True, eq=False)
class TableCells:
    """Rows as 0/1 vectors over all cells of all tables: `cell[t][i]` is row i's cell in table t, or `sizes[t]`
    where it has none."""

    cell: tuple[NDArray[np.int32], ...]
    sizes: tuple[int, ...]
    rows: int

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each table begins among all cells, and the end."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @property
    def count(self) -> int:
        return int(self.starts[-1])

    def add_up(self, by_cell: Floats) -> Floats:
        """For each row the sum over its cells."""
        total = np.zeros(self.rows)
        for cell, start, size in zip(self.cell, self.starts, self.sizes, strict=False):
            table = np.append(by_cell[start : start + size], 0.0)
            total += table[cell]
        return total

    def gather(self, by_row: Floats) -> Floats:
        """For each cell the sum over its rows."""
        if not self.cell:
            return np.zeros(0)
        return np.concatenate(
            [
                np.bincount(cell, by_row, minlength=size + 1)[:size]
                for cell, size in zip(self.cell, self.sizes, strict=True)
            ]
        )

    def by_table(self, of_tables: Floats) -> Floats:
        """A number of each table, for each of its cells."""
        return np.repeat(of_tables, self.sizes)


@dataclass(frozen=True, eq=False)
class CellTables:
    """A map from public ids to one-hot cells: a row falls into at most one cell of each table.

    `values` holds the values of each field, rising; `crossed` the fields of each table, () being the table of
    one cell that every row falls into; `keys` the cells of each table, rising. The key of a pair of values is
    the place of the first times the number of the second field's values, plus the place of the second. What
    was not there when the tables were made has no cell, so that no noise is spent on it.
    """

    values: tuple[NDArray[np.int64], ...]
    crossed: tuple[Fields, ...]
    keys: tuple[Integers, ...]

    @classmethod
    def of(cls, ids: NDArray[np.integer], crossed: Sequence[Fields]) -> tuple[CellTables, list[Integers]]:
        """The tables of these fields, with the cells that occur in `ids`, (rows, fields), and their counts."""
        values = tuple(np.unique(column).astype(np.int64) for column in check_ids(ids).T)
        empty = cls(values, tuple(crossed), ())
        places = empty.places(ids)
        found = [_distinct(*empty.key(places, table)) for table in empty.crossed]
        return cls(values, empty.crossed, tuple(keys for keys, _ in found)), [counts for _, counts in found]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(keys) for keys in self.keys)

    def only(self, kept: Sequence[int]) -> CellTables:
        """Some of the tables."""
        return CellTables(
            self.values, tuple(self.crossed[at] for at in kept), tuple(self.keys[at] for at in kept)
        )

    def rows(self, ids: NDArray[np.integer]) -> TableCells:
        """The cells that these rows fall into."""
        places = self.places(ids)
        found = []
        for table, keys in zip(self.crossed, self.keys, strict=True):
            key, most = self.key(places, table)
            found.append(_look_up(key, keys, most))
        return TableCells(tuple(found), self.sizes, len(places[0]) if places else len(ids))

    def places(self, ids: NDArray[np.integer]) -> list[Integers]:
        """Where each value stands among its field's, one past the last for a value that was not seen."""
        columns = check_ids(ids).T
        if len(columns) != len(self.values):
            raise BadInput(f"expected ids of {len(self.values)} public fields, got {len(columns)}")
        return [_place(column, values) for column, values in zip(columns, self.values, strict=True)]

    def key(self, places: Sequence[Integers], table: Fields) -> tuple[Integers, int]:
        """The key of each row in a table, and a bound on keys; the bound itself where a value was not seen."""
        rows = len(places[0])
        key, most, strange = np.zeros(rows, np.int64), 1, np.zeros(rows, bool)
        for field in table:
            size = len(self.values[field])
            strange |= places[field] == size
            key, most = key * size + places[field], most * size
        key[strange] = most
        return key, most

    def ends(self, table: int) -> list[Integers]:
        """Which value of each of its fields a cell of this table stands for."""
        key, found = self.keys[table], []
        for field in reversed(self.crossed[table]):
            key, place = np.divmod(key, len(self.values[field]))
            found.append(place)
        return found[::-1]


def pairs_of_fewest_cells(sizes: Sequence[int], most: int) -> list[Fields]:
    """At most `most` pairs of fields: those that can have the fewest cells."""
    pairs = sorted(combinations(range(len(sizes)), 2), key=lambda pair: sizes[pair[0]] * sizes[pair[1]])
    return sorted(pairs[:most])


def check_ids(ids: NDArray[np.integer]) -> NDArray[np.integer]:
    ids = np.asarray(ids)
    if ids.ndim != 2 or not ids.shape[1] or ids.dtype.kind not in "iu":
        raise BadInput(
            f"expected public ids as whole numbers of shape (rows, fields), got {ids.dtype} of {ids.shape}"
        )
    return ids


def _place(column: NDArray[np.integer], values: Integers) -> Integers:
    place = np.minimum(np.searchsorted(values, column), max(len(values) - 1, 0))
    known = values[place] == column if len(values) else np.zeros(len(column), bool)
    return np.where(known, place, len(values))


def _distinct(key: Integers, most: int) -> tuple[Integers, Integers]:
    if most <= DIRECT:
        counts = np.bincount(key, minlength=most)
        keys = np.flatnonzero(counts)
        return keys, counts[keys]
    return np.unique(key, return_counts=True)


def _look_up(key: Integers, keys: Integers, most: int) -> NDArray[np.int32]:
    """The cell of each key; the number of cells where there is none."""
    if most <= DIRECT:
        cell = np.full(most + 1, len(keys), np.int32)
        cell[keys] = np.arange(len(keys), dtype=np.int32)
        return cell[key]
    return _place(key, keys).astype(np.int32)


def unit_norms(cells: TableCells, shares: Floats, unit: NDArray[np.intp]) -> Floats:
    """For each unit 0, 1, ... the length of the sum of its rows' vectors, tables scaled by roots of shares.

    Guarantee:  replacing the labels of one unit moves S = sum_i y_i phi_i, in that scale, by at most its norm;
                by exactly that much when they all turn from 0 to 1.
    Neighbours: replace label, for one unit. Rows, cells and units are the same in both datasets.
    Assumes:    labels in [0, 1].
    Source:     S moves by sum_j d_j phi_j over the unit's rows, |d_j| <= 1. Entries of phi are >= 0, so no
                entry of that sum is larger in size than that of sum_j phi_j, and neither is its length.
    """
    units = int(unit.max()) + 1 if len(unit) else 0
    squares = np.zeros(units)
    order = np.argsort(unit, kind="stable")
    counts = np.bincount(unit, minlength=units)
    alone = counts[unit] == 1
    several = order[~alone[order]]  # rows of units of more than one, unit by unit
    sorted_unit = unit[several].astype(np.int64)
    for cell, size, share in zip(cells.cell, cells.sizes, shares, strict=True):
        squares[unit[alone]] += share * (cell[alone] < size)
        key = np.sort(sorted_unit * (size + 1) + cell[several])
        first = np.flatnonzero(np.diff(key, prepend=-1))
        times = np.diff(np.append(first, len(key))).astype(np.float64)
        owner, where = np.divmod(key[first], size + 1)
        squares += share * np.bincount(owner, np.where(where < size, times, 0.0) ** 2, minlength=units)
    return np.sqrt(squares)


def unit_weights(norms: Floats, clip_norm: float) -> Floats:
    """1 for a unit whose norm is at most `clip_norm`, and less in proportion for others; rounded down."""
    share = np.minimum(1.0, clip_norm / np.maximum(norms * ROUNDING, clip_norm))
    weights: Floats = np.floor(share / GRID) * GRID
    return weights


def sensitivity(norms: Floats, weights: Floats) -> float:
    """The largest weighted norm of a unit, rounded up: what `GaussianStatistic` asks for."""
    most = float(np.max(norms * weights, initial=0.0))
    return math.nextafter(most * ROUNDING, math.inf)
