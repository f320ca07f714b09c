"""What a noisy contest really spends: its exact worst case over all inputs, and the rate that spends as asked.

With the noise held fixed, raising a candidate's own score can only make it win, and raising another's can only
make it lose. So its chance is largest with its own score at the top of its range and all others at the bottom
of theirs, and smallest at the reverse: no pair of inputs tells more about it than these two.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.choice.choice import Floats
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.scores import ScoreRule

ROUNDING = 1e-9
"""By this share of it, doubles may put a worst case above what it is."""

FARTHEST_SIGNAL = 1e6
"""Signals are doubles: wider apart than this, their rounding would show in the probabilities."""


def log_extremes(noise: Noise, rule: ScoreRule, rate: float) -> tuple[Floats, Floats]:
    """ln of the smallest and of the largest chance that each candidate can have, whatever the private data."""
    low, high = rule.low, rule.high
    # Candidates with the same range have the same extremes: look at one of each kind.
    kinds, first, kind = np.unique(np.stack([low, high]), axis=1, return_index=True, return_inverse=True)
    count = kinds.shape[1]
    own = (np.arange(count), first)
    most, least = np.tile(low, (count, 1)), np.tile(high, (count, 1))
    most[own], least[own] = high[first], low[first]
    origin = high.max()
    signals = rate * (np.concatenate([least, most]) - origin)
    if not np.all(np.abs(signals) <= FARTHEST_SIGNAL):
        raise BadInput(
            f"expected scores within {FARTHEST_SIGNAL:g} times the noise of each other, got wider ones"
        )
    logs = noise.log_pmf(signals)
    return logs[:count][own][kind.ravel()], logs[count:][own][kind.ravel()]


def worst_case_epsilon(noise: Noise, rule: ScoreRule, rate: float) -> float:
    """The epsilon that the contest spends at this rate, to the precision of doubles."""
    least, most = log_extremes(noise, rule, rate)
    return max(0.0, float((most - least).max()))


def nominal_rate(rule: ScoreRule, epsilon: expect.Number) -> float:
    """epsilon / (2 Delta): enough noise for any number of candidates, and more than enough for few.

    Enough because of what `Noise` says of every noise in it.
    """
    return float(expect.positive("epsilon", epsilon) / 2) / rule.sensitivity


def calibrated_rate(noise: Noise, rule: ScoreRule, epsilon: expect.Number) -> float:
    """The largest rate at which the exact worst case is still at most epsilon, from public data alone.

    Found by bisection's faster kin, in logarithms, up or down from the nominal rate, and left on the safe side:
    the worst case there is at most epsilon, for any noise. It is the largest such rate where the worst case
    grows steadily with the rate, and never above what doubles can carry. A single candidate tells nothing at
    any rate, and gets the nominal one.
    """
    asked = float(expect.positive("epsilon", epsilon))
    low = nominal_rate(rule, epsilon)
    if rule.candidates == 1:
        return low

    def over(rate: float) -> float:
        return worst_case_epsilon(noise, rule, rate) - asked

    farthest = FARTHEST_SIGNAL / float(rule.high.max() - rule.low.min()) * (1 - 1e-12)
    high = low * (1 + 1e-9)  # where public scores differ the nominal rate often is the answer
    while over(low) > ROUNDING * asked:  # this noise is none of those that the nominal rate is for
        low, high = low / 2, low
    while over(high) <= 0:
        if high >= farthest:
            return farthest
        low, high = high, min(2 * high, farthest)
    rate = low if over(low) >= 0 else float(brentq(over, low, high, xtol=low * 1e-15, rtol=1e-15))
    step = 2.0**-51
    while over(rate) > 0:  # the root finder may end on either side
        rate, step = rate * (1 - step), 2 * step
    return rate
