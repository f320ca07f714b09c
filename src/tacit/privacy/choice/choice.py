"""What every private choice of one candidate offers, whatever its law."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import BadInput
from tacit.privacy.randomness import Words

Floats = NDArray[np.float64]


class Choice(Protocol):
    """A law over `candidates`, in public order: 0 is the best public score, and ties go to the smaller number.

    Private scores have the candidates along their last axis. What is sampled is whole numbers out of 2^64, and
    `epsilon` speaks of those: the worst case over all inputs, rounded up.
    """

    @property
    def candidates(self) -> int: ...

    @property
    def epsilon(self) -> float: ...

    def pmf(self, scores: ArrayLike) -> Floats:
        """The probability of each candidate, of the shape of `scores`."""

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        """For one request: how many of all 2^64 words choose each candidate."""

    def choose(self, scores: ArrayLike, words: Words) -> NDArray[np.int64]:
        """The candidate chosen for each request, scores (n, candidates), from at most one word each."""


def checked(scores: ArrayLike, candidates: int, *, axes: int | None = None) -> Floats:
    """Scores as doubles, refused unless finite, with one per candidate along the last axis."""
    try:
        given = np.asarray(scores)
    except ValueError:  # lists of several lengths
        raise BadInput(f"expected {candidates} scores per request, got requests of several lengths") from None
    if given.dtype.kind not in "fiu":
        raise BadInput(f"expected scores to be numbers, got dtype {given.dtype}")
    if given.ndim == 0 or given.shape[-1] != candidates or (axes is not None and given.ndim != axes):
        wanted = {None: "(..., {})", 1: "({},)", 2: "(requests, {})"}[axes].format(candidates)
        raise BadInput(f"expected scores of shape {wanted}, got {given.shape}")
    doubles = given.astype(np.float64)
    if not np.all(np.isfinite(doubles)):
        raise BadInput("expected finite scores, got one that is NaN or infinite")
    return doubles


def chosen_by(weights: NDArray[np.uint64], word: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The block that each word falls in, where row i is cut into blocks of weights[i], which sum to 2^64."""
    ends = np.cumsum(weights[:, :-1], axis=1, dtype=np.uint64)  # (n, blocks - 1): the last end is 2^64
    blocks: NDArray[np.int64] = np.count_nonzero(ends <= word[:, None], axis=1).astype(np.int64)
    return blocks
