"""The best floors for a prior over private scores, by cutting planes, with a proof of how good they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog, root_scalar

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.choice.certificate import (
    Certificate,
    last_poured_scores,
    mean_score,
    mean_score_rounded_up,
    over_public_best,
)
from tacit.privacy.choice.floors import WORD_BITS, Floors
from tacit.privacy.choice.prior import checked_draws
from tacit.privacy.choice.top_plan import best_top_plan

Floats = NDArray[np.float64]

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


def optimal_floors(
    draws: ArrayLike, epsilon: expect.Number, *, tolerance: float = 1e-6, most_cuts: int = 1000
) -> OptimalFloors:
    """The floors of the best epsilon-LDP choice for these draws (draws, candidates).

    V(m) = E min over lambda of lambda + sum_i m_i phi(x_i - lambda) is concave in the floors m, and the lambda
    at which pouring ends gives a plane above it. A linear program finds the floors that are best under all
    planes so far; the next plane is taken between those and the best known. It stops when the proof is within
    `tolerance` of the gain at stake, or after `most_cuts`; compare `value` with `upper_bound`.
    """
    exact, given = expect.positive("epsilon", epsilon), checked_draws(draws)
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
