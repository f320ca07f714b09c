"""What a round asks of every report: no count above a bound, and no sum above another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput

MOST = 2**62
"""Counts, sums and what is left to the bound are whole numbers below the field's prime, without wrapping."""


@dataclass(frozen=True)
class Bounds:
    """Every count in 0..each, and all counts of a report together at most `total`."""

    each: int
    total: int

    def __post_init__(self) -> None:
        for name in ("each", "total"):
            bound = expect.whole(name, getattr(self, name), at_least=1)
            if bound >= MOST:
                raise BadInput(f"expected {name} below 2^62, got {bound}")
            object.__setattr__(self, name, bound)

    def check(self, counts: NDArray[np.int64]) -> None:
        """Refuse counts out of bounds; the message says which bound and not which count."""
        if counts.dtype != np.int64 or counts.ndim != 1:
            raise BadInput(f"expected counts as a flat array of int64, got {counts.dtype} of {counts.shape}")
        if len(counts) and not 0 <= counts.min() <= counts.max() <= self.each:
            raise BadInput(f"expected every count in 0..{self.each}, got one outside")
        if sum(counts.tolist()) > self.total:  # whole numbers of Python, which do not wrap
            raise BadInput(f"expected counts that add up to at most {self.total}, got more")
