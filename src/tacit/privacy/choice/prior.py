"""A public prior over the private scores, as draws: what can be won at all, and from which epsilon on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import BadInput
from tacit.privacy.choice.choice import Choice

Floats = NDArray[np.float64]


def checked_draws(draws: ArrayLike) -> Floats:
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
        scores = checked_draws(draws)
        return cls(float(scores[:, 0].mean()), float(scores.max(axis=1).mean()))

    def share(self, value: float) -> float:
        """How much of the gain from the public to the private best a value has; NaN where there is none."""
        gain = self.private_best - self.public_best
        return (value - self.public_best) / gain if gain > 0 else math.nan


def expected_score(choice: Choice, draws: ArrayLike) -> float:
    """The mean score of what is chosen: over the choice by its exact law, over the scores by the draws."""
    scores = checked_draws(draws)
    return float((choice.pmf(scores) * scores).sum(axis=1).mean())


def epsilon_min(draws: ArrayLike) -> float:
    """The epsilon up to which no epsilon-LDP choice beats the public best, candidate 0; infinite if none does.

    It is the least ln(E(x_0 - x_j)+ / E(x_j - x_0)+) over the other candidates j, and at least 0.
    """
    scores = checked_draws(draws)
    ahead = scores[:, 1:] - scores[:, :1]  # (draws, candidates - 1)
    won = np.maximum(ahead, 0.0).mean(axis=0)
    lost = np.maximum(-ahead, 0.0).mean(axis=0)
    ratios = [lose / win for lose, win in zip(lost.tolist(), won.tolist(), strict=True) if win > 0]
    return math.log(max(1.0, min(ratios))) if ratios else math.inf
