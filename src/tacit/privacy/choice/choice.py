"""What every private choice of one candidate offers, and what one can expect of it.

`ChoiceLaw` is the protocol: an exact law, an exact epsilon, whole-numbered sampling. The private
ranking puts the larger score first and equal scores in public order. A public prior over the private
scores, given as draws, says what can be won at all, and from which epsilon on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.randomness import WordSource


class ChoiceLaw(Protocol):
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

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The candidate chosen for each request, scores (n, candidates), from at most one word each."""


def check_scores(scores: ArrayLike, candidates: int, *, axes: int | None = None) -> Floats:
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


def as_numbers(name: str, values: ArrayLike) -> Floats:
    """A number, or an array of them, as doubles; texts and other things are refused."""
    try:
        given = np.asarray(values)
    except ValueError:
        raise BadInput(f"expected {name} to be numbers, got lists of several lengths") from None
    if given.dtype.kind not in "fiu":
        raise BadInput(f"expected {name} to be numbers, got dtype {given.dtype}")
    return given.astype(np.float64)


def choose_by_weights(weights: NDArray[np.uint64], word: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The block that each word falls in, where row i is cut into blocks of weights[i], which sum to 2^64."""
    ends = np.cumsum(weights[:, :-1], axis=1, dtype=np.uint64)  # (n, blocks - 1): the last end is 2^64
    blocks: NDArray[np.int64] = np.count_nonzero(ends <= word[:, None], axis=1).astype(np.int64)
    return blocks


def private_ranking(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Candidates from the best private score down, (..., candidates)."""
    return np.argsort(-scores, axis=-1, kind="stable").astype(np.int64, copy=False)


def check_draws(draws: ArrayLike) -> Floats:
    """Draws as doubles (draws, candidates), refused unless finite; candidates are in public order."""
    array = np.asarray(draws)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise BadInput(f"expected draws to be numbers (draws, candidates), got {array.dtype} {array.shape}")
    doubles = array.astype(np.float64)
    if not np.isfinite(doubles).all():
        raise BadInput("expected finite draws, got one that is NaN or infinite")
    return doubles


@dataclass(frozen=True)
class Stakes:
    """What is at stake: expected scores of the public best, for which epsilon is 0, and of the private best.

    Nobody need have less than the first, and no choice has more than the second.
    """

    public_best: float
    private_best: float

    @classmethod
    def of(cls, draws: ArrayLike) -> Stakes:
        scores = check_draws(draws)
        return cls(float(scores[:, 0].mean()), float(scores.max(axis=1).mean()))

    def share(self, value: float) -> float:
        """How much of the gain from the public to the private best a value has; NaN where there is none."""
        gain = self.private_best - self.public_best
        return (value - self.public_best) / gain if gain > 0 else math.nan


def expected_score(choice: ChoiceLaw, draws: ArrayLike) -> float:
    """The mean score of what is chosen: over the choice by its exact law, over the scores by the draws."""
    scores = check_draws(draws)
    return float((choice.pmf(scores) * scores).sum(axis=1).mean())


def epsilon_min(draws: ArrayLike) -> float:
    """The epsilon up to which no epsilon-LDP choice beats the public best, candidate 0; infinite if none does.

    It is the least ln(E(x_0 - x_j)+ / E(x_j - x_0)+) over the other candidates j, and at least 0.
    """
    scores = check_draws(draws)
    ahead = scores[:, 1:] - scores[:, :1]  # (draws, candidates - 1)
    won = np.maximum(ahead, 0.0).mean(axis=0)
    lost = np.maximum(-ahead, 0.0).mean(axis=0)
    ratios = [lose / win for lose, win in zip(lost.tolist(), won.tolist(), strict=True) if win > 0]
    return math.log(max(1.0, min(ratios))) if ratios else math.inf
