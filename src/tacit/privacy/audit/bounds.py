"""The epsilon that a mechanism has at least: exact from its rows, or bounded from draws, by how often an event
comes up on two neighbours or by how far the noise reaches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations

from scipy.stats import beta

from tacit.errors import BadInput
from tacit.privacy.budget import log_rounded_up

Row = Sequence[Fraction]

THOUSAND = 1000


def exact_epsilon(rows: Sequence[Row], delta: Fraction = Fraction(0)) -> float:
    """The least epsilon at which all rows, one pmf per private input, keep (epsilon, delta) to each other.

    Exact in fractions up to the last logarithm, which is rounded up; infinite where no epsilon does.
    """
    for row in rows:
        if sum(row) != 1 or min(row) < 0:
            raise BadInput(f"expected rows of probabilities that sum to 1, got the sum {sum(row)}")
    if len({len(row) for row in rows}) != 1 or len(rows) < 2:
        raise BadInput("expected at least two rows over the same outputs")
    return max(_pair_epsilon(one, other, delta) for one, other in permutations(rows, 2))


def _pair_epsilon(upper: Row, lower: Row, delta: Fraction) -> float:
    # delta(epsilon) = sum of (p - e^epsilon q) over outputs with p > e^epsilon q. As epsilon grows, outputs
    # drop out in the order of their ratios, and in between delta is linear in e^epsilon.
    impossible = sum((p for p, q in zip(upper, lower, strict=True) if q == 0), Fraction(0))
    if impossible > delta:
        return math.inf
    possible = sorted(((p / q, p, q) for p, q in zip(upper, lower, strict=True) if q > 0), reverse=True)
    mass, weight = impossible, Fraction(0)
    for ratio, p, q in possible:
        if mass - ratio * weight > delta:  # at this ratio it is too much already: the crossing lies above
            break
        mass, weight = mass + p, weight + q
    return log_rounded_up(max((mass - delta) / weight, Fraction(1)))


def empirical_epsilon(hits: int, neighbour_hits: int, trials: int, *, delta: float, alpha: float) -> float:
    """An epsilon that the mechanism has at least, from how often one event, fixed beforehand, came up.

    Wrong with probability at most alpha: two Clopper-Pearson bounds at alpha/2 each.
    Source: Clopper, Pearson 1934; as an audit: Jagielski, Ullman, Oprea 2020 (arXiv 2006.07709).
    """
    if not (0 <= hits <= trials and 0 <= neighbour_hits <= trials and trials > 0):
        raise BadInput(f"expected hits within 0..{trials}, got {hits} and {neighbour_hits}")
    low = float(beta.ppf(alpha / 2, hits, trials - hits + 1)) if hits else 0.0
    high = 1.0
    if neighbour_hits < trials:
        high = float(beta.ppf(1 - alpha / 2, neighbour_hits + 1, trials - neighbour_hits))
    return math.log((low - delta) / high) if low > delta else -math.inf


def most_share(reached: int, draws: int, chance: Callable[[Fraction], float], *, alpha: float) -> Fraction:
    """The most of its noise that a mechanism can have, in thousandths and at most 2, from how often the noise
    reached a bound that was fixed beforehand; too small with probability at most alpha.

    `chance` is exact: how often the noise reaches it where a share of the noise is left, rising with the share.
    """
    if not 0 <= reached <= draws or draws <= 0:
        raise BadInput(f"expected a count within 0..{draws}, got {reached}")
    most = 1.0 if reached == draws else float(beta.ppf(1 - alpha, reached + 1, draws - reached))
    low, high = 1, 2 * THOUSAND
    while low < high:  # the least share that is not too little for what was seen
        middle = (low + high) // 2
        low, high = (middle + 1, high) if chance(Fraction(middle, THOUSAND)) < most else (low, middle)
    return Fraction(low, THOUSAND)
