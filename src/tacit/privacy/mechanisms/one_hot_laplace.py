"""An answer as a one-hot vector with whole-numbered Laplace noise on every coordinate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.noise.distributions import DiscreteLaplace

FINEST = 16
"""Steps to a one at an epsilon of 1 or more; below it the noise is wide, and fewer steps lose nothing."""

MoreWords = Callable[[int], Callable[[], int]]
"""`more(row)` hands out further words for one row, one at each call."""


class _Doubt(Exception):
    """A word's digits did not decide: about one in 2^50 does not."""


@dataclass(frozen=True)
class OneHotLaplace:
    """Report `steps` at the answer's place and 0 elsewhere, each plus discrete Laplace noise of one scale.

    Guarantee:  pure epsilon-DP: two answers differ by `steps` in two places, and the scale is 2 steps /
                epsilon.
    Neighbours: two inputs that differ in this one answer (replace label).
    Assumes:    one report per answer (see `memoisation`); words are independent and exactly uniform.
    Source:     ALIBI: Malek, Mironov, Prasad, Shilov, Tramèr, NeurIPS 2021 (arXiv 2106.03408); on
                whole numbers: Ghosh, Roughgarden, Sundararajan 2009 (arXiv 0811.2841).
    """

    epsilon: Fraction
    classes: int
    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))
        expect.whole("classes", self.classes, at_least=2)
        expect.whole("steps", self.steps, at_least=1)

    @classmethod
    def for_epsilon(cls, epsilon: expect.Number, classes: int) -> OneHotLaplace:
        """On a grid so fine that the noise is some thirty steps wide or more, up to an epsilon of 1."""
        exact = expect.positive("epsilon", epsilon)
        return cls(exact, classes, max(1, math.ceil(FINEST * min(exact, Fraction(1)))))

    @property
    def scale(self) -> Fraction:
        return 2 * self.steps / self.epsilon

    @cached_property
    def law(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.scale)

    def report(
        self, answers: NDArray[np.int64], words: NDArray[np.uint64], more: MoreWords
    ) -> NDArray[np.int64]:
        """The noisy vectors, (answers, classes), from words of that shape."""
        if answers.size and (answers.min() < 0 or answers.max() >= self.classes):
            raise BadInput(f"expected answers in 0..{self.classes - 1}, got one outside")
        if words.shape != (len(answers), self.classes):
            raise BadInput(f"expected words of shape {(len(answers), self.classes)}, got {words.shape}")
        noisy = self._noise(words, more)
        noisy[np.arange(len(answers)), answers] += self.steps
        return noisy

    def log_likelihoods(self, reports: NDArray[np.int64]) -> NDArray[np.float64]:
        """ln P(report | answer) for every answer, up to a term that is the same for all: (reports, classes)."""
        likelihoods: NDArray[np.float64] = (np.abs(reports) - np.abs(reports - self.steps)) / float(self.scale)
        return likelihoods

    def _noise(self, words: NDArray[np.uint64], more: MoreWords) -> NDArray[np.int64]:
        def doubt() -> int:
            raise _Doubt

        try:
            return self.law.from_words(words.ravel(), doubt).reshape(words.shape)
        except _Doubt:  # row by row, so that a row's further digits do not depend on who else was asked for
            noise = [self.law.from_words(row, more(at)) for at, row in enumerate(words)]
            return np.array(noise, np.int64).reshape(words.shape)
