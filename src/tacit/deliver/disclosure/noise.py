"""How far noise in counts can reach: margins that a sum of independent noises passes with a given chance.

Each function takes the standard deviation of one count's noise, how many counts are added or subtracted, and a
probability; it returns a margin that the noise of the sum reaches with at most that probability. The noises are
independent, alike, and symmetric around zero. Of these kinds the Laplace ones have far heavier tails: at a
probability of 1e-10 one count needs 6.4 deviations of normal noise, and 15.8 of Laplace noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

Margin = Callable[[float, int, float], float]  # (noise_sd, counts, probability)


def normal(noise_sd: float, counts: int, probability: float) -> float:
    """The exact quantile."""
    return -NormalDist().inv_cdf(probability) * noise_sd * math.sqrt(counts)


@lru_cache(maxsize=4096)  # a node with many children asks again and again
def laplace(noise_sd: float, counts: int, probability: float) -> float:
    """Exact for one count, a Chernoff bound for several; the scale is noise_sd / sqrt(2)."""
    scale = noise_sd / math.sqrt(2)
    if counts == 1:
        return max(0.0, -scale * math.log(2 * probability))
    return scale * _least_reached(lambda reach: _laplace_log_tail(reach, counts), probability)


@lru_cache(maxsize=4096)
def discrete_laplace(noise_sd: float, counts: int, probability: float) -> float:
    """The noise is a whole k with probability in proportion to exp(-|k| / scale), at the scale of `noise_sd`.

    One count reaches t with probability at most exp(-t / scale) / (1 + exp(-1 / scale)), with equality at whole
    t > 0; for several this is a Chernoff bound.
    """
    if counts == 1:
        scale = 0.5 / math.asinh(1 / (math.sqrt(2) * noise_sd))
        return max(0.0, -scale * math.log(probability * (1 + math.exp(-1 / scale))))
    return noise_sd * _least_reached(
        lambda deviations: _discrete_laplace_log_tail(deviations * noise_sd, counts, noise_sd**2), probability
    )


def _laplace_log_tail(reach: float, counts: int) -> float:
    """ln of min over s of exp(-s reach) / (1 - s^2)^counts, for noise of scale 1."""
    s = reach / (counts + math.hypot(counts, reach))
    return -s * reach - counts * math.log1p(-s * s)


def _discrete_laplace_log_tail(reach: float, counts: int, variance: float) -> float:
    """ln of min over s of exp(-s reach) / (1 - variance (cosh s - 1))^counts; y is exp(s), a square's root."""
    middle = reach * (1 + variance)
    root = math.sqrt(reach * reach * (1 + 2 * variance) + (counts * variance) ** 2)
    y = (middle + root) / ((counts + reach) * variance)
    left = 1 - variance * (y - 1) ** 2 / (2 * y)
    return -math.log(y) * reach - counts * math.log(left)


def _least_reached(log_tail: Callable[[float], float], probability: float) -> float:
    """Where a falling tail comes down to the probability, rounded up."""
    wanted = math.log(probability)
    low, high = 0.0, 1.0
    while log_tail(high) > wanted:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_tail(middle) > wanted else (low, middle)
    return high
