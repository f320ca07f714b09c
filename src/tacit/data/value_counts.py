"""Exact value counts over a stream, in memory or spilled to temporary files.

    with open_tallies(most_held=2**20) as counts:
        counts.add("site", count_values(tokens))
        sizes = counts.sizes("site")
        len(sizes), sizes.quantile(0.5)      # distinct values, and the count of the median one

Values are 64-bit fingerprints. A `ValueTally` grows with the distinct values, not with the rows.
`DiskTallies` holds a bounded number of values: beyond it, the largest tally is written to a file as a sorted
run of values and counts. Runs are merged by reading them side by side, one range of values at a time.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.data.encoding.fingerprints import Fingerprints
from tacit.data.folders import map_array

MERGE_AFTER = 2**18

ValueCounts = tuple[Fingerprints, NDArray[np.int64]]  # rising values, and how often each came


def count_values(tokens: Fingerprints) -> ValueCounts:
    """The distinct tokens, and how often each came."""
    values, counts = np.unique(tokens, return_counts=True)
    return values, counts.astype(np.int64, copy=False)


def merge_counts(pieces: Sequence[ValueCounts]) -> ValueCounts:
    """The counts of all pieces, value by value."""
    values = np.concatenate([values for values, _ in pieces])
    counts = np.concatenate([counts for _, counts in pieces])
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    if not len(values):
        return values, counts
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return values[first], np.add.reduceat(counts, first)


class ValueTally:
    """Sorted values with their counts. What came lately waits in small pieces until merging them pays."""

    def __init__(self) -> None:
        self._values: Fingerprints = np.empty(0, dtype=np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._waiting: list[ValueCounts] = []
        self._waiting_size = 0

    @property
    def values_in_memory(self) -> int:
        """The number of values in memory; some count twice."""
        return len(self._values) + self._waiting_size

    def add(self, tokens: Fingerprints) -> None:
        self.add_counts(count_values(tokens))

    def add_counts(self, counts: ValueCounts) -> None:
        self._waiting.append(counts)
        self._waiting_size += len(counts[0])
        # Rarely enough that each value is moved only a few times.
        if self._waiting_size > max(MERGE_AFTER, len(self._values)):
            self._merge()

    @property
    def values(self) -> Fingerprints:
        self._merge()
        return self._values

    @property
    def counts(self) -> NDArray[np.int64]:
        self._merge()
        return self._counts

    def _merge(self) -> None:
        if not self._waiting:
            return
        self._values, self._counts = merge_counts([(self._values, self._counts), *self._waiting])
        self._waiting, self._waiting_size = [], 0


# Values in memory, of all tallies together: 16 bytes each, and a few times that while they are sorted.
MOST_HELD = 2**20
STRETCH = 2**17  # values of all runs that are looked at together


@dataclass(frozen=True)
class CountHistogram:
    """The number of values by how often they came: all that skew figures need, in a few thousand numbers."""

    often: NDArray[np.int64]  # rising
    values: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.values.sum())

    @property
    def total(self) -> int:
        return int(self.often @ self.values)

    @property
    def mean(self) -> float:
        return self.total / len(self)

    def share_from(self, low: int, high: float = math.inf) -> float:
        """The share of values that came at least `low` and at most `high` times."""
        return int(self.values[(self.often >= low) & (self.often <= high)].sum()) / len(self)

    def quantile(self, share: float) -> float:
        """The quantile of the counts, as NumPy interpolates it."""
        place = share * (len(self) - 1)
        below, above = self._at(math.floor(place)), self._at(math.ceil(place))
        return below + (above - below) * (place - math.floor(place))

    def top(self, count: int) -> int:
        """How often the `count` most frequent values came, all together."""
        places = np.minimum(np.cumsum(self.values[::-1]), count)
        return int(np.diff(places, prepend=0) @ self.often[::-1])

    @property
    def gini(self) -> float:
        """Gini coefficient: 0 where all values come equally often; near 1 where few take nearly all."""
        if not self.total:
            return 0.0
        ahead = np.cumsum(self.values) - self.values  # values that come less often
        behind = len(self) - ahead - self.values
        # Of a group, each member counts as many times as there are values behind it less those ahead.
        weighed = sum(
            often * count * (less - more)
            for often, count, less, more in zip(
                *(each.tolist() for each in (self.often, self.values, ahead, behind)), strict=True
            )
        )
        return float(weighed / (len(self) * self.total))

    def _at(self, place: int) -> int:
        return int(self.often[np.searchsorted(np.cumsum(self.values), place, side="right")])


class DiskTallies:
    """Counts of values by name. Where all together hold more than `most_held`, the largest goes to disk."""

    def __init__(self, folder: Path, most_held: int) -> None:
        self._folder, self._most_held = folder, most_held
        self._held: dict[str, ValueTally] = {}
        self._runs: dict[str, list[Path]] = {}
        self._written = 0

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def add(self, name: str, counts: ValueCounts) -> None:
        self._held.setdefault(name, ValueTally()).add_counts(counts)
        while sum(tally.values_in_memory for tally in self._held.values()) > self._most_held:
            self._spill(max(self._held, key=lambda each: self._held[each].values_in_memory))

    def sizes(self, name: str) -> CountHistogram:
        """The number of values of this name by how often they came."""
        found: Counter[int] = Counter()
        for _, counts in self.iterate_sorted(name):
            often, values = np.unique(counts, return_counts=True)
            for each, count in zip(often.tolist(), values.tolist(), strict=True):
                found[each] += count
        often = np.array(sorted(found), dtype=np.int64)
        return CountHistogram(often, np.array([found[each] for each in often.tolist()], dtype=np.int64))

    def iterate_sorted(self, name: str) -> Iterator[ValueCounts]:
        """All values in rising order with their counts, a stretch at a time."""
        tally = self._held[name]
        runs = [(tally.values, tally.counts), *(_read_run(path) for path in self._runs.get(name, ()))]
        # Between two edges lie at most 2 * len(runs) * step values, however they are spread.
        step = max(1, STRETCH // (2 * len(runs)))
        edges = np.unique(np.concatenate([values[step - 1 :: step] for values, _ in runs]))[:: len(runs)]
        places = [
            [0, *np.searchsorted(values, edges, side="right").tolist(), len(values)] for values, _ in runs
        ]
        for stretch in range(len(edges) + 1):
            pieces = [
                (values[place[stretch] : place[stretch + 1]], counts[place[stretch] : place[stretch + 1]])
                for (values, counts), place in zip(runs, places, strict=True)
            ]
            yield merge_counts(pieces)

    def _spill(self, name: str) -> None:
        tally, self._held[name] = self._held[name], ValueTally()
        self._written += 1
        path = self._folder / f"{self._written}.npy"
        np.save(path, np.stack([tally.values, tally.counts.view(np.uint64)]))
        self._runs.setdefault(name, []).append(path)


@contextmanager
def open_tallies(most_held: int = MOST_HELD) -> Iterator[DiskTallies]:
    """Tallies whose temporary files are removed at the end; only the owner can read them."""
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        yield DiskTallies(Path(folder), most_held)


def sortable_bits(numbers: NDArray[np.float64]) -> Fingerprints:
    """Numbers as 64 bits whose order is that of the numbers; `numbers_from_bits` is the way back."""
    bits = (numbers + 0.0).view(np.uint64)  # -0 is 0
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(2**63))


def numbers_from_bits(bits: Fingerprints) -> NDArray[np.float64]:
    back: Fingerprints = np.where(bits >> np.uint64(63), bits ^ np.uint64(2**63), ~bits)
    return back.view(np.float64)


def _read_run(path: Path) -> ValueCounts:
    values, counts = map_array(path)
    return values, counts.view(np.int64)
