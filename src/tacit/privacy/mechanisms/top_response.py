"""Randomized response among the likeliest answers only, by a public prior: no report is spent on the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse


@dataclass(frozen=True)
class TopResponse:
    """Report one of the `top` likeliest of `classes` answers. Answers are ranks, the likeliest is 0.

    A rank below `top` goes through `among`, randomized response on `top` classes; any other becomes a rank
    below `top` drawn evenly. With `top` = 1 (`among` is None) the report is always rank 0 and tells nothing.

    Guarantee:  pure epsilon-DP, epsilon that of `among`. An even draw lies between its lie and its truth, and
                so do the whole-numbered weights that it is sampled from.
    Neighbours: two inputs that differ in this one answer (replace label).
    Assumes:    ranks and `top` come from public data, or from labels of other units that were paid for; one
                report per answer (see `memoised`); words are independent and exactly uniform.
    Source:     RRTop-k: Ghazi, Golowich, Kumar, Manurangsi, Zhang, NeurIPS 2021 (arXiv 2102.06062).
    """

    classes: int
    among: RandomizedResponse | None

    def __post_init__(self) -> None:
        expect.whole("classes", self.classes, at_least=2)
        if self.top > self.classes:
            raise BadInput(f"expected at most {self.classes} answers at the top, got {self.top}")

    @classmethod
    def for_epsilon(cls, epsilon: expect.Number, top: int, classes: int) -> TopResponse:
        """The most truthful one whose exact epsilon is at most the one asked for."""
        if expect.whole("top", top, at_least=1) == 1:
            return cls(classes, None)
        return cls(classes, RandomizedResponse.for_epsilon(epsilon, top))

    @property
    def top(self) -> int:
        return 1 if self.among is None else self.among.classes

    @property
    def epsilon(self) -> float:
        return 0.0 if self.among is None else self.among.epsilon

    @cached_property
    def even_weight(self) -> int:
        """Of 2^64 words, so many name each rank if the answer is not at the top; the last takes the rest."""
        return WHOLE // self.top

    def pmf(self, rank: int) -> tuple[Fraction, ...]:
        """The exact law of the report, over the ranks below `top`."""
        if not 0 <= expect.whole("rank", rank, at_least=0) < self.classes:
            raise BadInput(f"expected a rank in 0..{self.classes - 1}, got another")
        if self.among is None:
            return (Fraction(1),)
        if rank < self.top:
            return self.among.pmf(rank)
        even = Fraction(self.even_weight, WHOLE)
        return (*(even,) * (self.top - 1), 1 - (self.top - 1) * even)

    def report(self, ranks: NDArray[np.int64], word: NDArray[np.uint64]) -> NDArray[np.int64]:
        """What each rank becomes under its word: the deterministic heart of sampling."""
        if ranks.size and (ranks.min() < 0 or ranks.max() >= self.classes):
            raise BadInput(f"expected ranks in 0..{self.classes - 1}, got one outside")
        if self.among is None:
            return np.zeros(ranks.shape, np.int64)
        even = np.minimum(word // np.uint64(self.even_weight), np.uint64(self.top - 1)).astype(np.int64)
        at_top = ranks < self.top
        return np.where(at_top, self.among.report(np.where(at_top, ranks, 0), word), even)


def most_telling_tops(priors: NDArray[np.float64], epsilon: Fraction) -> NDArray[np.int64]:
    """For each prior, sorted from the likeliest answer down, the `top` whose report is most often the truth.

    That chance is e^epsilon / (e^epsilon + top - 1) times the prior's mass at the top; ties go to the smaller.
    """
    shy = math.exp(-min(float(epsilon), 700.0))
    tops = np.arange(1, priors.shape[1] + 1)
    chances = np.cumsum(priors, axis=1) / (1 + (tops - 1) * shy)  # (priors, classes)
    best: NDArray[np.int64] = np.argmax(chances, axis=1) + 1
    return best
