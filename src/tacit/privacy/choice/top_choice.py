"""Randomized response by private rank: favour the privately best among the publicly best.

`TopChoice` looks at the private ranking only: one weight for the private best `top`, another for the rest
of the `kept`. `best_top_plan` finds the best (kept, top) for draws of a prior, and `best_exchangeable_plan`
the optimum over all choices where candidates are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down, log_rounded_up
from tacit.privacy.choice.choice import (
    as_numbers,
    check_draws,
    check_scores,
    choose_by_weights,
    private_ranking,
)
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.randomness import WordSource


@dataclass(frozen=True)
class TopChoice:
    """Of the public best `kept` candidates, favour the `top` that are privately best.

    A favoured candidate has `high_weight` of 2^64 words, another kept one `low_weight`, one beyond has none.
    The few words that whole numbers leave over go to the public best, one each, whoever is favoured. With
    `kept` = `candidates` this is top-m randomized response, and with `top` = 1 besides the k-ary one; with
    `kept` = 1 the public best is chosen.

    Guarantee:  pure epsilon-DP, epsilon = ln(high / low) exactly (0 where `top` = `kept`). Exactly `top` are
                favoured whatever the scores, ties included, so all inputs share one normaliser, and a kept
                candidate's weight is low or high, plus its own public 0 or 1, which only brings the two closer.
    Neighbours: any two vectors of private scores of this request.
    Assumes:    candidates, their order, `kept` and `top` are public; one choice per request; words are
                independent and exactly uniform.
    Source:     Warner 1965; for choosing: Laro et al. 2023, eq. 2; subsets: Ye, Barg 2018 (arXiv 1702.00610).
    """

    candidates: int
    kept: int
    top: int
    low_weight: int

    def __post_init__(self) -> None:
        _expect_sizes(self.candidates, self.kept, self.top)
        expect.whole("low_weight", self.low_weight, at_least=1)
        if self.low_weight * self.kept > WHOLE:
            raise BadInput(
                f"expected low_weight <= 2^64 / kept, got low_weight={self.low_weight} with kept={self.kept}"
            )

    @classmethod
    def for_epsilon(cls, epsilon: expect.Number, candidates: int, kept: int, top: int) -> TopChoice:
        """The one that favours most while its exact epsilon is at most the one asked for.

        >>> TopChoice.for_epsilon(2, candidates=5, kept=3, top=1).pmf([0.1, 0.3, 0.2, 0.9, 0.0]).round(3)
        array([0.107, 0.787, 0.107, 0.   , 0.   ])
        """
        odds = exp_rounded_down(expect.positive("epsilon", epsilon))
        _expect_sizes(candidates, kept, top)
        if top == kept:
            return cls(candidates, kept, top, WHOLE // kept)
        weight = -(-WHOLE // (top * odds + kept - top))
        if weight * kept > WHOLE:
            raise BadInput(f"expected a larger epsilon for {kept} kept candidates, got {epsilon!r}")
        return cls(candidates, kept, top, int(weight))

    @classmethod
    def public_best(cls, candidates: int) -> TopChoice:
        """The choice that is not personalised, and tells nothing."""
        return cls(candidates, 1, 1, WHOLE)

    @property
    def high_weight(self) -> int:
        return (WHOLE - (self.kept - self.top) * self.low_weight) // self.top

    @property
    def spare(self) -> int:
        """Words left over, fewer than `top`: one each to the public best."""
        return (WHOLE - (self.kept - self.top) * self.low_weight) % self.top

    @property
    def epsilon(self) -> float:
        if self.top == self.kept:
            return 0.0
        return log_rounded_up(Fraction(self.high_weight, self.low_weight))

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        """For one request: how many of all 2^64 words choose each candidate."""
        favoured = self._find_favoured(check_scores(scores, self.candidates, axes=1)[None, :])[0].tolist()
        kept = [
            (self.high_weight if best else self.low_weight) + (place < self.spare)
            for place, best in enumerate(favoured)
        ]
        return (*kept, *(0,) * (self.candidates - self.kept))

    def pmf(self, scores: ArrayLike) -> Floats:
        given = check_scores(scores, self.candidates)
        favoured = self._find_favoured(given.reshape(-1, self.candidates)).reshape(*given.shape[:-1], self.kept)
        law = np.zeros_like(given)
        law[..., : self.kept] = np.where(favoured, self.high_weight / WHOLE, self.low_weight / WHOLE)
        return law

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The candidate chosen for each request, from one word each; from none if only one is kept."""
        given = check_scores(scores, self.candidates, axes=2)
        if self.kept == 1:
            return np.zeros(len(given), np.int64)
        high, low = np.uint64(self.high_weight), np.uint64(self.low_weight)
        weights = np.where(self._find_favoured(given), high, low)  # (n, kept)
        weights[:, : self.spare] += np.uint64(1)
        return choose_by_weights(weights, words(len(given)))

    def _find_favoured(self, scores: Floats) -> NDArray[np.bool_]:
        """Which of the kept are among the private best: exactly `top` in every row."""
        ranking = private_ranking(scores[:, : self.kept])
        favoured = np.zeros(ranking.shape, np.bool_)
        np.put_along_axis(favoured, ranking[:, : self.top], True, axis=1)
        return favoured


