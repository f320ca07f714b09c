"""Select noisy max: add noise to scores of a public range, and choose the largest."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.choice.choice import Floats, checked, chosen_by
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.scores import ScoreRule
from tacit.privacy.choice.whole_weights import Bounds
from tacit.privacy.choice.worst_case import calibrated_rate, log_extremes, nominal_rate, worst_case_epsilon
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.randomness import Words

ROUNDING = 1e-8
"""Doubles may put a worst case this much above the limit; the whole numbers then keep the limit exactly."""


@dataclass(frozen=True)
class NoisyMax:
    """Choose the largest of rate x score + noise, by its exact law and from one word, not by drawing the noise.

    Guarantee:  pure epsilon-DP for the whole numbers that are sampled: each candidate's weight stays between a
                floor and a cap that are public, and epsilon = max ln(cap / floor) is at most `limit`, if given.
    Neighbours: any two vectors of private scores of this request.
    Assumes:    candidates, public scores, clipping bound and rate are public; one choice per request; words are
                independent and exactly uniform.
    Source:     Laro et al. 2023, algorithm 1; the laws in `gumbel`, `permute_and_flip` and `laplace`; floors
                and caps from `worst_case`.
    """

    noise: Noise
    rule: ScoreRule
    rate: float
    limit: Fraction | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", Noise(self.noise))
        object.__setattr__(self, "rate", float(expect.positive("rate", self.rate)))
        if self.limit is not None:
            object.__setattr__(self, "limit", expect.positive("limit", self.limit))
            spent = worst_case_epsilon(self.noise, self.rule, self.rate)
            if spent > float(self.limit) + ROUNDING:
                raise BadInput(
                    f"expected a rate that spends at most {float(self.limit):g}, got one of {spent:g}"
                )

    @classmethod
    def nominal(cls, noise: Noise | str, rule: ScoreRule, epsilon: expect.Number) -> NoisyMax:
        """At the rate epsilon / (2 Delta), which spends less than epsilon; `epsilon` says how much."""
        return cls(Noise(noise), rule, nominal_rate(rule, epsilon), expect.positive("epsilon", epsilon))

    @classmethod
    def calibrated(cls, noise: Noise | str, rule: ScoreRule, epsilon: expect.Number) -> NoisyMax:
        """With as little noise as the exact worst case allows at this epsilon.

        >>> from tacit.privacy.choice.scores import Scaled
        >>> ways = NoisyMax.nominal("gumbel", Scaled(4), 5), NoisyMax.calibrated("gumbel", Scaled(4), 5)
        >>> [round(way.epsilon, 2) for way in ways], round(ways[1].rate / ways[0].rate, 2)
        ([3.41, 5.0], 1.58)
        """
        noise = Noise(noise)
        return cls(noise, rule, calibrated_rate(noise, rule, epsilon), expect.positive("epsilon", epsilon))

    @property
    def candidates(self) -> int:
        return self.rule.candidates

    @cached_property
    def bounds(self) -> Bounds:
        """The public floors and caps of the weights; there are none to keep for a single candidate."""
        return Bounds.around(*log_extremes(self.noise, self.rule, self.rate), self.limit)

    @cached_property
    def epsilon(self) -> float:
        return 0.0 if self.candidates == 1 else self.bounds.epsilon

    def pmf(self, scores: ArrayLike) -> Floats:
        """In doubles: the law before it is rounded to whole numbers of words."""
        given = checked(scores, self.candidates)
        return self._pmf(given.reshape(-1, self.candidates)).reshape(given.shape)

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        """For one request: how many of all 2^64 words choose each candidate."""
        given = checked(scores, self.candidates, axes=1)
        if self.candidates == 1:
            return (WHOLE,)
        return tuple(self.bounds.weights(self._pmf(given[None, :]))[0].tolist())

    def choose(self, scores: ArrayLike, words: Words) -> NDArray[np.int64]:
        """The candidate chosen for each request, from one word each; from none if there is only one."""
        given = checked(scores, self.candidates, axes=2)
        if self.candidates == 1:
            return np.zeros(len(given), np.int64)
        return chosen_by(self.bounds.weights(self._pmf(given)), words(len(given)))

    def _pmf(self, scores: Floats) -> Floats:
        """Chances for scores (n, a): relative to the top of the range, as in the worst case."""
        return self.noise.pmf(self.rate * (self.rule(scores) - self.rule.high.max()))
