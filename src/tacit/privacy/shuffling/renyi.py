"""Rényi divergences of one choice, alone or within a shuffled batch, at a fixed table of orders.

Of the pair that stands for the clones in `bounds`: a victim who tells the truth with probability c/(c+1),
c = e^epsilon0, among Bin(n - 1, 2/(c+1)) fair coins. With t coins in all and the mean of their signs s, the
odds of the two hypotheses are (1 + rho s) / (1 - rho s), rho = (c-1)/(c+1), so the moment at order a is

    E_t E_s (1 + rho s)^a (1 - rho s)^(1-a)

The function of s is convex, and the mean of more exchangeable signs is smaller in convex order, so that the
inner expectation falls with t. Hence two roundings that only raise the moment: neighbouring t are read at the
smallest of them, and neighbouring s are split between the ends of their cell with their mean kept.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats

ORDERS: Floats = 1 + 2.0 ** (np.arange(-13, 41) / 4)
"""From 1.1 to 1025, four per doubling of order - 1: what lies between two of them is rarely .5% better."""

_LEAST = 1e-290  # every mass is at least this: what is smaller, or lies outside of a window, is charged so
_LOG_TAIL = 700.0  # e^-700 < 1e-300
_STDDEVS = 38.0  # by Hoeffding at most 2 e^-722 of the signs' sum lies farther out
_CELLS = 1024
_NEAR, _FAR = 96, 32  # blocks of coin counts: within four deviations of their mean, and on each side of those
_ROUNDING = 1e-8  # relative: the sums of logarithms below err by at most 2e-9
_LOCAL_SLACK = 2.0**-40  # epsilon0 is read this much larger, which covers every rounding of its exponential


def local_divergences(epsilon: float) -> Floats:
    """At `ORDERS`, of the worst pair of all epsilon-DP mechanisms.

    Guarantee:  the Rényi divergence of an epsilon-LDP choice is at most this, at each order.
    Neighbours: any two private inputs of the choice.
    Assumes:    one choice, with randomness of its own.
    Source:     Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776): randomized response dominates.
    """
    moments = np.logaddexp(ORDERS * epsilon, (1 - ORDERS) * epsilon) - np.logaddexp(0.0, epsilon)
    return _raised(moments) / (ORDERS - 1)


def shuffled_divergences(epsilon: float, cohort: int) -> Floats:
    """At `ORDERS`, of one choice in the shuffled batch of `cohort` members.

    Guarantee:  the Rényi divergence of the batch is at most this, at each order, in both directions.
    Neighbours: replace one member's private input; the others' inputs are arbitrary and fixed.
    Assumes:    what `ShuffledChoice` says; `cohort` counts only members who really randomise and do not
                reveal their report.
    Source:     the clones of `bounds` dominate the batch at every epsilon, below zero too (docs/shuffling.md),
                and a moment is a mixture of hockey-stick divergences: so it dominates the moments. The pair is
                the same in both directions. The roundings are ours, see the module.
    """
    alone = local_divergences(epsilon)
    if cohort == 1:
        return alone
    decay = math.exp(-(epsilon + _LOCAL_SLACK))
    rate, contrast = 2 * decay / (1 + decay) * (1 - 2.0**-50), (1 - decay) / (1 + decay) * (1 + 2.0**-50)
    if rate * cohort < 1e-12 or contrast >= 1:
        return alone
    weights, fewest = _coin_counts(cohort - 1, rate)
    moments = np.zeros(len(ORDERS))
    with np.errstate(over="ignore"):  # infinite at orders where a member alone is the better bound
        for weight, coins in zip(weights.tolist(), fewest.tolist(), strict=True):
            moments += weight * _moments_among(coins + 1, contrast)
        moments += _LEAST * _moments_of(np.array([contrast]), np.array([2.0]))  # outside of the window
    logs = np.log(moments, where=np.isfinite(moments), out=np.full(len(ORDERS), np.inf))
    found: Floats = np.minimum(_raised(np.maximum(logs, 0.0)) / (ORDERS - 1), alone)
    return found


def _raised(log_moments: Floats) -> Floats:
    return log_moments * (1 + 2.0**-40) + _ROUNDING


def _coin_counts(others: int, rate: float) -> tuple[Floats, NDArray[np.int64]]:
    """The binomial law of the number of coins beside the victim, in blocks, each at its smallest count."""
    mean, variance = others * rate, others * rate * (1 - rate)
    # Bernstein: at most 2 exp(-_LOG_TAIL) lies outside.
    reach = math.sqrt(2 * variance * _LOG_TAIL) + 2 * _LOG_TAIL / 3
    low, high = max(0, math.floor(mean - reach)), min(others, math.ceil(mean + reach))
    near = 4 * math.sqrt(variance)
    first, last = max(low, math.floor(mean - near)), min(high, math.ceil(mean + near))
    ends = [
        np.linspace(a, b, blocks + 1)
        for a, b, blocks in ((low, first, _FAR), (first, last, _NEAR), (last, high, _FAR))
    ]
    starts = np.unique(np.concatenate(ends).astype(np.int64))
    masses = _binomial(others, low, high, math.log(rate) - math.log1p(-rate))
    return np.add.reduceat(masses, starts - low), starts


def _moments_among(coins: int, contrast: float) -> Floats:
    """E (1 + rho s)^a (1 - rho s)^(1-a) at each order, where s is the mean of so many fair signs."""
    reach = min(coins, math.ceil(_STDDEVS * math.sqrt(coins)))
    low = (coins - reach) // 2
    masses = _binomial(coins, low, coins - low, 0.0)
    width = -(-len(masses) // _CELLS)
    if width > low:
        width = 1  # no cell with anything in it reaches beyond all coins
    place, offset = np.divmod(np.arange(len(masses)), width)
    cells = int(place[-1]) + 2
    split = np.bincount(place, masses * (width - offset), cells) + np.bincount(
        place + 1, masses * offset, cells
    )
    ups = low + width * np.arange(cells)
    # The last end may lie one beyond: nothing was split to it then, and it has what every mass has at least.
    signs = np.minimum((2 * ups - coins) / coins, 1.0)
    return _moments_of(signs * contrast, np.maximum(split / width, _LEAST))


def _moments_of(tilts: Floats, masses: Floats) -> Floats:
    losses = np.log1p(tilts) - np.log1p(-tilts)
    found: Floats = (masses * (1 + tilts)) @ np.exp(np.multiply.outer(losses, ORDERS - 1))
    return found


def _binomial(count: int, low: int, high: int, log_odds: float) -> Floats:
    """The probabilities of low..high, divided by their sum: never below the truth.

    By sums of the logarithms of their ratios, from the largest outwards.
    """
    places = np.arange(low, high)
    ratios = np.log((count - places) / (places + 1)) + log_odds
    top = int(np.searchsorted(-ratios, 0.0))  # ratios fall: they are above one up to here
    logs = np.concatenate([-np.cumsum(ratios[:top][::-1])[::-1], [0.0], -np.cumsum(-ratios[top:])])
    masses = np.exp(logs)
    found: Floats = np.maximum(masses / masses.sum(), _LEAST)
    return found