def _expect_sizes(candidates: int, kept: int, top: int) -> None:
    expect.whole("candidates", candidates, at_least=1)
    expect.whole("kept", kept, at_least=1)
    expect.whole("top", top, at_least=1)
    if not top <= kept <= candidates:
        raise BadInput(f"expected top <= kept <= candidates, got {top}, {kept} and {candidates}")


@dataclass(frozen=True)
class TopPlan:
    """Keep the public best `kept`, favour the private best `top` of them; `value` is the expected score."""

    candidates: int
    kept: int
    top: int
    value: float

    @property
    def personal(self) -> bool:
        """Whether it looks at the private scores at all; if not, it spends nothing."""
        return self.top < self.kept

    def mechanism(self, epsilon: expect.Number) -> TopChoice:
        """The choice itself, in whole numbers."""
        if not self.personal:
            return TopChoice(self.candidates, self.kept, self.top, 2**64 // self.kept)
        return TopChoice.for_epsilon(epsilon, self.candidates, self.kept, self.top)


def best_top_plan(draws: ArrayLike, epsilon: expect.Number) -> TopPlan:
    """The best (k, m) for these draws (draws, candidates), by exact expectation; ties go to the smaller k, m.

    For k = 1 it is the public best. Planned and measured on the same draws, `value` is a little too high.
    """
    columns = np.ascontiguousarray(check_draws(draws).T)  # (candidates, draws)
    values = trunc_values(best_sums(columns), _inverse_odds(epsilon))
    kept, top = divmod(int(np.argmax(values)), len(columns))
    return TopPlan(len(columns), kept + 1, top + 1, float(values[kept, top]))


def best_sums(scores: Floats) -> Floats:
    """[..., k - 1, m - 1]: the expected sum of the best m scores among the public best k; of all k where m > k.

    Scores (candidates, draws) of one request, or (candidates, requests, draws), in public order. One pass: each
    further candidate is inserted into the sorted scores of those before it.
    """
    size, *others, draws = scores.shape
    ordered = np.full_like(scores, -np.inf)  # best, second best, ...
    means = np.zeros((*others, size, size))
    for kept, score in enumerate(scores, start=1):
        pushed = np.minimum(ordered[: kept - 1], score)  # what each rank passes on to the next
        np.maximum(ordered[0], score, out=ordered[0])
        np.maximum(ordered[1:kept], pushed, out=ordered[1:kept])
        means[..., kept - 1, :kept] = np.add.reduce(ordered[:kept], axis=-1).T
    means /= draws
    sums: Floats = np.cumsum(means, axis=-1)
    return sums


def trunc_values(sums: Floats, inverse_odds: float | Floats) -> Floats:
    """The expected score of trunc(k, m) for every k and m, from `best_sums`; -inf where m > k.

    A favoured candidate weighs 1, another kept one e^-epsilon (`inverse_odds`): no epsilon overflows.
    """
    places = np.arange(1, sums.shape[-1] + 1)
    kept, top = places[:, None], places
    favoured = 1 - inverse_odds
    values = (inverse_odds * sums[..., -1:] + favoured * sums) / (inverse_odds * kept + favoured * top)
    return np.where(top <= kept, values, -np.inf)


def ordered_means(draws: ArrayLike) -> Floats:
    """The expected largest, second largest, ... private score, (candidates,)."""
    means: Floats = np.sort(check_draws(draws), axis=1)[:, ::-1].mean(axis=0)
    return means


def best_exchangeable_plan(means: ArrayLike, epsilon: expect.Number) -> TopPlan:
    """The optimum over all epsilon-LDP choices where candidates are alike, from the expected ordered scores.

    It favours the k-th best while its expected score is above the value reached without it.
    """
    ordered = as_numbers("means", means)
    if ordered.ndim != 1 or not ordered.size or not np.isfinite(ordered).all() or (np.diff(ordered) > 0).any():
        raise BadInput(
            f"expected finite means from the largest down, got shape {ordered.shape} or another order"
        )
    inverse_odds = _inverse_odds(epsilon)
    favoured = 1 - inverse_odds
    total, size, top = inverse_odds * float(ordered.sum()), inverse_odds * len(ordered), 0
    for mean in ordered.tolist():
        if top and mean <= total / size:
            break
        total, size, top = total + favoured * mean, size + favoured, top + 1
    return TopPlan(len(ordered), len(ordered), top, total / size)


def _inverse_odds(epsilon: expect.Number) -> float:
    """e^-epsilon; from 700 on doubles see no difference."""
    return math.exp(-min(float(expect.positive("epsilon", epsilon)), 700.0))
