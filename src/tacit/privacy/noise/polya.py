"""The law of a share of discrete Laplace noise: the difference of two negative binomials."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.privacy.noise.discrete_laplace import DiscreteLaplace
from tacit.privacy.noise.enclosures import ceil_divide, ceil_shift, exp_minus, floor_shift
from tacit.privacy.noise.symmetric import Ratios, SymmetricLaw


@dataclass(frozen=True)
class Polya(SymmetricLaw):
    """The difference of two independent NB(shape, e^(-1/scale)): the part `shape` of a discrete Laplace.

    Independent laws of one scale add up by adding their shapes, and at shape 1 the sum is `DiscreteLaplace`.

    Guarantee:  none alone; together, that of `DiscreteLaplace(scale)` as soon as the shapes add up to 1.
    Neighbours: whichever the sensitivity was computed for.
    Assumes:    shares are independent; the draws are exactly uniform.
    Source:     Goryczka, Xiong 2017 (doi 10.1109/TDSC.2015.2484326), the distributed geometric mechanism.
    """

    scale: Fraction
    shape: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", expect.positive("scale", self.scale))
        object.__setattr__(self, "shape", expect.probability("shape", self.shape, one=True))

    def ratios(self, count: int, precision: int) -> Ratios:
        """r(k) = p(k) / p(k-1) from r(k+1), from far out, where it lies in [0, alpha].

        With generating function ((1-alpha)^2 / ((1 - alpha z)(1 - alpha / z)))^shape, comparing coefficients of
        its logarithmic derivative gives
            alpha (k-1+shape) p(k-1) = (1 + alpha^2) k p(k) - alpha (k+1-shape) p(k+1).
        For shape <= 1 the terms of NB fall by a factor below alpha each, so r(k) < alpha for every k.
        """
        alpha_lower, alpha_upper = exp_minus(1 / self.scale, precision)
        one = 1 << precision
        whole_lower = one + floor_shift(alpha_lower**2, precision)  # 1 + alpha^2
        whole_upper = one + ceil_shift(alpha_upper**2, precision)
        part, parts = self.shape.numerator, self.shape.denominator
        start = count + 8 + math.ceil(precision * math.log(2) * float(self.scale))
        lower, upper = 0, alpha_upper
        lowers, uppers = [0] * start, [0] * start
        for k in range(start, 0, -1):
            near, middle, far = (k - 1) * parts + part, k * parts, (k + 1) * parts - part
            below = whole_upper * middle - floor_shift(alpha_lower * lower * far, precision)
            above = whole_lower * middle - ceil_shift(alpha_upper * upper * far, precision)
            lower, upper = (
                (alpha_lower * near << precision) // below,
                min(alpha_upper, ceil_divide(alpha_upper * near << precision, above)),
            )
            lowers[k - 1], uppers[k - 1] = lower, upper
        return Ratios(lowers[:count], uppers[:count], alpha_upper)

    def reach(self, digits: int) -> float:
        return 1 + digits * math.log(2) * float(self.scale)

    @property
    def variance(self) -> float:
        return float(self.shape) * DiscreteLaplace(self.scale).variance
