"""What every private slate offers, whatever its law."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.choice.prior import checked_draws
from tacit.privacy.randomness import Words

Floats = NDArray[np.float64]


class Slate(Protocol):
    """A law over sets of `slots` of the `candidates`. Sets are numbered as `subsets.slates` lists them."""

    @property
    def candidates(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def epsilon(self) -> float:
        """The exact worst case over all scores of what is sampled, rounded up."""

    def pmf(self, scores: ArrayLike) -> Floats:
        """For one request: the probability of each slate, (slates,). For few slates only."""

    def inclusion(self, scores: ArrayLike) -> Floats:
        """The probability that each candidate is shown, of the shape of `scores`. Exact, for any size."""

    def choose(self, scores: ArrayLike, words: Words) -> NDArray[np.int64]:
        """The slate of each request, (n, slots), in public order, for scores (n, candidates)."""


def expected_sum(slate: Slate, draws: ArrayLike) -> float:
    """The mean sum of scores on the slate: over the slate by its exact law, over the scores by the draws."""
    scores = checked_draws(draws)
    return float((slate.inclusion(scores) * scores).sum(axis=1).mean())
