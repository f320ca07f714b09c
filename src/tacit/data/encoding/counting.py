"""How often each fingerprint came, counted over a stream; memory grows with the values, not with the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.data.encoding.tokens import Fingerprints

MERGE_AFTER = 2**18

Counts = tuple[Fingerprints, NDArray[np.int64]]  # rising values, and how often each came


def counted(tokens: Fingerprints) -> Counts:
    """How often each token came."""
    values, counts = np.unique(tokens, return_counts=True)
    return values, counts.astype(np.int64, copy=False)


def merged(pieces: Sequence[Counts]) -> Counts:
    """The counts of all pieces, value by value."""
    values = np.concatenate([values for values, _ in pieces])
    counts = np.concatenate([counts for _, counts in pieces])
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    if not len(values):
        return values, counts
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return values[first], np.add.reduceat(counts, first)


class Tally:
    """Sorted values with their counts. What came lately waits in small pieces until merging them pays."""

    def __init__(self) -> None:
        self._values: Fingerprints = np.empty(0, dtype=np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._waiting: list[Counts] = []
        self._waiting_size = 0

    @property
    def held(self) -> int:
        """How many values are in memory; some twice."""
        return len(self._values) + self._waiting_size

    def add(self, tokens: Fingerprints) -> None:
        self.add_counts(counted(tokens))

    def add_counts(self, counts: Counts) -> None:
        self._waiting.append(counts)
        self._waiting_size += len(counts[0])
        if self._waiting_size > max(
            MERGE_AFTER, len(self._values)
        ):  # so that each value is moved a few times only
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
        self._values, self._counts = merged([(self._values, self._counts), *self._waiting])
        self._waiting, self._waiting_size = [], 0
