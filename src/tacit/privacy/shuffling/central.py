"""Central epsilon: what all choices of one device tell, together, to whoever sees only shuffled batches.

Composed by Rényi divergences, of which a table is kept by (epsilon, cohort size): adding a choice is then an
addition of 54 numbers, which a device can do for each of its impressions. The accountant (PLD) takes seconds
for the same batches, and is 5 to 10% tighter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.budget import rounded_up
from tacit.privacy.shuffling.renyi import ORDERS, local_divergences, shuffled_divergences

MICROS = 10**6
"""Whole micro-epsilons in an epsilon of one."""

LARGEST_COHORT = 2**20
"""A larger cohort is read as this one, whose divergences take a tenth of a second: an upper bound."""

_KEPT_BITS = 5  # of a cohort's size
_KEPT_DIGITS = 3  # of an epsilon

# The conversion at each order: what is added to the divergence, but for -ln(delta) / (order - 1).
_OFFSETS: Floats = np.log1p(-1 / ORDERS) - np.log(ORDERS) / (ORDERS - 1)

Choice = tuple[int, int | None]
"""Epsilon in whole micro-epsilons, and the size of the cohort; None where nothing hides it."""


def central_epsilon(choices: Iterable[Choice], delta: expect.Number) -> float:
    """What all choices of one device tell together, within their shuffled batches, rounded up.

    A choice is (epsilon in whole micro-epsilons, cohort size); None in place of the size where it counts at its
    full local epsilon: its batch has not been released yet, stayed too small, or was never shuffled. The result
    never falls with another choice, a larger epsilon, a smaller cohort (None is the smallest) or a smaller
    delta. It is never above the sum of the local epsilons, and is that sum at delta = 0.

    Sizes are read down to five binary digits and epsilons up to three decimal ones, so that a table of few
    entries serves: the first use of an entry takes 1 to 100 ms, 1,000 choices after that less than 1 ms.

    Guarantee:  the choices are together (epsilon, delta)-DP with the epsilon returned, to whoever sees them in
                their batches only. To whoever can link reports to devices (the server together with the proxy)
                they are what their local epsilons add up to, and nothing less.
    Neighbours: all private data of one device, replaced; others' data are arbitrary and fixed.
    Assumes:    what `ShuffledChoice` says of each batch; choices draw afresh; their number, epsilons and sizes
                follow from what is public. One choice per batch: where a device has k choices in a batch of n,
                each counts with n // k, since the batch tells less than k batches of so many would.
    Source:     Rényi composition: Mironov 2017 (arXiv 1702.07476); conversion: Canonne, Kamath, Steinke 2020
                (arXiv 2004.00010), proposition 12; each choice: `renyi`.

    >>> round(central_epsilon([(3_000_000, 5_000)] * 10, 1e-6), 2)
    1.23
    >>> central_epsilon([(3_000_000, None)], 1e-6)
    3.0
    """
    allowed = float(expect.probability("delta", delta, zero=True))
    counts: dict[Choice, int] = {}
    for choice, times in _counted(choices).items():
        entry = _entry(choice)
        counts[entry] = counts.get(entry, 0) + times
    added_up = rounded_up(Fraction(sum(micros * times for (micros, _), times in counts.items()), MICROS))
    if allowed == 0.0 or added_up == 0.0:
        return added_up
    together = np.array([*counts.values()], np.float64) @ np.array([_divergences(entry) for entry in counts])
    found = float(np.min(together + _OFFSETS - math.log(allowed) / (ORDERS - 1)))
    return min(added_up, max(0.0, found * (1 + 2.0**-40) + 2.0**-40))


def _counted(choices: Iterable[Choice]) -> Counter[Choice]:
    try:
        return Counter(choices)
    except TypeError:
        raise BadInput("expected several choices, each a tuple, got another kind of value") from None


@lru_cache(maxsize=2**14)
def _entry(choice: Choice) -> Choice:
    """The choice with its cohort as the table has it; refused where it is none."""
    if not isinstance(choice, tuple) or len(choice) != 2:
        raise BadInput("expected choices of (micro-epsilons, cohort size or None), got others")
    micros, cohort = choice
    micros = expect.whole("a choice's micro-epsilons", micros, at_least=0)
    if cohort is None or expect.whole("a choice's cohort", cohort, at_least=1) == 1:
        return micros, None
    return micros, _rounded_cohort(cohort)


@lru_cache(maxsize=2**12)
def _divergences(entry: Choice) -> Floats:
    micros, cohort = entry
    alone = local_divergences(rounded_up(Fraction(micros, MICROS)))
    if cohort is None or not micros:
        return alone
    return np.minimum(alone, _shuffled(_rounded_epsilon(micros), cohort))


def _rounded_cohort(cohort: int) -> int:
    """Down to so many binary digits: a smaller cohort never hides better."""
    size = min(cohort, LARGEST_COHORT)
    shift = max(0, size.bit_length() - _KEPT_BITS)
    return size >> shift << shift


def _rounded_epsilon(micros: int) -> int:
    """Up to so many decimal digits: a larger epsilon never hides better."""
    unit: int = 10 ** max(0, len(str(micros)) - _KEPT_DIGITS)
    return -(-micros // unit) * unit


@lru_cache(maxsize=2**12)
def _shuffled(micros: int, cohort: int) -> Floats:
    return shuffled_divergences(rounded_up(Fraction(micros, MICROS)), cohort)
