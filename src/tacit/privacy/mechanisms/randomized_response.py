"""Randomized response: tell the truth with a known probability, else another answer at random.

`RandomizedResponse` is the k-ary form. `TopResponse` is randomized response among the likeliest answers by
a public prior, so that no report is spent on the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down, log_rounded_up
from tacit.privacy.randomness import UniformBelow, WordSource
from tacit.privacy.releases import FlippedLabels

WHOLE = 2**64
"""Probabilities are whole multiples of 2^-64, so one uniform word decides exactly."""


@dataclass(frozen=True)
class RandomizedResponse:
    """Report one of `classes` answers: each wrong one with probability lie_weight / 2^64, else the truth.

    Guarantee:  pure epsilon-DP, epsilon = ln(truth / lie), computed from the integers that are sampled.
    Neighbours: two inputs that differ in this one answer (replace label).
    Assumes:    one report per answer (see `memoisation`); `words` are independent and exactly uniform.
    Source:     Warner 1965; k-ary form: Kairouz, Bonawitz, Ramage 2016 (arXiv 1602.07387), eq. 5.
    """

    lie_weight: int
    classes: int = 2

    def __post_init__(self) -> None:
        expect.whole("classes", self.classes, at_least=2)
        expect.whole("lie_weight", self.lie_weight, at_least=1)
        if self.lie_weight * self.classes > WHOLE:
            raise BadInput(
                f"expected lie_weight <= 2^64 / classes, got lie_weight={self.lie_weight} with "
                f"classes={self.classes}: the truth must be at least as likely as a lie"
            )

    @classmethod
    def for_epsilon(cls, epsilon: expect.Number, classes: int = 2) -> RandomizedResponse:
        """The most truthful response whose exact epsilon is at most the one asked for.

        >>> RandomizedResponse.for_epsilon(1).truth > 0.731
        True
        """
        classes = expect.whole("classes", classes, at_least=2)
        odds = exp_rounded_down(expect.positive("epsilon", epsilon))
        weight = -(-WHOLE // (classes - 1 + odds))
        if weight * classes > WHOLE:
            raise BadInput(f"expected a larger epsilon for {classes} classes, got {epsilon!r}: none is so even")
        return cls(int(weight), classes)

    @cached_property
    def lie(self) -> Fraction:
        """The probability of each one wrong answer."""
        return Fraction(self.lie_weight, WHOLE)

    @cached_property
    def truth(self) -> Fraction:
        return 1 - (self.classes - 1) * self.lie

    @property
    def epsilon(self) -> float:
        return log_rounded_up(self.truth / self.lie)

    @property
    def release(self) -> FlippedLabels:
        """What one report gives away, for an accountant."""
        return FlippedLabels(self.truth, self.classes)

    def pmf(self, answer: int) -> tuple[Fraction, ...]:
        """The exact law of the report."""
        self.check_answers(np.asarray([answer]))
        return tuple(self.truth if other == answer else self.lie for other in range(self.classes))

    def sample(self, answer: int, uniform_below: UniformBelow) -> int:
        """One report. The lower `classes - 1` blocks of `lie_weight` words are the lies, one block each."""
        self.check_answers(np.asarray([answer]))
        block = uniform_below(WHOLE) // self.lie_weight
        return (answer + 1 + block) % self.classes if block < self.classes - 1 else answer

    def sample_array(self, answers: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """A report for every answer, from one word each."""
        truth = self.check_answers(np.asarray(answers))
        return self.report(truth, words(truth.size).reshape(truth.shape))

    def report(self, answers: NDArray[np.int64], word: NDArray[np.uint64]) -> NDArray[np.int64]:
        """What each answer becomes under its word: the deterministic heart of sampling."""
        block = np.minimum(word // np.uint64(self.lie_weight), np.uint64(self.classes - 1)).astype(np.int64)
        lied = block < self.classes - 1
        return np.where(lied, (answers + 1 + block) % self.classes, answers)

    def check_answers(self, answers: NDArray[np.generic]) -> NDArray[np.int64]:
        """The answers, refused unless each is one of the classes."""
        if answers.dtype.kind not in "iub":
            raise BadInput(f"expected whole answers in 0..{self.classes - 1}, got dtype {answers.dtype}")
        if answers.size and (answers.min() < 0 or answers.max() >= self.classes):
            raise BadInput(f"expected answers in 0..{self.classes - 1}, got one outside")
        return answers.astype(np.int64)


@dataclass(frozen=True)
class TopResponse:
    """Report one of the `top` likeliest of `classes` answers. Answers are ranks, the likeliest is 0.

    A rank below `top` goes through `among`, randomized response on `top` classes; any other becomes a rank
    below `top` drawn evenly. With `top` = 1 (`among` is None) the report is always rank 0 and tells nothing.

    Guarantee:  pure epsilon-DP, epsilon that of `among`. An even draw lies between its lie and its truth, and
                so do the whole-numbered weights that it is sampled from.
    Neighbours: two inputs that differ in this one answer (replace label).
    Assumes:    ranks and `top` come from public data, or from labels of other units that were paid for; one
                report per answer (see `memoisation`); words are independent and exactly uniform.
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
        """How many of 2^64 words name each rank if the answer is not at the top; the last takes the rest."""
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


def most_informative_tops(priors: NDArray[np.float64], epsilon: Fraction) -> NDArray[np.int64]:
    """For each prior, sorted from the likeliest answer down, the `top` whose report is most often the truth.

    That chance is e^epsilon / (e^epsilon + top - 1) times the prior's mass at the top; ties go to the smaller.
    """
    shy = math.exp(-min(float(epsilon), 700.0))
    tops = np.arange(1, priors.shape[1] + 1)
    chances = np.cumsum(priors, axis=1) / (1 + (tops - 1) * shy)  # (priors, classes)
    best: NDArray[np.int64] = np.argmax(chances, axis=1) + 1
    return best
