"""Laplace noise in whole steps, exact to far below what anybody could notice, many draws at once."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.randomness import Source

DIGITS = 128
"""Binary digits to which the chance of each bit is kept; a second word is drawn only where the first ties."""

_WORD = 2**64
_TOO_WIDE = 2**50
_AT_ONCE = 2**14  # draws whose words are made together, so that memory stays bounded
_EXACT = Context(prec=80, rounding=ROUND_FLOOR)


def thresholds(scale: Fraction) -> list[int]:
    """floor(2^128 P(bit j of G is set)) for j = 0, 1, ..., until it is 0; P(G = k) is in proportion to
    exp(-k / scale).

    The bits of such a G are independent: exp(-k / scale) is a product over the bits of k. Bit j is set with
    probability 1 / (1 + exp(2^j / scale)).
    """
    found: list[int] = []
    while True:
        exponent = _EXACT.divide(Decimal(2 ** len(found) * scale.denominator), Decimal(scale.numerator))
        if exponent > DIGITS:  # e^-128 < 2^-128 by far
            return found
        chance = _EXACT.divide(Decimal(1), 1 + _EXACT.exp(exponent))
        whole = int(_EXACT.multiply(chance, Decimal(2**DIGITS)))
        if whole == 0:
            return found
        found.append(whole)


def laplace_steps(count: int, scale: Fraction, source: Source) -> NDArray[np.int64]:
    """`count` independent whole numbers, P(x) in proportion to exp(-|x| / scale).

    Guarantee:  added to a vector of whole numbers, pure epsilon-DP with epsilon = sensitivity / scale, where
                sensitivity bounds the L1 distance between the vectors of two neighbours; up to a total
                variation of at most 2^-119 for each number: the chance of each bit is cut at 128 digits, and
                so is the tail.
    Neighbours: whichever the sensitivity was computed for.
    Assumes:    scale < 2^50, so that all bits fit; uniform, independent words.
    Source:     two-sided geometric noise: Ghosh, Roughgarden, Sundararajan 2009 (arXiv 0811.2841), as the
                difference of two geometric numbers; their bits are independent because the law is a product.
    """
    if expect.positive("scale", scale) >= _TOO_WIDE:
        raise BadInput("expected a scale below 2^50 steps, got more")
    chance = thresholds(scale)
    steps = np.empty(expect.whole("count", count, at_least=0), np.int64)
    for start in range(0, len(steps), _AT_ONCE):
        part = steps[start : start + _AT_ONCE]
        part[:] = _geometric(len(part), chance, source)
        part -= _geometric(len(part), chance, source)
    return steps


def _geometric(count: int, chance: list[int], source: Source) -> NDArray[np.int64]:
    drawn = np.zeros(count, np.int64)
    for place, threshold in enumerate(chance):
        first, second = divmod(threshold, _WORD)
        words = source.words(count)
        is_set = words < np.uint64(first)
        for tie in np.flatnonzero(words == np.uint64(first)):  # about never
            is_set[tie] = source.uniform_below(_WORD) < second
        drawn += is_set.astype(np.int64) << place
    return drawn
