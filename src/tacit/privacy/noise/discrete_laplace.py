"""The discrete Laplace law: whole-numbered noise for pure epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.privacy.noise.enclosures import exp_minus
from tacit.privacy.noise.symmetric import Ratios, SymmetricLaw


@dataclass(frozen=True)
class DiscreteLaplace(SymmetricLaw):
    """Whole-numbered noise with P(x) proportional to exp(-|x| / scale).

    Guarantee:  pure epsilon-DP for a vector of counts with this noise on each, epsilon = sensitivity / scale,
                where sensitivity bounds the L1 distance between the counts of two neighbours.
    Neighbours: whichever the sensitivity was computed for.
    Assumes:    the counts are whole; each count has noise of its own; the draws are exactly uniform.
    Source:     Ghosh, Roughgarden, Sundararajan 2009 (arXiv 0811.2841), the geometric mechanism.
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", expect.positive("scale", self.scale))

    def ratios(self, count: int, precision: int) -> Ratios:
        lower, upper = exp_minus(1 / self.scale, precision)
        return Ratios([lower] * count, [upper] * count, upper)

    def reach(self, digits: int) -> float:
        return 1 + digits * math.log(2) * float(self.scale)

    @property
    def variance(self) -> float:
        # Beyond 700 the square of sinh would overflow, and the variance is below 1e-300 anyway.
        return 1 / (2 * math.sinh(float(min(1 / self.scale, Fraction(700))) / 2) ** 2)
