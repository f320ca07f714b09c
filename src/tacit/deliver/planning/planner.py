"""Plans kept by what is public in a request, for the next request that looks the same."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.deliver.planning.plan import ChoicePlan, Method, plan_choice
from tacit.deliver.planning.prior import Prior, checked_public
from tacit.privacy.choice.ranked import TopChoice

STEPS = 256
"""Rivals' scores count as whole multiples of 1/256 of the public best's, rounded down."""


@lru_cache(maxsize=256)
def _written(epsilon: float) -> Fraction:
    return expect.positive("epsilon", epsilon)


class Planner:
    """Plans with one prior and method, and remembers the last `most` of them.

    Rounding is harmless. To privacy: the key and the plan are functions of public data, and a law keeps its
    epsilon whatever it was planned on. To the forecast: with rivals rounded down, a law's expected gain is at
    least what was forecast, since what it reaches only rises with any score; and at most 1/256 of the public
    best (times the mean of the largest factor) is missed.
    """

    def __init__(self, prior: Prior, method: Method | str = Method.TRUNC, *, most: int = 4096) -> None:
        self.prior, self.method = prior, Method(method)
        self._kept = lru_cache(maxsize=expect.whole("most", most, at_least=1))(self._rounded)

    def plan(self, public: ArrayLike, epsilon: expect.Number) -> ChoicePlan:
        """The plan for these public scores: a kept one where their rounded ratios were met before."""
        scores = checked_public(public)
        best = float(scores[0])
        ratios = scores / best if best > 0 else np.zeros_like(scores)
        steps = (ratios * STEPS).astype(np.int64)  # cut off, so rounded down
        # A double is written out to be read as an exact number: too slow for each request anew.
        exact = _written(epsilon) if isinstance(epsilon, float) else expect.positive("epsilon", epsilon)
        kept = self._kept(steps.tobytes(), exact)
        return replace(kept, forecast_gain=best * kept.forecast_gain, public=tuple(scores.tolist()))

    def public_best(self, public: ArrayLike) -> ChoicePlan:
        """The plan that spends nothing."""
        scores = checked_public(public)
        law = TopChoice.public_best(len(scores))
        return ChoicePlan(law, 0.0, 1, 1, 0.0, 0.0, tuple(scores.tolist()), self.prior)

    @property
    def kept(self) -> int:
        """How many plans are remembered."""
        return self._kept.cache_info().currsize

    def _rounded(self, steps: bytes, epsilon: Fraction) -> ChoicePlan:
        return plan_choice(np.frombuffer(steps, np.int64) / STEPS, self.prior, epsilon, self.method)
