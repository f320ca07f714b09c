"""The discrete Gaussian law: whole-numbered noise that composes like the Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tacit import expect
from tacit.privacy.noise.enclosures import ceil_shift, exp_minus, floor_shift
from tacit.privacy.noise.symmetric import Ratios, SymmetricLaw


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

    def ratios(self, count: int, precision: int) -> Ratios:
        """p(k) / p(k-1) = exp(-(2k - 1) / (2 sigma_squared)), falling with k."""
        first_lower, first_upper = exp_minus(1 / (2 * self.sigma_squared), precision)
        step_lower, step_upper = exp_minus(1 / self.sigma_squared, precision)
        lower, upper = [first_lower], [first_upper]
        for _ in range(count - 1):
            lower.append(floor_shift(lower[-1] * step_lower, precision))
            upper.append(ceil_shift(upper[-1] * step_upper, precision))
        return Ratios(lower, upper, upper[-1])

    def reach(self, digits: int) -> float:
        return 2 + math.sqrt(2 * (digits + 1) * math.log(2) * float(self.sigma_squared))

    @property
    def variance(self) -> float:
        """At most sigma_squared, and very close to it from sigma = 1 on."""
        square = np.arange(1 + math.ceil(40 * math.sqrt(self.sigma_squared) + 1), dtype=np.float64) ** 2
        weight = np.exp(-square / float(2 * self.sigma_squared))
        return 2 * math.fsum(square * weight) / (2 * math.fsum(weight) - 1)
