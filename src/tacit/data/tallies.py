"""How often each value came, exactly and in little memory: what is too much waits in temporary files.

    with tallies(most_held=2**20) as so_far:
        so_far.add("site", tokens)
        sizes = so_far.sizes("site")
        len(sizes), sizes.quantile(0.5)      # values, and how often the median one came

Each file is a sorted run of values with their counts; runs are read side by side, a stretch of values at a
time.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.data.arrays import map_array
from tacit.data.encoding.counting import Counts, Tally, merged
from tacit.data.encoding.tokens import Fingerprints

MOST_HELD = (
    2**20
)  # values in memory, of all tallies together: 16 bytes each, and some times that while they are sorted
STRETCH = 2**17  # values of all runs that are looked at together


@dataclass(frozen=True)
class Sizes:
    """How many values came so often: all that figures of unevenness need, and a few thousand numbers."""

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
        """As NumPy has it: between two neighbours, by the distance from each."""
        place = share * (len(self) - 1)
        below, above = self._at(math.floor(place)), self._at(math.ceil(place))
        return below + (above - below) * (place - math.floor(place))

    def top(self, count: int) -> int:
        """How often the so many most frequent values came together."""
        places = np.minimum(np.cumsum(self.values[::-1]), count)
        return int(np.diff(places, prepend=0) @ self.often[::-1])

    @property
    def gini(self) -> float:
        """0 where all values come equally often; near 1 where few take nearly everything."""
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


class Tallies:
    """Counts of values by name. Where all together hold more than `most_held`, the largest goes to disk."""

    def __init__(self, folder: Path, most_held: int) -> None:
        self._folder, self._most_held = folder, most_held
        self._held: dict[str, Tally] = {}
        self._runs: dict[str, list[Path]] = {}
        self._written = 0

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def add(self, name: str, counts: Counts) -> None:
        self._held.setdefault(name, Tally()).add_counts(counts)
        while sum(tally.held for tally in self._held.values()) > self._most_held:
            self._spill(max(self._held, key=lambda each: self._held[each].held))

    def sizes(self, name: str) -> Sizes:
        found: Counter[int] = Counter()
        for _, counts in self.rising(name):
            often, values = np.unique(counts, return_counts=True)
            for each, count in zip(often.tolist(), values.tolist(), strict=True):
                found[each] += count
        often = np.array(sorted(found), dtype=np.int64)
        return Sizes(often, np.array([found[each] for each in often.tolist()], dtype=np.int64))

    def rising(self, name: str) -> Iterator[Counts]:
        """All values in rising order with their counts, a stretch at a time."""
        tally = self._held[name]
        runs = [(tally.values, tally.counts), *(_run(path) for path in self._runs.get(name, ()))]
        # Between so many edges lie at most (len(runs) + len(runs)) * step values, however they are spread.
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
            yield merged(pieces)

    def _spill(self, name: str) -> None:
        tally, self._held[name] = self._held[name], Tally()
        self._written += 1
        path = self._folder / f"{self._written}.npy"
        np.save(path, np.stack([tally.values, tally.counts.view(np.uint64)]))
        self._runs.setdefault(name, []).append(path)


@contextmanager
def tallies(most_held: int = MOST_HELD) -> Iterator[Tallies]:
    """Tallies whose files go when the work ends; nobody else can read them meanwhile."""
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        yield Tallies(Path(folder), most_held)


def as_rising(numbers: NDArray[np.float64]) -> Fingerprints:
    """Numbers as 64 bits whose order is that of the numbers; `as_numbers` is the way back."""
    bits = (numbers + 0.0).view(np.uint64)  # -0 is 0
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(2**63))


def as_numbers(bits: Fingerprints) -> NDArray[np.float64]:
    back: Fingerprints = np.where(bits >> np.uint64(63), bits ^ np.uint64(2**63), ~bits)
    return back.view(np.float64)


def _run(path: Path) -> Counts:
    values, counts = map_array(path)
    return values, counts.view(np.int64)
