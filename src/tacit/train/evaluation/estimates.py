"""A figure, how far each row pulls it, and the interval that follows.

For all figures here, value - truth is close to a sum of one term per row, its influence. Rows of one cluster
(impressions of one user, say) may depend on one another, so the variance is the sum over clusters of the square
of their summed influence: with each row its own cluster, DeLong's for AUC, and the usual one for a mean.
Source: Hampel 1974 (JASA 69); clusters: Liang, Zeger 1986 (Biometrika 73), Obuchowski 1997 (Biometrics 53).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

from tacit import expect
from tacit.expect import Choice
from tacit.train.evaluation.checks import Floats

LEVEL = 0.95
Clusters = NDArray[np.intp] | None  # each row's cluster, numbered from 0; None: each row is its own


@dataclass(frozen=True)
class Measured:
    """A figure and its interval, which holds the truth in about `level` of all repetitions."""

    value: float
    low: float
    high: float
    level: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def as_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high, "level": self.level}


class Scale(Choice):
    """Where the interval is symmetric. A value at or beyond the ends of its scale falls back to plain."""

    PLAIN = "plain"
    LOG = "log"  # for what is positive
    LOGIT = "logit"  # for what lies between 0 and 1


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value with its rows' influence, and the degrees of freedom that its variance was learnt with."""

    value: float
    influence: Floats  # (rows,)
    cluster: Clusters
    freedom: float

    @property
    def variance(self) -> float:
        return summed_squares(self.influence, self.cluster)

    def stands_out(self, standard_errors: float) -> bool:
        """Whether the value is so much above 0 that one may divide by it."""
        return self.value > standard_errors * math.sqrt(self.variance)

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two figures of the same rows: what both models find hard cancels."""
        return self.combined(other, self.value - other.value, 1.0, -1.0)

    def over(self, other: Estimate) -> Estimate:
        """The ratio of two figures of the same rows."""
        ratio = self.value / other.value
        return self.combined(other, ratio, 1 / other.value, -ratio / other.value)

    def combined(self, other: Estimate, value: float, slope: float, other_slope: float) -> Estimate:
        """A function of two figures, by its derivative in each."""
        influence = slope * self.influence + other_slope * other.influence
        return Estimate(value, influence, self.cluster, min(self.freedom, other.freedom))

    def measured(self, level: float = LEVEL, scale: Scale = Scale.PLAIN) -> Measured:
        """The interval by Student's t, which is the normal one but for few clusters."""
        reach = t_quantile(level, self.freedom) * math.sqrt(self.variance)
        value = self.value
        if scale is Scale.LOG and value > 0:
            factor = math.exp(min(reach / value, 700.0))
            return Measured(value, value / factor, value * factor, level)
        if scale is Scale.LOGIT and 0 < value < 1:
            centre, spread = logit(value), reach / (value * (1 - value))
            return Measured(value, float(expit(centre - spread)), float(expit(centre + spread)), level)
        return Measured(value, value - reach, value + reach, level)


def summed_squares(influence: Floats, cluster: Clusters) -> float:
    """Squares of influence, added up within clusters first."""
    pulls = influence if cluster is None else np.bincount(cluster, influence)
    return float(np.dot(pulls, pulls))


def t_quantile(level: float, freedom: float) -> float:
    """How many standard errors an interval reaches to either side."""
    within = float(expect.probability("level", level))
    return float(stdtrit(freedom, (1 + within) / 2))


def small_sample(groups: int) -> float:
    """What influence is multiplied by, so that its squares sum to a variance with `groups - 1` below."""
    return math.sqrt(groups / (groups - 1))
