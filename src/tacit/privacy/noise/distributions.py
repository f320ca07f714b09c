"""Integer noise distributions: discrete Laplace, discrete Gaussian, Skellam and Polya.

One party adds discrete Laplace noise for pure epsilon, or discrete Gaussian noise, which composes like the
Gaussian. Skellam and Polya are for noise that several parties add in shares: sums of Skellam are Skellam,
and Polya shares add up to discrete Laplace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tacit import expect
from tacit.privacy.noise.exact_sampler import (
    RatioEnclosures,
    SymmetricLaw,
    ceil_divide,
    ceil_shift,
    exp_minus,
    floor_shift,
)


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

    def ratios(self, count: int, precision: int) -> RatioEnclosures:
        lower, upper = exp_minus(1 / self.scale, precision)
        return RatioEnclosures([lower] * count, [upper] * count, upper)

    def reach(self, digits: int) -> float:
        return 1 + digits * math.log(2) * float(self.scale)

    @property
    def variance(self) -> float:
        # Beyond 700 the square of sinh would overflow, and the variance is below 1e-300 anyway.
        return 1 / (2 * math.sinh(float(min(1 / self.scale, Fraction(700))) / 2) ** 2)


@dataclass(frozen=True)
class DiscreteGaussian(SymmetricLaw):
    """Whole-numbered noise with P(x) proportional to exp(-x^2 / (2 sigma_squared)).

    Guarantee:  rho-zCDP for a vector of counts with this noise on each:
                rho = sensitivity^2 / (2 sigma_squared);
                sensitivity bounds the L2 distance between the counts of two neighbours.
    Neighbours: whichever the sensitivity was computed for.
    Assumes:    the counts are whole; each count has noise of its own; the draws are exactly uniform. A sum of
                several such draws is *not* discrete Gaussian: parties that share noise use `shares`.
    Source:     Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), theorem 4.
    """

    sigma_squared: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma_squared", expect.positive("sigma_squared", self.sigma_squared))

    def ratios(self, count: int, precision: int) -> RatioEnclosures:
        """p(k) / p(k-1) = exp(-(2k - 1) / (2 sigma_squared)), falling with k."""
        first_lower, first_upper = exp_minus(1 / (2 * self.sigma_squared), precision)
        step_lower, step_upper = exp_minus(1 / self.sigma_squared, precision)
        lower, upper = [first_lower], [first_upper]
        for _ in range(count - 1):
            lower.append(floor_shift(lower[-1] * step_lower, precision))
            upper.append(ceil_shift(upper[-1] * step_upper, precision))
        return RatioEnclosures(lower, upper, upper[-1])

    def reach(self, digits: int) -> float:
        return 2 + math.sqrt(2 * (digits + 1) * math.log(2) * float(self.sigma_squared))

    @property
    def variance(self) -> float:
        """At most sigma_squared, and very close to it from sigma = 1 on."""
        square = np.arange(1 + math.ceil(40 * math.sqrt(self.sigma_squared) + 1), dtype=np.float64) ** 2
        weight = np.exp(-square / float(2 * self.sigma_squared))
        return 2 * math.fsum(square * weight) / (2 * math.fsum(weight) - 1)


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

    def ratios(self, count: int, precision: int) -> RatioEnclosures:
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
        return RatioEnclosures(lowers[:count], uppers[:count], uppers[count])

    def reach(self, digits: int) -> float:
        """Bernstein's inequality, solved for the magnitude."""
        needed = (digits + 1) * math.log(2)
        return 1 + needed / 3 + math.sqrt(needed**2 / 9 + 2 * needed * float(self.variance))


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

    def ratios(self, count: int, precision: int) -> RatioEnclosures:
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
        return RatioEnclosures(lowers[:count], uppers[:count], alpha_upper)

    def reach(self, digits: int) -> float:
        return 1 + digits * math.log(2) * float(self.scale)

    @property
    def variance(self) -> float:
        return float(self.shape) * DiscreteLaplace(self.scale).variance
