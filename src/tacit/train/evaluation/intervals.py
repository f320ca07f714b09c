"""Confidence intervals: from the influence of each row on a figure, or from repetitions over seeds.

For all figures here, value - truth is close to a sum of one term per row, its influence. Rows of one cluster
(such as impressions of one user) may depend on one another, so the variance is the sum over clusters of the
square of their summed influence: with each row its own cluster, DeLong's for AUC, and the usual one for a mean.
Columns that cannot be meant are refused in one line.
Source: Hampel 1974 (JASA 69); clusters: Liang, Zeger 1986 (Biometrika 73), Obuchowski 1997 (Biometrics 53).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, stdtrit

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.expect import Choice

Clusters = NDArray[np.intp] | None  # each row's cluster, numbered from 0; None: each row is its own
LEVEL = 0.95


def number_column(name: str, values: ArrayLike, *, rows: int | None = None) -> Floats:
    """A flat column of finite numbers, as many as there are rows."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise BadInput(f"expected {name} as a flat column of numbers, got {array.dtype} of shape {array.shape}")
    if not len(array):
        raise BadInput(f"expected {name} to have rows, got none")
    if rows is not None and len(array) != rows:
        raise BadInput(f"expected {name} to have {rows} rows like the labels, got {len(array)}")
    column = array.astype(np.float64)
    if unusable := int(np.count_nonzero(~np.isfinite(column))):
        raise BadInput(f"expected {name} to be finite, got NaN or infinity in {unusable} of {len(column)} rows")
    return column


def probability_column(name: str, values: ArrayLike, *, rows: int | None = None) -> Floats:
    """The same, each between 0 and 1."""
    column = number_column(name, values, rows=rows)
    if outside := int(np.count_nonzero((column < 0) | (column > 1))):
        raise BadInput(f"expected {name} in [0, 1], got {outside} of {len(column)} rows outside")
    return column


def binary_column(name: str, values: ArrayLike) -> Floats:
    """The same, each 0 or 1."""
    column = number_column(name, values)
    if others := int(np.count_nonzero((column != 0) & (column != 1))):
        raise BadInput(f"expected {name} to be 0 or 1, got other values in {others} of {len(column)} rows")
    return column


@dataclass(frozen=True)
class MeasuredValue:
    """A figure and its interval, which holds the truth in about `level` of all repetitions."""

    value: float
    low: float
    high: float
    level: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def as_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high, "level": self.level}


class IntervalScale(Choice):
    """Where the interval is symmetric. A value at or beyond the ends of its scale falls back to plain."""

    PLAIN = "plain"
    LOG = "log"  # for what is positive
    LOGIT = "logit"  # for what lies between 0 and 1


def symmetric_interval(
    value: float, half_width: float, level: float = LEVEL, scale: IntervalScale = IntervalScale.PLAIN
) -> MeasuredValue:
    """An interval that is symmetric on its scale; `half_width` is what it would be on the plain one."""
    if scale is IntervalScale.LOG and value > 0:
        factor = math.exp(min(half_width / value, 700.0))
        return MeasuredValue(value, value / factor, value * factor, level)
    if scale is IntervalScale.LOGIT and 0 < value < 1:
        centre, spread = logit(value), half_width / (value * (1 - value))
        return MeasuredValue(value, float(expit(centre - spread)), float(expit(centre + spread)), level)
    return MeasuredValue(value, value - half_width, value + half_width, level)


@dataclass(frozen=True, eq=False)
class InfluenceEstimate:
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

    def minus(self, other: InfluenceEstimate) -> InfluenceEstimate:
        """The difference of two figures of the same rows: what both models find hard cancels."""
        return self.combine(other, self.value - other.value, 1.0, -1.0)

    def over(self, other: InfluenceEstimate) -> InfluenceEstimate:
        """The ratio of two figures of the same rows."""
        ratio = self.value / other.value
        return self.combine(other, ratio, 1 / other.value, -ratio / other.value)

    def combine(
        self, other: InfluenceEstimate, value: float, slope: float, other_slope: float
    ) -> InfluenceEstimate:
        """A function of two figures, by its derivative in each."""
        influence = slope * self.influence + other_slope * other.influence
        return InfluenceEstimate(value, influence, self.cluster, min(self.freedom, other.freedom))

    def with_interval(self, level: float = LEVEL, scale: IntervalScale = IntervalScale.PLAIN) -> MeasuredValue:
        """The interval by Student's t, which is the normal one but for few clusters."""
        reach = t_quantile(level, self.freedom) * math.sqrt(self.variance)
        return symmetric_interval(self.value, reach, level, scale)


def summed_squares(influence: Floats, cluster: Clusters) -> float:
    """Squares of influence, added up within clusters first."""
    pulls = influence if cluster is None else np.bincount(cluster, influence)
    return float(np.dot(pulls, pulls))


def t_quantile(level: float, freedom: float) -> float:
    """How many standard errors an interval reaches to either side."""
    within = float(expect.probability("level", level))
    return float(stdtrit(freedom, (1 + within) / 2))


def small_sample_factor(groups: int) -> float:
    """What influence is multiplied by, so that its squares sum to a variance with `groups - 1` below."""
    return math.sqrt(groups / (groups - 1))


def weighted_mean(amounts: Floats, weight: Floats, cluster: Clusters) -> InfluenceEstimate:
    """The mean over rows, by weight, of amounts that were multiplied by the rows' weights already."""
    groups = len(weight) if cluster is None else int(cluster.max()) + 1
    if groups < 2:
        what = "rows" if cluster is None else "clusters"
        raise BadInput(f"expected at least two {what} for an interval, got {groups}")
    mean = amounts.sum() / weight.sum()
    pulls = (amounts - mean * weight) / weight.sum()
    return InfluenceEstimate(float(mean), small_sample_factor(groups) * pulls, cluster, groups - 1)


def mean_difference_over_seeds(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> MeasuredValue:
    """The mean of a - b, where a[i] and b[i] share their seed: Student's interval over the seeds.

    >>> print(mean_difference_over_seeds([3.0, 4.0, 5.0], [1.0, 3.0, 2.0]))
    2 [-0.4841, 4.484]
    """
    return mean_over_seeds(
        number_column("a", a) - number_column("b", b, rows=len(number_column("a", a))), level
    )


def mean_over_seeds(figures: ArrayLike, level: float = LEVEL) -> MeasuredValue:
    """The mean of one figure over seeds, with Student's interval."""
    each = number_column("figures", figures)
    if len(each) < 2:
        raise BadInput(f"expected at least two seeds for an interval, got {len(each)}")
    reach = t_quantile(level, len(each) - 1) * float(each.std(ddof=1)) / math.sqrt(len(each))
    return symmetric_interval(float(each.mean()), reach, level)
