"""The privacy blanket: what shuffling gives to a mechanism whose rows are known.

Whatever its input, a member makes choice y with at least its floor m_y. So a share sum(m) of the reports comes
from one and the same law, and those hide the victim. Clones know epsilon only; the blanket knows the floors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.privacy.budget import rounded_up
from tacit.privacy.shuffling.clones import LARGEST_COHORT
from tacit.privacy.shuffling.mechanism import PairLaws, Rows, pair_laws
from tacit.privacy.shuffling.positive_part import mean_positive_part

Floats = NDArray[np.float64]

_MOST_POINTS = 257


@dataclass(frozen=True, eq=False)
class Blanket:
    """The blanket of a mechanism, for any number of members.

    Guarantee:  the multiset of `cohort` reports is (epsilon, delta(cohort, epsilon))-DP.
    Neighbours: replace one member's private input; the others' inputs are arbitrary and fixed.
    Assumes:    every member uses the mechanism with these rows; the order of the reports tells nothing;
                `cohort` counts only members who really randomise and do not reveal their report.
    Source:     Balle, Bell, Gascón, Nissim 2019 (arXiv 1903.02837); by FFT: Su, Cheng, Wang 2025
                (arXiv 2504.07414). The rounding and the envelope over pairs are ours: docs/shuffling.md.
    """

    laws: PairLaws

    @classmethod
    def of(cls, rows: Rows) -> Blanket | None:
        """The blanket of checked rows, or None where the pairs of rows are too many to look at."""
        laws = pair_laws(rows)
        return cls(laws) if laws else None

    def delta(self, cohort: int, epsilon: expect.Number) -> float:
        """An upper bound on delta(epsilon), over every ordered pair of inputs.

        (1/n) E(X_1 + ... + X_n)+ with X = (R_x(y) - e^epsilon R_x'(y)) / m_y with probability m_y, else 0.
        """
        members = min(expect.whole("cohort", cohort, at_least=1), LARGEST_COHORT)
        asked = -rounded_up(-expect.at_least_zero("epsilon", epsilon))  # rounded down
        if not len(self.laws.first):
            return 0.0  # one row: the reports do not depend on anything private
        odds = math.exp(min(asked, 600.0)) * (1 - 2.0**-50)
        values = self.laws.first - odds * self.laws.second
        # Raised by more than the rounding of the rows, the exponential and the difference.
        values += (self.laws.first + odds * self.laws.second) * 2.0**-48
        if values.max() <= 0:
            return 0.0
        points, masses, shortfall = _dominating(values, self.laws.mass, self.laws.rest)
        return min(1.0, mean_positive_part(points, masses, members) / members * (1 + 2.0**-50) + shortfall)


def _dominating(values: Floats, masses: Floats, rest: float) -> tuple[Floats, Floats, float]:
    """One law of X above all of the given ones in convex order, and by how much rounding may fall short.

    Laws of one mean are ordered by their stop-loss functions t -> E(X - t)+, and the largest of those is itself
    the stop-loss function of a law. Joined by straight lines between any points it only grows.
    """
    if len(values) == 1:
        return np.append(values[0], 0.0), np.append(masses[0], rest), 0.0
    points = _points(values)
    highest = np.array([_stop_loss(values, masses, rest, point) for point in points])
    slopes = np.diff(highest) / np.diff(points)
    law = np.maximum(np.diff(np.concatenate([[-1.0], slopes, [0.0]])), 0.0)
    law[0] += max(0.0, 1.0 - float(law.sum()))
    # Taking the members one by one, a law whose stop-loss falls short by s costs at most s in E(.)+ each.
    reached = np.array([float(law @ np.maximum(points - point, 0.0)) for point in points])
    scale = max(abs(float(points[0])), abs(float(points[-1])))
    return points, law, max(0.0, float(np.max(highest - reached))) + scale * 2.0**-48


def _points(values: Floats) -> Floats:
    """Where to look at the stop-loss: at all values if they are few, else evenly; never too close together."""
    points = np.unique(np.append(values, 0.0))
    if len(points) > _MOST_POINTS:
        points = np.unique(np.append(np.linspace(points[0], points[-1], _MOST_POINTS), 0.0))
    apart = (points[-1] - points[0]) * 2.0**-20
    kept = [float(points[0])]
    for point in points[1:-1]:
        if point - kept[-1] >= apart and points[-1] - point >= apart:
            kept.append(float(point))
    return np.array([*kept, float(points[-1])])


def _stop_loss(values: Floats, masses: Floats, rest: float, point: float) -> float:
    """The largest E(X - point)+ among the laws."""
    return float(np.max(np.sum(masses * np.maximum(values - point, 0.0), axis=1))) + rest * max(-point, 0.0)
