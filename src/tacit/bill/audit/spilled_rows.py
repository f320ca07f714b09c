"""Rows of fixed length, compared by how they begin, however many there are: beyond some memory they go to disk.

Rows are dealt into buckets by their first byte, so those with the same beginning meet in one bucket, and only
one bucket is in memory at a time. The first bytes should be spread evenly, as those of digests are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import groupby

from tacit.display import brief

BUCKETS = 32  # each of them an open file, once it is large
BUCKET_MEMORY = 2**19  # bytes of a bucket that stay in memory


class SpilledRows:
    """Rows of `size` bytes whose first `key` bytes are what they are compared by. Its files have no name, and
    are gone with it."""

    def __init__(self, size: int, key: int) -> None:
        self._size, self._key = size, key
        self._buckets = [tempfile.SpooledTemporaryFile(BUCKET_MEMORY) for _ in range(BUCKETS)]  # noqa: SIM115

    def __repr__(self) -> str:
        return brief(self, size=self._size, key=self._key)

    def close(self) -> None:
        for bucket in self._buckets:
            bucket.close()

    def add(self, row: bytes) -> None:
        self._buckets[row[0] % BUCKETS].write(row)

    def groups(self) -> Iterator[list[bytes]]:
        """All rows that begin alike, together and in order of what follows."""
        for bucket in self._buckets:
            bucket.seek(0)
            held = bucket.read()
            rows = sorted(held[at : at + self._size] for at in range(0, len(held), self._size))
            for _, alike in groupby(rows, key=lambda row: row[: self._key]):
                yield list(alike)
