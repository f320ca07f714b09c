"""Samplers of integer noise, many draws at once: Laplace (two-sided geometric) and Gaussian (rounded).

Both are exact to far below what anybody could notice; each docstring says by how much.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.noise.distributions import DiscreteGaussian
from tacit.privacy.noise.exact_sampler import exp_minus
from tacit.privacy.randomness import Source

CHANCE_DIGITS = 128
"""Binary digits to which the chance of each bit is kept; a second word is drawn only where the first ties."""

_WORD = 2**64
_TOO_WIDE = 2**50
_AT_ONCE = 2**14  # draws whose words are made together, so that memory stays bounded
_EXACT = Context(prec=80, rounding=ROUND_FLOOR)


def bit_thresholds(scale: Fraction) -> list[int]:
    """floor(2^128 P(bit j of G is set)) for j = 0, 1, ..., until it is 0; P(G = k) is in proportion to
    exp(-k / scale).

    The bits of such a G are independent: exp(-k / scale) is a product over the bits of k. Bit j is set with
    probability 1 / (1 + exp(2^j / scale)).
    """
    found: list[int] = []
    while True:
        exponent = _EXACT.divide(Decimal(2 ** len(found) * scale.denominator), Decimal(scale.numerator))
        if exponent > CHANCE_DIGITS:  # e^-128 < 2^-128 by far
            return found
        chance = _EXACT.divide(Decimal(1), 1 + _EXACT.exp(exponent))
        whole = int(_EXACT.multiply(chance, Decimal(2**CHANCE_DIGITS)))
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
    chance = bit_thresholds(scale)
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


PLACE_DIGITS = 63
"""Binary digits of a number's place in its cell; the last bit of their word is its sign."""

NARROWEST, TOO_WIDE = 2**4, 2**50
_CELLS_BITS = 3  # a standard deviation is 8 to 16 cells: few to tabulate, and hardly a draw is given up
_DOUBT = np.uint64(2**16)
"""How near the 64 digits of a draw may come to a probability in float64 before more of both are worked out: the
exponent has five roundings and is below 4 (else k is beyond 32 deviations), so the error is below 2^15."""


def gaussian_steps(count: int, scale: Fraction, source: Source) -> NDArray[np.int64]:
    """`count` independent whole numbers: each a normal number of this standard deviation, rounded to nearest.

    The line is cut into cells of 2^m steps. A number is (k + t) cells from zero, on either side: k comes from
    the discrete Gaussian law of c = scale / 2^m cells, t uniformly from [0, 1), and the two are kept with
    probability exp(-t (2k + t) / 2c^2), so that exp(-(k + t)^2 / 2c^2) is left of them. Nothing in it is
    rounded but t, to the middle of one of 2^63 parts of a cell.

    Guarantee:  added to whole numbers, the Gaussian mechanism, rounded afterwards: for D numbers within 2^16
                deviations (beyond are none, but for a probability of e^(-2^31)) any outcome has e^-x to e^x
                times the probability that it would have, where x <= 2^-98 D.
    Neighbours: whichever the noise's scale was computed for.
    Assumes:    uniform, independent words; a scale of 2^4 to 2^50 steps.
    Source:     sampling a cell, then a place in it: Karney 2016 (ACM TOMS 42:3). A part of h = 2^-63 / c
                deviations around a number of v deviations has between e^(-h^2 / 8) and e^(v^2 h^2 / 24) times
                the probability of its middle: the mean of cosh(v u) exp(-u^2 / 2) over |u| <= h / 2.
    """
    if not NARROWEST <= expect.positive("scale", scale) < TOO_WIDE:
        raise BadInput("expected a scale of at least 2^4 and below 2^50 steps, got another")
    bits = int(scale).bit_length() - 1 - _CELLS_BITS
    law = DiscreteGaussian((scale / 2**bits) ** 2)
    steps = np.empty(expect.whole("count", count, at_least=0), np.int64)
    done = 0
    while done < len(steps):
        some = _draw_some(law, bits, source)[: len(steps) - done]
        steps[done : done + len(some)] = some
        done += len(some)
    return steps


def _draw_some(law: DiscreteGaussian, bits: int, source: Source) -> NDArray[np.int64]:
    """Some numbers: about half as many as are tried."""
    cells = law.sample_array(_AT_ONCE, source.words)
    cells = cells[cells >= 0]  # the sign is drawn apart: it goes with the place, too
    places, decisions = source.words(len(cells)), source.words(len(cells))
    kept = _accept(law, cells, places >> np.uint64(1), decisions, source)
    return _steps(cells[kept], places[kept], bits)


def _accept(
    law: DiscreteGaussian,
    cells: NDArray[np.int64],
    digits: NDArray[np.uint64],
    decisions: NDArray[np.uint64],
    source: Source,
) -> NDArray[np.bool_]:
    """Where U < exp(-t (2k + t) / 2c^2); `decisions` are the first 64 digits of U."""
    t = (digits + 0.5) * 2.0**-PLACE_DIGITS
    chance = np.exp(-t * (2.0 * cells + t) / float(2 * law.sigma_squared))
    threshold = (np.minimum(chance, 1 - 2.0**-53) * 2.0**64).astype(np.uint64)
    kept: NDArray[np.bool_] = decisions < threshold
    apart = np.where(kept, threshold - decisions, decisions - threshold)
    for place in np.flatnonzero(apart <= _DOUBT):  # about never
        kept[place] = _decide_exactly(law, int(cells[place]), int(digits[place]), int(decisions[place]), source)
    return kept


def _decide_exactly(law: DiscreteGaussian, cell: int, digits: int, decision: int, source: Source) -> bool:
    """The same with as many digits of both as it takes."""
    t = Fraction(2 * digits + 1, 2 ** (PLACE_DIGITS + 1))
    exponent, known = t * (2 * cell + t) / (2 * law.sigma_squared), 64
    while True:
        lower, upper = exp_minus(exponent, known)
        if decision < lower:
            return True
        if decision >= upper:
            return False
        decision, known = decision << 64 | source.uniform_below(2**64), known + 64


def _steps(cells: NDArray[np.int64], places: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """(cell + t) 2^bits, rounded to nearest (never a tie: t is the middle of a part), with the sign."""
    digits = places >> np.uint64(1)
    whole = (digits >> np.uint64(PLACE_DIGITS - bits)).astype(np.int64)
    half = (digits >> np.uint64(PLACE_DIGITS - 1 - bits) & np.uint64(1)).astype(np.int64)
    steps = (cells << bits) + whole + half
    return np.where(places & np.uint64(1), -steps, steps)
