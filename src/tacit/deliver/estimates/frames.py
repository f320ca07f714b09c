"""Which (node, ad) cells an estimate is made for, and where their counts are: dense blocks, or single pairs.

A frame names the rows of its blocks by keys. For a block of nodes and ads a key is a node, and all rows have
the same ads as columns; for pairs a key is node * ads + ad, and blocks have one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.statistics import Counts, Floats, Integers, LevelCounts


@dataclass(frozen=True, eq=False)
class Cells:
    """A block of cells at one level."""

    node: Integers  # (rows,)
    entry: Integers  # (rows, columns) the place in the level's entries, -1 where there is none

    def take(self, by_entry: Floats) -> Floats:
        """(rows, columns) what the entries have, 0 where there is none."""
        if not len(by_entry):
            return np.zeros(self.entry.shape)
        found: Floats = np.where(self.entry >= 0, by_entry[self.entry], 0.0)
        return found

    def spread(self, level: LevelCounts, values: Floats) -> Floats:
        """Values by entry where the level knows what was shown of each ad, by node (one column) where not."""
        return self.take(values) if level.shown is not None else values[self.node][:, None]

    def opportunities(self, level: LevelCounts) -> Floats:
        """(rows, columns or 1) how often the ad could be clicked; noisy ones can be negative."""
        found = self.spread(level, level.total if level.shown is None else level.shown)
        if level.shown is None and level.noise_sd:  # not listed: not released, so nothing is known
            found = np.where(self.entry >= 0, found, 0.0)
        return found


class Frame(Protocol):
    def above(self, counts: Counts, levels: Levels, keys: Integers, coarser: Levels) -> Integers: ...

    def cells(self, level: LevelCounts, keys: Integers) -> Cells: ...


@dataclass(frozen=True, eq=False)
class Block:
    """Rows are nodes, columns the ads asked for, each once."""

    ads: Integers

    def above(self, counts: Counts, levels: Levels, keys: Integers, coarser: Levels) -> Integers:
        return counts.parent[levels, coarser][keys]

    def cells(self, level: LevelCounts, keys: Integers) -> Cells:
        column = np.full(level.ads, -1, np.int64)
        column[self.ads] = np.arange(len(self.ads))
        starts = level.offsets[keys]
        sizes = level.offsets[keys + 1] - starts
        row = np.repeat(np.arange(len(keys)), sizes)
        within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        entry = starts[row] + within
        wanted = column[level.ad[entry]]
        places = np.full((len(keys), len(self.ads)), -1, np.int64)
        places[row[wanted >= 0], wanted[wanted >= 0]] = entry[wanted >= 0]
        return Cells(keys, places)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Each row is one node and one ad."""

    ads: int

    def above(self, counts: Counts, levels: Levels, keys: Integers, coarser: Levels) -> Integers:
        up: Integers = counts.parent[levels, coarser][keys // self.ads] * self.ads + keys % self.ads
        return up

    def cells(self, level: LevelCounts, keys: Integers) -> Cells:
        place = np.searchsorted(level.entry_key, keys)
        there = place < len(level.entry_key)
        there[there] = level.entry_key[place[there]] == keys[there]
        return Cells(keys // self.ads, np.where(there, place, -1)[:, None])
