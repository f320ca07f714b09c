"""How often each fingerprint came, counted over a stream; memory grows with the values, not with the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.data.encoding.tokens import Fingerprints

MERGE_AFTER = 2**18


class Tally:
    """Sorted values with their counts. What came lately waits in small pieces until merging them pays."""

    def __init__(self) -> None:
        self._values: Fingerprints = np.empty(0, dtype=np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[Fingerprints, NDArray[np.int64]]] = []
        self._waiting_size = 0

    def add(self, tokens: Fingerprints) -> None:
        values, counts = np.unique(tokens, return_counts=True)
        self._waiting.append((values, counts.astype(np.int64)))
        self._waiting_size += len(values)
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
        values = np.concatenate([self._values, *(values for values, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._waiting)])
        order = np.argsort(values, kind="stable")
        values, counts = values[order], counts[order]
        first = (
            np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.empty(0, np.intp)
        )
        self._values = values[first]
        self._counts = np.add.reduceat(counts, first) if len(first) else counts
        self._waiting, self._waiting_size = [], 0
