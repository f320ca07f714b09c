"""The two ways in which a side's tokens become rows of its embedding table: fixed bins, or a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.data.encoding.tokens import Fingerprints, missing_fingerprint
from tacit.errors import BadInput

Ids = NDArray[np.int32]
LARGEST = 2**31 - 1


class Side(Protocol):
    """Public or sensitive: all fields of a side share one table of `size` rows."""

    @property
    def size(self) -> int: ...

    def ids(self, field: str, tokens: Fingerprints) -> Ids: ...


@dataclass(frozen=True)
class Hashing:
    """Every token falls into one of `size` bins by its fingerprint alone: nothing is learned from the data."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", expect.whole("bins", self.size, at_least=1))
        if self.size > LARGEST:
            raise BadInput(f"expected at most {LARGEST} bins, got {self.size}")

    def ids(self, field: str, tokens: Fingerprints) -> Ids:  # noqa: ARG002 (the tokens carry the field)
        bins = tokens >> np.uint64(32)
        bins *= np.uint64(self.size)  # in place: new arrays cost more than the arithmetic
        bins >>= np.uint64(32)
        return bins.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Each field has a row for a missing value, one for values that are not listed, and one for each that is.

    `listed` holds the fingerprints of a field's values, sorted. The rows of a field lie together.
    """

    fields: tuple[str, ...]
    listed: tuple[Fingerprints, ...]

    def __post_init__(self) -> None:
        if len(self.fields) != len(self.listed) or len(set(self.fields)) != len(self.fields):
            raise BadInput(
                f"expected one list of values for each field, got {len(self.listed)} for {self.fields}"
            )
        if any(values.dtype != np.uint64 or values.ndim != 1 for values in self.listed):
            raise BadInput("expected flat lists of 64-bit fingerprints, got others")
        if any(np.any(values[1:] <= values[:-1]) for values in self.listed):
            raise BadInput("expected sorted values without repeats, got others")
        if self.size > LARGEST:
            raise BadInput(f"expected at most {LARGEST} rows, got {self.size}")

    @cached_property
    def starts(self) -> Sequence[int]:
        return [0, *np.cumsum([len(values) + 2 for values in self.listed]).tolist()]

    @property
    def size(self) -> int:
        return self.starts[-1]

    def ids(self, field: str, tokens: Fingerprints) -> Ids:
        index = self.fields.index(field)
        values, missing, other = self.listed[index], self.starts[index], self.starts[index] + 1
        at = np.searchsorted(values, tokens)
        found = (
            values[np.minimum(at, len(values) - 1)] == tokens
            if len(values)
            else np.zeros(len(tokens), np.bool_)
        )
        ids = np.where(found, at + other + 1, other).astype(np.int32)
        ids[tokens == missing_fingerprint(field)] = missing
        return ids
