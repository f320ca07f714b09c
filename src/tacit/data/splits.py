"""Splits of a log into train, validation and test rows: by time, at random, or by user.

>>> split = LogSplit("chronological", {"train": .8, "validation": .1, "test": .1})
>>> {name: len(rows) for name, rows in split.parts(10).items()}
{'train': 8, 'validation': 1, 'test': 1}
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.kernels.fingerprints import whole_fingerprints

LARGEST_SEED = 2**63 - 1
CHUNK = 2**20  # rows


class Way(Choice):
    """How rows are divided into parts."""

    CHRONOLOGICAL = "chronological"  # by the time column; by the file's order where a log has none
    RANDOM = "random"  # every row by itself
    BY_USER = "by-user"  # all rows of a person in the same part


@dataclass(frozen=True)
class RowSet:
    """Some rows of a log: a stretch, which costs no memory and reads without copying, or a list of them."""

    at: slice | NDArray[np.int64]

    __repr__ = brief_repr

    def __len__(self) -> int:
        return self.at.stop - self.at.start if isinstance(self.at, slice) else len(self.at)

    def of(self, column: NDArray[Any]) -> NDArray[Any]:
        """These rows of a column: a view for a stretch, else a copy."""
        if isinstance(self.at, slice):
            return column[self.at]
        taken: NDArray[Any] = np.asarray(column).take(self.at, axis=0)  # a third of the time of indexing
        return taken


@dataclass(frozen=True)
class LogSplit:
    """A split of a log: named shares that add up to one. `seed` belongs to the ways that draw.

    The draw is a public hash of the row's number or of the person's key: anybody can repeat it.
    """

    way: Way
    shares: Mapping[str, Fraction]
    seed: int = field(default=0)

    __repr__ = brief_repr

    def __init__(self, way: Way | str, shares: Mapping[str, expect.Number], seed: int = 0) -> None:
        expect.kind("shares", shares, Mapping)
        exact = {name: expect.probability(f"share {name}", share, one=True) for name, share in shares.items()}
        if sum(exact.values()) != 1:
            raise BadInput(f"expected shares that add up to 1, got {float(sum(exact.values()))!r}")
        object.__setattr__(self, "way", Way(way))
        object.__setattr__(self, "shares", MappingProxyType(exact))
        object.__setattr__(self, "seed", expect.whole("seed", seed, at_least=0))
        if self.seed > LARGEST_SEED:
            raise BadInput(f"expected a seed of at most {LARGEST_SEED}, got {self.seed}")

    def parts(
        self,
        rows: int,
        *,
        times: NDArray[np.int64] | None = None,
        users: NDArray[np.uint64] | None = None,
    ) -> dict[str, RowSet]:
        """The rows of each part. Every row is in exactly one."""
        if self.way is Way.CHRONOLOGICAL:
            return self._chronological(rows, times)
        parts = [self._part_of(slice(first, first + CHUNK), rows, users) for first in range(0, rows, CHUNK)]
        part = np.concatenate([np.empty(0, dtype=np.uint8), *parts])
        return {name: RowSet(np.flatnonzero(part == index)) for index, name in enumerate(self.shares)}

    def sizes(self, rows: int, *, users: NDArray[np.uint64] | None = None) -> dict[str, int]:
        """The number of rows in each part, in little memory: parts that are lists of rows grow with the log."""
        if self.way is Way.CHRONOLOGICAL:
            return {name: len(part) for name, part in self._chronological(rows, None).items()}
        counts = np.zeros(len(self.shares), dtype=np.int64)
        for first in range(0, rows, CHUNK):
            part = self._part_of(slice(first, first + CHUNK), rows, users)
            counts += np.bincount(part, minlength=len(counts))
        return dict(zip(self.shares, counts.tolist(), strict=True))

    def _part_of(self, stretch: slice, rows: int, users: NDArray[np.uint64] | None) -> NDArray[np.uint8]:
        """The index of the part that each row of a stretch is in, for the ways that draw."""
        if self.way is Way.RANDOM:
            named = np.arange(stretch.start, min(stretch.stop, rows))
        elif users is None:
            raise BadInput("expected a user column for a split by user, got a log without one")
        else:
            named = np.ascontiguousarray(users[stretch]).view(np.int64)
        edges = [int(edge * 2**64) for edge in self._edges()]
        drawn = whole_fingerprints(named, self._stream)
        return np.searchsorted(np.array(edges[1:-1], dtype=np.uint64), drawn, side="right").astype(np.uint8)

    def __str__(self) -> str:
        return f"{self.way}, {', '.join(f'{name} {float(share):g}' for name, share in self.shares.items())}"

    def refuse_sensitive(self, place: str, sensitive_keys: Collection[str]) -> None:
        """Which part a row is in will be known, so nothing sensitive may decide it."""
        key = {Way.BY_USER: "user", Way.CHRONOLOGICAL: "time"}.get(self.way)
        if key in sensitive_keys:
            raise BadInput(
                f"{place}: expected a split that anybody may know, got {self.way}, and the {key} is sensitive"
            )

    def as_json(self) -> dict[str, Any]:
        return {
            "way": str(self.way),
            "shares": {name: str(share) for name, share in self.shares.items()},
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> LogSplit:
        expect.kind("record", record, Mapping)
        if not isinstance(record["shares"], Mapping):
            raise BadInput("expected a split's shares by the names of its parts, got others")
        return cls(record["way"], record["shares"], record["seed"])

    @property
    def _stream(self) -> int:
        return int(whole_fingerprints(np.array([self.seed]), 0)[0])

    def _edges(self) -> Iterator[Fraction]:
        total = Fraction(0)
        yield total
        for share in self.shares.values():
            total += share
            yield total

    def _chronological(self, rows: int, times: NDArray[np.int64] | None) -> dict[str, RowSet]:
        at = [int(edge * rows) for edge in self._edges()]
        stretches = {
            name: slice(first, past) for name, first, past in zip(self.shares, at[:-1], at[1:], strict=True)
        }
        if times is None or bool(np.all(times[1:] >= times[:-1])):
            return {name: RowSet(stretch) for name, stretch in stretches.items()}
        order = np.argsort(times, kind="stable")
        return {name: RowSet(np.sort(order[stretch])) for name, stretch in stretches.items()}
