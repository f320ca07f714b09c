"""The best floors for a prior over private scores, by cutting planes, with a proof of how good they are.

The proof is a `Certificate`: a threshold for each vector of scores, easy to check, which shows that no
epsilon-LDP choice does better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog, root_scalar
from scipy.stats import t as student

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.choice.choice import check_draws
from tacit.privacy.choice.floors import WORD_BITS, Floors
from tacit.privacy.choice.top_choice import best_top_plan

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
                most 50, as `best_floors` has it.
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
        scores = check_draws(draws)
        if scores.shape[1] != self.caps.shape[1]:
            raise BadInput(f"expected draws of {self.caps.shape[1]} candidates, got {scores.shape[1]}")
        order = np.argsort(-scores, axis=1, kind="stable")
        threshold = np.full(len(scores), self.shift)
        for share, caps in zip(self.shares.tolist(), self.caps, strict=True):
            threshold += share * last_poured_scores(scores, order, caps, self.epsilon)
        return threshold

    def upper_bound(self, draws: ArrayLike) -> float:
        """What no epsilon-LDP choice exceeds on these draws, as if they were the whole prior."""
        scores = check_draws(draws)
        return mean_score_rounded_up(scores, self.gain_bound(scores))

    def gain_bound(self, draws: ArrayLike) -> float:
        """The same, over the public best.

        Any shift of the thresholds is a certificate as well; the best of `SHIFTS`, and none, is taken. Sums of
        doubles err: a mean has a margin of draws + 64 roundings of the mean of what was added, unsigned.
        """
        gains = over_public_best(check_draws(draws))
        thresholds = self.thresholds(gains)
        tried = (thresholds - self.shift, *self._shift_thresholds(thresholds))
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
        scores = check_draws(draws)
        if len(scores) < 2:
            raise BadInput(f"expected at least 2 draws, got {len(scores)}")
        miss = float(1 - expect.probability("confidence", confidence))
        miss /= len(SHIFTS) * (1 + scores.shape[1])  # every mean of every shift has its part of it
        width = None if score_range is None else self._width(scores, *score_range)
        gains = over_public_best(scores)
        thresholds = self.thresholds(gains)
        return min(
            _means_limit(*_terms(gains, shifted, self.epsilon), miss, width)
            for shifted in self._shift_thresholds(thresholds)
        )

    def _shift_thresholds(self, thresholds: Floats) -> Iterator[Floats]:
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

    Rounded up: a column whose entries are off by a margin has a spread that is off by their root mean square at
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


STEP = 0.3
"""How far from the best floors so far towards the model's: whole steps zigzag, and take twice as many."""
MOST_EPSILON = 50


@dataclass(frozen=True, eq=False)
class OptimalFloors:
    """Floors as probabilities, (candidates,), and what they reach on the draws that they were planned on.

    value        the expected score of the choice by these floors
    upper_bound  what no epsilon-LDP choice exceeds on these draws, by `certificate`
    gain         value over that of the public best: it keeps its digits where scores are large, gains small
    gain_bound   what no epsilon-LDP choice gains over the public best
    cuts         how many cutting planes it took
    """

    epsilon: Fraction
    floors: Floats
    value: float
    upper_bound: float
    gain: float
    gain_bound: float
    certificate: Certificate
    cuts: int

    def mechanism(self, bits: int = WORD_BITS) -> Floors:
        """The choice itself, in whole numbers."""
        return Floors.nearest(self.epsilon, self.floors, bits)

    def rounding_loss(self, bits: int = WORD_BITS) -> float:
        """What `mechanism` loses against `value` at most, in multiples of max - min of a draw's scores."""
        return self.mechanism(bits).rounding_loss(self.epsilon, self.floors)


