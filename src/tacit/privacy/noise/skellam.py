"""The Skellam law: whole-numbered noise of which several parties can each add a share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.privacy.noise.enclosures import ceil_divide
from tacit.privacy.noise.symmetric import Ratios, SymmetricLaw


@dataclass(frozen=True)
class Skellam(SymmetricLaw):
    """The difference of two independent Poisson(variance / 2): P(x) = e^-variance I_x(variance).

    Guarantee:  none in closed form. For each count that changes by d, the privacy loss is
                ln(P(x) / P(x - d)); an accountant composes these laws from the exact masses (see `releases`).
    Neighbours: whichever the changes were computed for.
    Assumes:    the counts are whole; each count has noise of its own; the draws are exactly uniform.
    Source:     Agarwal, Kairouz, Liu 2021 (arXiv 2110.04995).
    """

    variance: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", expect.positive("variance", self.variance))

    def ratios(self, count: int, precision: int) -> Ratios:
        """r(k) = I_k / I_(k-1) = 1 / (2k / variance + r(k+1)), from far out, where any r in [0, 1] will do.

        Each step towards zero shrinks the enclosure by about r^2. The law is log-concave, so r falls with k.
        """
        one = 1 << precision
        shrinking = 2 * math.asinh(float(min(count / self.variance, Fraction(10**9))))
        start = count + 2 + math.ceil(2 * precision * math.log(2) / shrinking)
        lower, upper = 0, one
        lowers, uppers = [0] * start, [0] * start
        double = 2 * self.variance.denominator << precision
        square = 1 << 2 * precision
        for k in range(start, 0, -1):
            slope = double * k
            lower, upper = (
                square // (ceil_divide(slope, self.variance.numerator) + upper),
                ceil_divide(square, slope // self.variance.numerator + lower),
            )
            lowers[k - 1], uppers[k - 1] = lower, upper
        return Ratios(lowers[:count], uppers[:count], uppers[count])

    def reach(self, digits: int) -> float:
        """Bernstein's inequality, solved for the magnitude."""
        needed = (digits + 1) * math.log(2)
        return 1 + needed / 3 + math.sqrt(needed**2 / 9 + 2 * needed * float(self.variance))
