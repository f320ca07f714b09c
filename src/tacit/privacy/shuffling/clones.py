"""The clone bounds: what shuffling gives to any local mechanism, knowing nothing but its epsilon.

Every other member's report is, with some probability, a draw that might as well be the victim's own. The victim
then hides among the clones: of two kinds of report, one more is of the one kind or of the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.privacy.budget import rounded_up

CloneProbability = Callable[[float], float]
"""From e^-epsilon0 to the chance that another member's report is a clone."""

LARGEST_COHORT = 10**9
"""A larger cohort is read as this one: more members never reveal more, so that is an upper bound."""

_LOG_TAIL = 140.0  # e^-140 < 1e-60: clone counts that are rarer are charged as if nobody hid the victim
_MOST_COUNTS = 2_000  # neighbouring clone counts share one evaluation, at the smallest of them
_ROUNDING = 1e-9  # relative, on every term; the binomial laws are right to about 1e-12 (held by a test)
_LOCAL_SLACK = 2.0**-40  # e^epsilon0 is read this much larger, which covers every rounding of it


def variation_ratio(decay: float) -> float:
    """2 / (e^epsilon0 + 1), from decay = e^-epsilon0."""
    return 2 * decay / (1 + decay)


def standard(decay: float) -> float:
    """e^-epsilon0: the older, more cautious count of clones."""
    return decay


def delta(
    local_epsilon: expect.Number,
    cohort: int,
    epsilon: expect.Number,
    clone_probability: CloneProbability = variation_ratio,
) -> float:
    """An upper bound on delta(epsilon) of the shuffled reports of `cohort` members.

    Guarantee:  the multiset of reports is (epsilon, delta)-DP with the delta returned.
    Neighbours: replace one member's private input; the others' inputs are arbitrary and fixed.
    Assumes:    every member uses one mechanism that is local_epsilon-LDP; the order of the reports tells
                nothing; `cohort` counts only members who really randomise and do not reveal their report.
    Source:     `standard`: Feldman, McMillan, Talwar 2021 (arXiv 2012.12803). `variation_ratio`: Wang et al.
                2023 (arXiv 2304.05007); proved for every mechanism in docs/shuffling.md, in another way.
    """
    local = rounded_up(expect.positive("local_epsilon", local_epsilon)) + _LOCAL_SLACK
    members = min(expect.whole("cohort", cohort, at_least=1), LARGEST_COHORT)
    asked = -rounded_up(-expect.at_least_zero("epsilon", epsilon))  # rounded down
    if asked >= local - _LOCAL_SLACK:
        return 0.0
    decay = math.exp(-local)
    # (e^epsilon0 - e^epsilon) / (e^epsilon0 + 1): the whole delta when nobody else is there.
    alone = -math.expm1(asked - local) / (1 + decay)
    rate = clone_probability(decay) * (1 - 2.0**-50)
    if members == 1 or rate * members < 1e-12 or asked > 300:
        return min(1.0, alone * (1 + _ROUNDING))
    weights, fewest = _clone_counts(members - 1, rate)
    hidden = float(weights @ _delta_among(fewest, local, asked, alone))
    return min(1.0, hidden + alone * 2 * math.exp(-_LOG_TAIL))


def _clone_counts(others: int, rate: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The binomial law of the number of clones, in blocks that are read at their smallest count.

    Fewer clones never hide better, so reading a block low is an upper bound. Bernstein's inequality puts at
    most 2 exp(-_LOG_TAIL) outside the range.
    """
    from scipy.stats import binom  # here and below: heavy, and few need it

    mean, variance = others * rate, others * rate * (1 - rate)
    reach = math.sqrt(2 * variance * _LOG_TAIL) + 2 * _LOG_TAIL / 3
    low, high = max(0, math.floor(mean - reach)), min(others, math.ceil(mean + reach))
    counts = np.arange(low, high + 1)
    starts = np.arange(0, len(counts), -(-len(counts) // _MOST_COUNTS))
    weights: NDArray[np.float64] = np.add.reduceat(binom.pmf(counts, others, rate), starts)
    return weights * (1 + _ROUNDING), counts[starts]


def _delta_among(clones: NDArray[np.int64], local: float, epsilon: float, alone: float) -> NDArray[np.float64]:
    """The hockey-stick divergence at e^epsilon, given how many clones there are.

    With `a` reports of the first kind and `b` of the second, a + b = clones + 1, the odds of the two hypotheses
    are (c a + b) / (a + c b), c = e^local. They grow with a, so those above e^epsilon are all a >= `first`.
    """
    from scipy.stats import binom

    threshold = math.expm1(-epsilon - local) / (math.expm1(-local) * (1 + math.exp(-epsilon)))
    first = np.floor((clones + 1) * threshold) + 1
    gained = binom.pmf(first - 1, clones, 0.5) * alone
    lost = binom.sf(first - 1, clones, 0.5) * math.expm1(epsilon)
    # Each term is pushed to its pessimistic side before they cancel.
    among: NDArray[np.float64] = np.maximum(gained * (1 + _ROUNDING) - lost * (1 - _ROUNDING), 0.0)
    return among
