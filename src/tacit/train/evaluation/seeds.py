"""Two methods compared over the same seeds."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from tacit.errors import BadInput
from tacit.train.evaluation.checks import numbers
from tacit.train.evaluation.estimates import LEVEL, Measured, t_quantile


def paired_seeds(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> Measured:
    """The mean of a - b, where a[i] and b[i] share their seed: Student's interval over the seeds.

    >>> print(paired_seeds([3.0, 4.0, 5.0], [1.0, 3.0, 2.0]))
    2 [-0.4841, 4.484]
    """
    return over_seeds(numbers("a", a) - numbers("b", b, rows=len(numbers("a", a))), level)


def over_seeds(figures: ArrayLike, level: float = LEVEL) -> Measured:
    """The mean of one figure over seeds, with Student's interval."""
    each = numbers("figures", figures)
    if len(each) < 2:
        raise BadInput(f"expected at least two seeds for an interval, got {len(each)}")
    mean = float(each.mean())
    reach = t_quantile(level, len(each) - 1) * float(each.std(ddof=1)) / math.sqrt(len(each))
    return Measured(mean, mean - reach, mean + reach, level)
