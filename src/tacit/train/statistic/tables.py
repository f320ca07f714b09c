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
from tacit.kernels import cells as kernels

Fields = tuple[int, ...]

DIRECT = 2**22
"""Crossed values up to this many are looked up in an array; more are searched for."""
TABLES_AT_ONCE = 16  # a line of cache of each row's cells
AT_ONCE = 2**17  # rows, so that what is between stays small
HASHES = 1  # a seed: which rows are alike does not depend on it
GRID = 2.0**-20
"""Weights are multiples of it, so that sums of weights over fewer than 2^33 rows are exact in any order."""

ROUNDING = 1 + 2.0**-30
"""More than rounding can take from a norm, a sum of positive terms: 2^-53 for each of fewer than 2^22."""


@dataclass(frozen=True, eq=False)
class AlikeRows:
    """Rows of ids, each kind kept once: `ids` (kept, fields), and for each row which of the kept ones it is.

    Few logs have as many kinds of rows as rows, and what is public about a row costs as much for one as for all
    of its kind.
    """

    ids: NDArray[np.integer]
    alike: NDArray[np.int32]  # (rows,)

    @classmethod
    def of(cls, ids: NDArray[np.integer]) -> AlikeRows:
        """Kept in the order of the field with the most values, so that its cells are visited one after another.
        Two kinds are told apart by all of their ids; a clash of hashes only keeps a kind twice."""
        ids = check_ids(ids)
        if not len(ids):
            return cls(ids, np.zeros(0, np.int32))
        widest = int(np.argmax(ids.max(axis=0)))
        order = np.argsort(_hashes(ids, widest), kind="stable")
        new = np.ones(len(ids), np.bool_)
        for first in range(1, len(ids), AT_ONCE):
            some = ids[order[first - 1 : first + AT_ONCE]]
            new[first : first + AT_ONCE] = (some[1:] != some[:-1]).any(axis=1)
        alike = np.empty(len(ids), np.int32)
        alike[order] = np.cumsum(new, dtype=np.int32) - 1
        return cls(np.asfortranarray(ids[order[new]]), alike)

    @cached_property
    def times(self) -> Floats:
        """How many rows there are of each kind."""
        return np.bincount(self.alike, minlength=len(self.ids)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class TableCells:
    """Rows as 0/1 vectors over all cells of all tables, each kind of row kept once.

    `cell` (kept, tables) numbers the cells of all tables together, with one more at the end for none; `alike`
    (rows,) says which of the kept ones each row is.
    """

    cell: NDArray[np.int32]
    sizes: tuple[int, ...]
    alike: NDArray[np.int32]

    @property
    def rows(self) -> int:
        return len(self.alike)

    @property
    def kept(self) -> int:
        return len(self.cell)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each table begins among all cells, and the end."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @property
    def count(self) -> int:
        return int(self.starts[-1])

    def first(self, tables: int) -> TableCells:
        """The same rows in the first tables alone."""
        count = int(self.starts[tables])
        return TableCells(np.minimum(self.cell[:, :tables], count), self.sizes[:tables], self.alike)

    def add_up(self, by_cell: Floats) -> Floats:
        """For each kept row the sum over its cells, in single precision."""
        total = np.empty(self.kept, np.float32)
        kernels.add_cells(self.cell, np.append(by_cell, 0.0).astype(np.float32), total)
        return total.astype(np.float64)

    def gather(self, by_row: Floats) -> Floats:
        """For each cell the sum over its rows."""
        return self.gather_kept(self.of_kept(by_row))

    def of_kept(self, by_row: Floats) -> Floats:
        """For each kept row the sum over the rows that are alike."""
        return np.bincount(self.alike, by_row, minlength=self.kept).astype(np.float64, copy=False)

    def gather_kept(self, by_kept: Floats) -> Floats:
        """For each cell the sum over kept rows."""
        total = np.zeros(self.count + 1)
        kernels.add_rows_to_cells(self.cell, np.ascontiguousarray(by_kept, np.float64), total)
        return total[:-1]

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
    def of(
        cls, ids: NDArray[np.integer], crossed: Sequence[Fields], times: Floats | None = None
    ) -> tuple[CellTables, list[Integers]]:
        """The tables of these fields, with the cells that occur in `ids`, (rows, fields), and their counts. A
        row counts as many `times`."""
        values = tuple(_values(column) for column in check_ids(ids).T)
        empty = cls(values, tuple(crossed), ())
        places = empty.places(ids) if crossed else []
        found = [_distinct(*empty.key(places, table), times) for table in empty.crossed]
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
        return self.cells(AlikeRows.of(ids))

    def cells(self, rows: AlikeRows) -> TableCells:
        """The cells that these kinds of rows fall into."""
        kept, places = len(rows.ids), self.places(rows.ids)
        starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        cell = np.empty((kept, len(self.crossed)), np.int32)
        for first in range(0, len(self.crossed), TABLES_AT_ONCE):
            block = np.empty((min(TABLES_AT_ONCE, len(self.crossed) - first), kept), np.int32)
            for at, into in enumerate(block, start=first):
                # A last entry for none, so that a look-up needs no other.
                numbered = np.append(np.arange(starts[at], starts[at + 1]), starts[-1]).astype(np.int32)
                into[...] = numbered[_look_up(*self.key(places, self.crossed[at]), self.keys[at])]
            cell[:, first : first + len(block)] = block.T
        return TableCells(cell, self.sizes, rows.alike)

    def places(self, ids: NDArray[np.integer]) -> list[NDArray[np.int32]]:
        """Where each value stands among its field's, one past the last for a value that was not seen."""
        columns = check_ids(ids).T
        if len(columns) != len(self.values):
            raise BadInput(f"expected ids of {len(self.values)} public fields, got {len(columns)}")
        return [_place(column, values) for column, values in zip(columns, self.values, strict=True)]

    def key(self, places: Sequence[NDArray[np.int32]], table: Fields) -> tuple[Integers, int]:
        """The key of each row in a table, and a bound on keys; the bound itself where a value was not seen."""
        most = math.prod(len(self.values[field]) for field in table)
        key = np.zeros(len(places[0]), np.int64)
        for field in table:
            key *= len(self.values[field])
            key += places[field]
        for field in table:
            size = len(self.values[field])
            if len(key) and places[field].max() == size:
                key[places[field] == size] = most
        return key, most

    def ends(self, table: int) -> list[Integers]:
        """Which value of each of its fields a cell of this table stands for."""
        key, found = self.keys[table], []
        for field in reversed(self.crossed[table]):
            key, place = np.divmod(key, len(self.values[field]))
            found.append(place)
        return found[::-1]


def pairs_of_fewest_cells(sizes: Sequence[int], most: int) -> list[Fields]:
    """At most `most` pairs of fields: those that can have the fewest cells. One value alone tells nothing."""
    fields = [field for field, size in enumerate(sizes) if size > 1]
    pairs = sorted(combinations(fields, 2), key=lambda pair: sizes[pair[0]] * sizes[pair[1]])
    return sorted(pairs[:most])


def check_ids(ids: NDArray[np.integer]) -> NDArray[np.integer]:
    ids = np.asarray(ids)
    if ids.ndim != 2 or not ids.shape[1] or ids.dtype.kind not in "iu":
        raise BadInput(
            f"expected public ids as whole numbers of shape (rows, fields), got {ids.dtype} of {ids.shape}"
        )
    return ids


def _hashes(ids: NDArray[np.integer], first: int) -> NDArray[np.uint64]:
    """A number for each row that is the same for the same ids, and rises with those of one field."""
    drawn = np.random.default_rng(HASHES).integers(0, 2**63, ids.shape[1:], dtype=np.uint64)
    odd = 2 * drawn + 1
    found = np.empty(len(ids), np.uint64)
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE].astype(np.uint64)
        mixed = some * odd
        mixed ^= mixed >> np.uint64(31)
        total = mixed.sum(axis=1, dtype=np.uint64) * odd[0]
        found[start : start + AT_ONCE] = (some[:, first] << np.uint64(40)) | (total >> np.uint64(24))
    return found