def best_floors(
    draws: ArrayLike, epsilon: expect.Number, *, tolerance: float = 1e-6, most_cuts: int = 1000
) -> OptimalFloors:
    """The floors of the best epsilon-LDP choice for these draws (draws, candidates).

    V(m) = E min over lambda of lambda + sum_i m_i phi(x_i - lambda) is concave in the floors m, and the lambda
    at which pouring ends gives a plane above it. A linear program finds the floors that are best under all
    planes so far; the next plane is taken between those and the best known. It stops when the proof is within
    `tolerance` of the gain at stake, or after `most_cuts`; compare `value` with `upper_bound`.
    """
    exact, given = expect.positive("epsilon", epsilon), check_draws(draws)
    if exact > MOST_EPSILON:
        raise BadInput(f"expected epsilon <= {MOST_EPSILON} to plan floors, got {epsilon!r}")
    goal = float(expect.positive("tolerance", tolerance))
    expect.whole("most_cuts", most_cuts, at_least=1)
    gains = over_public_best(given)  # whatever the scores are like, all digits are for what can be won
    model = _Planes(gains, float(exact))
    plan = best_top_plan(gains, exact)
    floor_per_cap = model.inverse_odds
    point = np.zeros(plan.candidates)
    point[: plan.kept] = 1 / (floor_per_cap * (plan.kept - plan.top) + plan.top)
    best, value = point, -math.inf
    while True:
        reached = model.add(point)
        if reached > value:
            best, value = point, reached
        bound, proposed = model.best()
        if bound - value <= goal * model.unit or len(model.caps) >= most_cuts:
            break
        point = STEP * proposed + (1 - STEP) * best
    certificate = model.certificate()
    gain_bound = certificate.gain_bound(given)
    return OptimalFloors(
        exact,
        floor_per_cap * best,
        mean_score(given, value),
        mean_score_rounded_up(given, gain_bound),
        value,
        gain_bound,
        certificate,
        cuts=len(model.caps),
    )


class _Planes:
    """Planes above V, as a function of the caps u = e^epsilon m: in caps nothing overflows as epsilon grows."""

    def __init__(self, gains: Floats, epsilon: float) -> None:
        self.gains, self.epsilon, self.inverse_odds = gains, epsilon, math.exp(-epsilon)
        # With what is at stake as unit, at least half of a gain's mean size, the program's tolerances mean
        # something, and rounding stays far below them.
        self.unit = (float(gains.max(axis=1).mean()) - min(0.0, float(gains.mean()))) or 1.0
        self.order = np.argsort(-gains, axis=1, kind="stable")
        self.caps: list[Floats] = []
        self.heights: list[float] = []
        self.slopes: list[Floats] = []
        self.solution: Any = None

    def add(self, caps: Floats) -> float:
        """Add the plane that touches V at these caps; gives V there."""
        ends = last_poured_scores(self.gains, self.order, caps, self.epsilon)
        height, slope = float(ends.mean()), self._slope(ends)
        self.caps.append(caps)
        self.heights.append(height)
        self.slopes.append(slope)
        return height + float(slope @ caps)

    def best(self) -> tuple[float, Floats]:
        """The highest point under all planes: no floors have more than its value."""
        size = self.gains.shape[1]
        planes = np.column_stack([-np.array(self.slopes) / self.unit, np.ones(len(self.slopes))])
        # Caps reach the whole and floors do not exceed it; a cap above one would only lift its floor.
        sums = np.array([[-1.0] * size + [0.0], [self.inverse_odds] * size + [0.0]])
        self.solution = linprog(
            np.r_[np.zeros(size), -1.0],
            A_ub=np.vstack([planes, sums]),
            b_ub=np.r_[np.array(self.heights) / self.unit, -1.0, 1.0],
            bounds=[(0.0, 1.0)] * size + [(None, None)],
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if self.solution.status != 0:
            raise ArithmeticError(f"the linear program over floors stopped: {self.solution.message}")
        return -self.unit * float(self.solution.fun), np.clip(self.solution.x[:size], 0.0, 1.0)

    def certificate(self) -> Certificate:
        """Thresholds averaged by the planes' multipliers, shifted until no candidate would gain."""
        shares = np.maximum(-self.solution.ineqlin.marginals[: len(self.caps)], 0.0)
        used = np.flatnonzero(shares)
        caps, shares = np.array(self.caps)[used], shares[used] / shares.sum()
        plain = Certificate(self.epsilon, caps, shares, shift=0.0, spread=self.unit)
        return replace(plain, shift=self._shift(plain.thresholds(self.gains)))

    def _shift(self, thresholds: Floats) -> float:
        """Where the largest gain is zero: gains fall as thresholds rise, and there the bound is E lambda."""

        def gain(shift: float) -> float:
            return float(self._slope(thresholds + shift).max())

        width = float(np.ptp(self.gains))
        if width == 0 or gain(0.0) == 0:
            return 0.0
        return float(root_scalar(gain, bracket=(-width, width), xtol=1e-15 * width).root)

    def _slope(self, thresholds: Floats) -> Floats:
        """E phi(x_i - lambda) / e^epsilon."""
        above = self.gains - thresholds[:, None]
        slope: Floats = np.where(above > 0, above, self.inverse_odds * above).mean(axis=0)
        return slope
