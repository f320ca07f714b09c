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

UNIT = float(np.finfo(np.float64).eps)

QUANTILE = 1e-9
"""By what share a quantile may be off: SciPy's of Student's law are right to 11 digits or more, logarithms to
15."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """A threshold lambda(x) for every x; with phi(t) = e^epsilon t for t > 0 and t below, write
    gains[i] = E phi(x_i - lambda(x)).

    Guarantee:  under the prior that x is drawn from, no epsilon-LDP choice has an expected score above
                E lambda(x) + the largest sum of m_i gains[i] over floors m, and so none above
                E lambda(x) + max(0, gains). Floors are at most e^-epsilon each (a cap above one would only lift
                its floor), and in sum between that and 1. Whatever the thresholds are: bad ones only give a
                loose bound.
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
            threshold += share * last_poured_scores(scores, order, caps, self.epsilon)
        return threshold

    def upper_bound(self, draws: ArrayLike) -> float:
        """What no epsilon-LDP choice exceeds on these draws, as if they were the whole prior."""
        scores = checked_draws(draws)
        return mean_score_rounded_up(scores, self.gain_bound(scores))

    def gain_bound(self, draws: ArrayLike) -> float:
        """The same, over the public best.

        Any shift of the thresholds is a certificate as well; the best of `SHIFTS`, and none, is taken. Sums of
        doubles err: a mean has a margin of draws + 64 roundings of the mean of what was added, unsigned.
        """
        gains = over_public_best(checked_draws(draws))
        thresholds = self.thresholds(gains)
        tried = (thresholds - self.shift, *self._shifted(thresholds))
        return min(_over_all_floors(gains, shifted, self.epsilon) for shifted in tried)

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
        Either way the limit is rounded up: means as in `gain_bound`, spreads and quantiles likewise.
        """
        scores = checked_draws(draws)
        if len(scores) < 2:
            raise BadInput(f"expected at least 2 draws, got {len(scores)}")
        miss = float(1 - expect.probability("confidence", confidence))
        miss /= len(SHIFTS) * (1 + scores.shape[1])  # every mean of every shift has its part of it
        width = None if score_range is None else self._width(scores, *score_range)
        gains = over_public_best(scores)
        thresholds = self.thresholds(gains)
        return min(
            _means_limit(*_terms(gains, shifted, self.epsilon), miss, width)
            for shifted in self._shifted(thresholds)
        )

    def _shifted(self, thresholds: Floats) -> Iterator[Floats]:
        return (thresholds + self.spread * more for more in SHIFTS)

    def _width(self, scores: Floats, low: float, high: float) -> float:
        """How far apart two terms, less the public best's score, can be for scores in this range."""
        if not low <= scores.min() <= scores.max() <= high:
            raise BadInput(f"expected all draws within score_range, {low} to {high}, got one outside")
        reach = high - low + abs(self.shift) + self.spread * max(SHIFTS)
        return 2 * reach + math.expm1(self.epsilon) * reach


def over_public_best(scores: Floats) -> Floats:
    """Each draw's scores less that of its public best: a choice's gain, and all that a certificate looks at.

    What all candidates of a draw share moves no choice, and digits that it took up are free. A difference is
    rounded once, by a share of its own size.
    """
    return scores - scores[:, :1]


def mean_score(scores: Floats, gain: float) -> float:
    """The public best's mean score, plus this gain: at most two roundings from exact, and rising with it."""
    return math.fsum([*scores[:, 0].tolist(), len(scores) * gain]) / len(scores)


def mean_score_rounded_up(scores: Floats, gain: float) -> float:
    return math.nextafter(math.nextafter(mean_score(scores, gain), math.inf), math.inf)


def _over_all_floors(gains: Floats, thresholds: Floats, epsilon: float) -> float:
    """E lambda and the largest sum of m_i E phi(x_i - lambda), rounded up.

    In caps u = e^epsilon m, of which each is at most one, phi / e^epsilon never grows with epsilon.
    """
    inverse_odds = math.exp(-epsilon)
    above = gains - thresholds[:, None]
    slopes = np.where(above > 0, above, inverse_odds * above)
    # A difference from the public best was rounded by a share of its size; so was what is above a threshold.
    rise = _rounded_up_means(slopes, np.abs(slopes) + np.abs(gains))
    places = np.arange(len(rise))
    # Caps reach the whole, so the best candidate has one in any case; others only where they raise the bound.
    room = np.clip(math.exp(epsilon) * (1 + ROUNDINGS * UNIT) - places, 0.0, 1.0)
    best = -np.sort(-rise)
    parts = room * np.where(places > 0, np.maximum(best, 0.0), best)
    level = _rounded_up_means(thresholds[:, None], np.abs(thresholds)[:, None])
    bound = math.fsum([*parts.tolist(), *level.tolist()])
    return bound + ROUNDINGS * UNIT * (float(np.abs(parts).sum()) + float(np.abs(level).sum()))


def _rounded_up_means(values: Floats, sizes: Floats) -> Floats:
    """Means of the columns, never below those of exact numbers. `sizes` is what each value was made of."""
    means: Floats = values.mean(axis=0) + (len(values) + ROUNDINGS) * UNIT * sizes.mean(axis=0)
    return means


def _terms(gains: Floats, thresholds: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """lambda(x), and lambda(x) + phi(x_i - lambda(x)) for each candidate i: (draws, 1 + candidates).

    The bound is the largest of their means. Beside them, what each was made of: its parts may be large where it
    is small, and phi takes the rounding of a gain times e^epsilon.
    """
    odds, level = math.exp(epsilon), thresholds[:, None]
    above = gains - level
    phi = np.where(above > 0, odds * above, above)
    sizes = np.abs(phi) + np.abs(level) + odds * np.abs(gains)
    return np.hstack([level, level + phi]), np.hstack([np.abs(level), sizes])


def _means_limit(values: Floats, sizes: Floats, miss: float, width: float | None) -> float:
    """An upper limit for the largest expectation of the columns; each is missed with probability `miss`.

    Rounded up: a column whose entries are off by so much has a spread that is off by their root mean square at
    most, and adding n squares up loses a share of n roundings.
    """
    count, share = len(values), (len(values) + ROUNDINGS) * UNIT
    means = _rounded_up_means(values, sizes)
    spread = (1 + share) * values.std(axis=0, ddof=1) + 2 * share * np.sqrt((sizes**2).mean(axis=0))
    more = 1 + QUANTILE
    if width is None:
        return float((means + more * student.isf(miss, count - 1) * spread / math.sqrt(count)).max())
    log = math.log(2 / miss)
    away = 7 * width * log / (3 * (count - 1))
    return float((means + more * (spread * math.sqrt(2 * log / count) + away)).max())


def last_poured_scores(scores: Floats, order: NDArray[np.int64], caps: Floats, epsilon: float) -> Floats:
    """The score of the last candidate that `Floors` pours anything to, per draw.

    It is the first, from the best down, at which the caps so far and the floors after it make up the whole.
    Floors are caps e^-epsilon; `order` is the ranking.
    """
    inverse_odds = math.exp(-epsilon)
    above = np.cumsum(caps[order], axis=1)  # (draws, candidates)
    filled = inverse_odds * caps.sum() + (1 - inverse_odds) * above
    rank = np.minimum((filled < REACHED).sum(axis=1), scores.shape[1] - 1)
    rows = np.arange(len(scores))
    ends: Floats = scores[rows, order[rows, rank]]
    return ends