def _values(column: NDArray[np.integer]) -> NDArray[np.int64]:
    """The distinct values, rising."""
    least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    if least < 0 or most >= DIRECT:
        return np.unique(column).astype(np.int64)
    seen = np.zeros(most + 1, np.bool_)
    seen[column] = True
    return np.flatnonzero(seen[: most + 1] if len(column) else seen[:0]).astype(np.int64)


def _place(column: NDArray[np.integer], values: Integers) -> NDArray[np.int32]:
    if len(values) and len(column) and values[0] >= 0 and values[-1] < DIRECT:
        where = np.full(int(values[-1]) + 2, len(values), np.int32)  # the last one for all that is larger
        where[values] = np.arange(len(values), dtype=np.int32)
        if column.min() < 0 or column.max() > values[-1]:
            column = np.where((column < 0) | (column > values[-1]), len(where) - 1, column)
        found: NDArray[np.int32] = where[column]
        return found
    place = np.minimum(np.searchsorted(values, column), max(len(values) - 1, 0))
    known = values[place] == column if len(values) else np.zeros(len(column), np.bool_)
    return np.where(known, place, len(values)).astype(np.int32)


def _distinct(key: Integers, most: int, times: Floats | None) -> tuple[Integers, Integers]:
    if most <= DIRECT:
        counts = np.bincount(key, times, minlength=most)
        keys = np.flatnonzero(counts)
        return keys, counts[keys].astype(np.int64)
    keys, where = np.unique(key, return_inverse=True)
    return keys, np.bincount(where, times).astype(np.int64)


def _look_up(key: Integers, most: int, keys: Integers) -> NDArray[np.int32]:
    """The cell of each key; the number of cells where there is none."""
    if most <= DIRECT:
        cell = np.full(most + 1, len(keys), np.int32)
        cell[keys] = np.arange(len(keys), dtype=np.int32)
        return cell[key]
    return _place(key, keys)


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
    counts = np.bincount(unit, minlength=units)
    alone = counts[unit] == 1
    of_kept = np.empty(cells.kept)
    for first in range(0, cells.kept, AT_ONCE):
        of_kept[first : first + AT_ONCE] = (cells.cell[first : first + AT_ONCE] < cells.count) @ shares
    squares = np.zeros(units)
    squares[unit[alone]] = of_kept[cells.alike[alone]]
    if alone.all():
        return np.sqrt(squares)
    several = np.flatnonzero(~alone)
    several = several[np.argsort(unit[several], kind="stable")]  # unit by unit
    sorted_unit, kept = unit[several].astype(np.int64), cells.alike[several]
    for cell, share in zip(cells.cell.T, shares, strict=True):
        key = np.sort(sorted_unit * (cells.count + 1) + cell[kept])
        first_of = np.flatnonzero(np.diff(key, prepend=-1))
        times = np.diff(np.append(first_of, len(key))).astype(np.float64)
        owner, where = np.divmod(key[first_of], cells.count + 1)
        squares += share * np.bincount(owner, np.where(where < cells.count, times, 0.0) ** 2, minlength=units)
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
