"""Laws of requests with different numbers of candidates, those of one size together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.privacy.choice.choice import Floats, checked
from tacit.privacy.choice.noise import Noise


def ragged_pmf(noise: Noise, signals: Floats, offsets: NDArray[np.int64]) -> Floats:
    """The law of each request, in the places of its signals; request i has offsets[i] to offsets[i + 1]."""
    given = checked(signals, len(signals), axes=1)
    law = np.empty_like(given)
    for places in by_size(offsets, len(given)):  # (requests of one size, that size)
        law[places] = noise.pmf(given[places])
    return law


def by_size(offsets: NDArray[np.int64], count: int) -> Iterator[NDArray[np.int64]]:
    """Where the candidates of all requests of one size lie, size by size; offsets (requests + 1,)."""
    edges = np.asarray(offsets)
    if edges.dtype.kind not in "iu" or edges.ndim != 1 or not edges.size:
        raise BadInput(f"expected offsets to be a list of whole numbers, got {edges.dtype} of {edges.shape}")
    edges = edges.astype(np.int64)
    sizes = np.diff(edges)
    if edges[0] != 0 or edges[-1] != count:
        raise BadInput(f"expected offsets from 0 to {count}, got {edges[0]} to {edges[-1]}")
    empty = np.flatnonzero(sizes < 1)
    if empty.size:
        raise BadInput(f"expected at least one candidate per request, got none for request {empty[0]}")
    for size in np.unique(sizes).tolist():
        yield edges[:-1][sizes == size][:, None] + np.arange(size)
