"""A proof that no epsilon-LDP choice does better: a threshold for each vector of scores, easy to check."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.choice.prior import checked_draws

Floats = NDArray[np.float64]

SHIFTS = (0.0, *(2.0**-power for power in range(1, 21)))
"""Further shifts of the thresholds, fixed beforehand: on fresh draws those of the plan are a little too low."""

REACHED = 1 - 1e-12
"""A sum of probabilities that should be one, in doubles."""

ROUNDINGS = 64
"""Roundings that a term may go through before it is added up: its few, and those of e^epsilon up to 50."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """A threshold lambda(x) for every x; with phi(t) = e^epsilon t for t > 0 and t below, write
    gains[i] = E phi(x_i - lambda(x)).

    Guarantee:  under the prior that x is drawn from, no epsilon-LDP choice has an expected score above
                E lambda(x) + max(0, gains). Whatever the thresholds are: bad ones only give a loose bound.
    Neighbours: any two vectors of private scores of one request: the choices that it speaks of are LDP so.
    Assumes:    the value of a choice is the expected score of the one candidate that is chosen; epsilon is at
                most 50, as `optimal_floors` has it.
    Source:     ours (docs/optimal_mechanism.md): weak duality of the knapsack over floors.

    lambda(x) is the `shares`-weighted mean, over the rows of `caps` (rows, candidates), of the score at which
    pouring up to these caps ends, plus `shift`; `spread` is the unit in which other shifts are tried.
    """

    epsilon: float
    caps: Floats
    shares: Floats
    shift: float
    spread: float

    def thresholds(self, draws: ArrayLike) -> Floats:
        """lambda(x) for each draw, (draws,)."""
        scores = checked_draws(draws)
        if scores.shape[1] != self.caps.shape[1]:
            raise BadInput(f"expected draws of {self.caps.shape[1]} candidates, got {scores.shape[1]}")
        order = np.argsort(-scores, axis=1, kind="stable")
        threshold = np.full(len(scores), self.shift)
        for share, caps in zip(self.shares.tolist(), self.caps, strict=True):
            threshold += share * pouring_ends(scores, order, caps, self.epsilon)
        return threshold

    def upper_bound(self, draws: ArrayLike) -> float:
        """What no epsilon-LDP choice exceeds on these draws, as if they were the whole prior.

        Any shift of the thresholds is a certificate as well; the best of `SHIFTS` is taken. Sums of doubles
        err: the bound has a margin of draws + 64 roundings of the largest mean of what was added, unsigned.
        """
        origin, scores = seen_from_public_best(checked_draws(draws))
        thresholds = self.thresholds(scores)
        bound = min(_rounded_up_mean(scores, shifted, self.epsilon) for shifted in self._shifted(thresholds))
        return math.nextafter(origin + bound, math.inf)

    def gain_limit(
        self,
        draws: ArrayLike,
        confidence: float = 0.99,
        score_range: tuple[float, float] | None = None,
    ) -> float:
        """What no epsilon-LDP choice gains over the public best, under the prior that these draws come from.

        True with this confidence if the draws are not those that the certificate was made from. Without
        `score_range` the means have Student intervals, which are right for many draws only. With a public range
        of scores they have Maurer and Pontil's (2009, arXiv 0907.3740, theorem 4): right for any number, wider.
        """
        scores = checked_draws(draws)
        if len(scores) < 2:
            raise BadInput(f"expected at least 2 draws, got {len(scores)}")
        miss = float(1 - expect.probability("confidence", confidence))
        miss /= len(SHIFTS) * (1 + scores.shape[1])  # every mean of every shift has its part of it
        width = None if score_range is None else self._width(scores, *score_range)
        scores = seen_from_public_best(scores)[1]
        thresholds = self.thresholds(scores)
        gains = (_terms(scores, shifted, self.epsilon) - scores[:, :1] for shifted in self._shifted(thresholds))
        return min(_means_limit(gain, miss, width) for gain in gains)

    def _shifted(self, thresholds: Floats) -> Iterator[Floats]:
        return (thresholds + self.spread * more for more in SHIFTS)

    def _width(self, scores: Floats, low: float, high: float) -> float:
        """How far apart two terms, less the public best's score, can be for scores in this range."""
        if not low <= scores.min() <= scores.max() <= high:
            raise BadInput(f"expected all draws within score_range, {low} to {high}, got one outside")
        reach = high - low + abs(self.shift) + self.spread * max(SHIFTS)
        return 2 * reach + math.expm1(self.epsilon) * reach


def _terms(scores: Floats, thresholds: Floats, epsilon: float) -> Floats:
    """lambda(x), and lambda(x) + phi(x_i - lambda(x)) for each candidate i: (draws, 1 + candidates).

    The bound is the largest of their means.
    """
    above = scores - thresholds[:, None]
    phi = np.where(above > 0, math.exp(epsilon) * above, above)
    return np.hstack([thresholds[:, None], thresholds[:, None] + phi])


def _rounded_up_mean(scores: Floats, thresholds: Floats, epsilon: float) -> float:
    """The bound by these thresholds. A term is lambda + phi, and its parts may be large where it is small."""
    terms = _terms(scores, thresholds, epsilon)
    sizes = np.abs(terms - thresholds[:, None]) + np.abs(thresholds)[:, None]
    margin = (len(scores) + ROUNDINGS) * np.finfo(np.float64).eps * float(sizes.mean(axis=0).max())
    return float(terms.mean(axis=0).max()) + margin


def seen_from_public_best(scores: Floats) -> tuple[float, Floats]:
    """An origin, and scores less that: the first draw's public best, if no difference is then rounded, else 0.

    Doubles within a factor of two of each other have exact differences (Sterbenz 1974). Where others are among
    the scores, they differ about as much as they are large, and there is nothing to be won.
    """
    origin = float(scores[0, 0])
    relative = scores / origin if origin else np.zeros(1)
    near = bool((relative >= 0.5).all() and (relative <= 2).all())
    return (origin, scores - origin) if near else (0.0, scores)


def _means_limit(values: Floats, miss: float, width: float | None) -> float:
    """An upper limit for the largest expectation of the columns; each is missed with probability `miss`."""
    count, means, spread = len(values), values.mean(axis=0), values.std(axis=0, ddof=1)
    if width is None:
        return float((means + student.isf(miss, count - 1) * spread / math.sqrt(count)).max())
    log = math.log(2 / miss)
    return float((means + spread * math.sqrt(2 * log / count)).max() + 7 * width * log / (3 * (count - 1)))


def pouring_ends(scores: Floats, order: NDArray[np.int64], caps: Floats, epsilon: float) -> Floats:
    """The score at which pouring ends, per draw: that of the first candidate, from the best down, at which the
    caps so far and the floors after it make up the whole. Floors are caps e^-epsilon; `order` is the ranking.
    """
    shy = math.exp(-epsilon)
    filled = shy * caps.sum() + (1 - shy) * np.cumsum(caps[order], axis=1)  # (draws, candidates)
    rank = np.minimum((filled < REACHED).sum(axis=1), scores.shape[1] - 1)
    rows = np.arange(len(scores))
    ends: Floats = scores[rows, order[rows, rank]]
    return ends
