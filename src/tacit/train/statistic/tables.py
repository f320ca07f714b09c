"""Tables over public fields: one for each field, some for pairs of fields, one with a single cell for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.train.statistic.cells import Cells

Whole = NDArray[np.int64]
Fields = tuple[int, ...]

DIRECT = 2**22
"""Crossed values up to this many are looked up in an array; more are searched for."""


@dataclass(frozen=True, eq=False)
class Tables:
    """A map from public ids to one-hot cells: a row falls into at most one cell of each table.

    `values` holds the values of each field, rising; `crossed` the fields of each table, () being the table of
    one cell that every row falls into; `keys` the cells of each table, rising. The key of a pair of values is
    the place of the first times the number of the second field's values, plus the place of the second. What
    was not there when the tables were made has no cell, so that no noise is spent on it.
    """

    values: tuple[NDArray[np.int64], ...]
    crossed: tuple[Fields, ...]
    keys: tuple[Whole, ...]

    @classmethod
    def of(cls, ids: NDArray[np.integer], crossed: Sequence[Fields]) -> tuple[Tables, list[Whole]]:
        """The tables of these fields, with the cells that occur in `ids`, (rows, fields), and their counts."""
        values = tuple(np.unique(column).astype(np.int64) for column in checked(ids).T)
        empty = cls(values, tuple(crossed), ())
        places = empty.places(ids)
        found = [_distinct(*empty.key(places, table)) for table in empty.crossed]
        return cls(values, empty.crossed, tuple(keys for keys, _ in found)), [counts for _, counts in found]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(keys) for keys in self.keys)

    def only(self, kept: Sequence[int]) -> Tables:
        """Some of the tables."""
        return Tables(self.values, tuple(self.crossed[at] for at in kept), tuple(self.keys[at] for at in kept))

    def rows(self, ids: NDArray[np.integer]) -> Cells:
        """The cells that these rows fall into."""
        places = self.places(ids)
        found = []
        for table, keys in zip(self.crossed, self.keys, strict=True):
            key, most = self.key(places, table)
            found.append(_look_up(key, keys, most))
        return Cells(tuple(found), self.sizes, len(places[0]) if places else len(ids))

    def places(self, ids: NDArray[np.integer]) -> list[Whole]:
        """Where each value stands among its field's, one past the last for a value that was not seen."""
        columns = checked(ids).T
        if len(columns) != len(self.values):
            raise BadInput(f"expected ids of {len(self.values)} public fields, got {len(columns)}")
        return [_place(column, values) for column, values in zip(columns, self.values, strict=True)]

    def key(self, places: Sequence[Whole], table: Fields) -> tuple[Whole, int]:
        """The key of each row in a table, and a bound on keys; the bound itself where a value was not seen."""
        rows = len(places[0])
        key, most, strange = np.zeros(rows, np.int64), 1, np.zeros(rows, bool)
        for field in table:
            size = len(self.values[field])
            strange |= places[field] == size
            key, most = key * size + places[field], most * size
        key[strange] = most
        return key, most

    def ends(self, table: int) -> list[Whole]:
        """Which value of each of its fields a cell of this table stands for."""
        key, found = self.keys[table], []
        for field in reversed(self.crossed[table]):
            key, place = np.divmod(key, len(self.values[field]))
            found.append(place)
        return found[::-1]


def pairs_of_fewest_cells(sizes: Sequence[int], most: int) -> list[Fields]:
    """So many pairs of fields, those first that can have the fewest cells."""
    pairs = sorted(combinations(range(len(sizes)), 2), key=lambda pair: sizes[pair[0]] * sizes[pair[1]])
    return sorted(pairs[:most])


def checked(ids: NDArray[np.integer]) -> NDArray[np.integer]:
    ids = np.asarray(ids)
    if ids.ndim != 2 or not ids.shape[1] or ids.dtype.kind not in "iu":
        raise BadInput(
            f"expected public ids as whole numbers of shape (rows, fields), got {ids.dtype} of {ids.shape}"
        )
    return ids


def _place(column: NDArray[np.integer], values: Whole) -> Whole:
    place = np.minimum(np.searchsorted(values, column), max(len(values) - 1, 0))
    known = values[place] == column if len(values) else np.zeros(len(column), bool)
    return np.where(known, place, len(values))


def _distinct(key: Whole, most: int) -> tuple[Whole, Whole]:
    if most <= DIRECT:
        counts = np.bincount(key, minlength=most)
        keys = np.flatnonzero(counts)
        return keys, counts[keys]
    return np.unique(key, return_counts=True)


def _look_up(key: Whole, keys: Whole, most: int) -> NDArray[np.int32]:
    """The cell of each key; the number of cells where there is none."""
    if most <= DIRECT:
        cell = np.full(most + 1, len(keys), np.int32)
        cell[keys] = np.arange(len(keys), dtype=np.int32)
        return cell[key]
    return _place(key, keys).astype(np.int32)
