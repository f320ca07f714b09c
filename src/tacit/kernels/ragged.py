"""Ragged arrays, for the twins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Wholes = NDArray[np.int64]


def ragged(offsets: Wholes) -> Iterator[Wholes]:
    """The places of each auction's candidates."""
    for start, end in pairwise(offsets):
        yield np.arange(start, end)
