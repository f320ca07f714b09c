"""Exact sampling of symmetric integer noise, with proved digits.

A law is given by enclosures of its ratios p(k) / p(k-1): pairs (lower, upper) of whole numbers at a
precision, with lower <= x 2^precision <= upper, proved by integer arithmetic and rounded outwards. From
these follow, with proof, the first binary digits of every S(k) = P(|X| > k). A uniform U in [0, 1) then
decides: |X| is the number of k with U < S(k). Digits of U are drawn as long as they leave a doubt, so
nothing is rounded and no tail is cut off: 63 digits almost always do, and the chance of needing more is
about (number of thresholds) 2^-63.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.randomness import UniformBelow, WordSource

Enclosure = tuple[int, int]


def floor_shift(number: int, bits: int) -> int:
    return number >> bits


def ceil_shift(number: int, bits: int) -> int:
    return -(-number >> bits)


def ceil_divide(number: int, by: int) -> int:
    return -(-number // by)


def exp_minus(x: Fraction, precision: int) -> Enclosure:
    """e^-x for x >= 0, by its alternating series at a small x and repeated squaring."""
    if x > precision:
        return 0, 1  # e^-x < 2^-precision
    halvings = max(0, (x.numerator // x.denominator).bit_length() + 1)
    working = precision + 2 * halvings + 16  # each squaring doubles the relative error
    small = x / 2**halvings  # at most 1/2
    one = 1 << working
    lower = upper = one
    term_lower = term_upper = one
    order = 0
    while term_upper > 1:
        order += 1
        by = small.denominator * order
        term_lower = term_lower * small.numerator // by
        term_upper = ceil_divide(term_upper * small.numerator, by)
        if order % 2:
            lower, upper = lower - term_upper, upper - term_lower
        else:
            lower, upper = lower + term_lower, upper + term_upper
    # The rest of an alternating, shrinking series is at most its first term, so at most the last one here.
    lower, upper = lower - term_upper, upper + term_upper
    for _ in range(halvings):
        lower, upper = floor_shift(lower * lower, working), ceil_shift(upper * upper, working)
    spare = working - precision
    return max(0, floor_shift(lower, spare)), ceil_shift(upper, spare)


FIRST_DIGITS = 63
"""Digits of U that one word gives beside a sign; each further word gives 64 more."""

WORD_DIGITS = 64
WIDEST = 2**20
"""The most thresholds a law may need: a Gaussian of sigma 90,000, a Laplace of scale 14,000."""

_FAINTEST = 1150  # digits after which a probability is zero in floating point
_SPARE = 24
_GUIDE_BITS = 16
_CHUNK = 1 << 16  # samples worked on at once, so that their words stay in cache
_MIXED = -1


@dataclass(frozen=True)
class RatioEnclosures:
    """Enclosures of p(k) / p(k-1) for k = 1, 2, ..., and an upper end for all later ratios."""

    lower: list[int]
    upper: list[int]
    later: int


class SymmetricLaw(ABC):
    """A symmetric law on the whole numbers. Laws that compare equal share their tables."""

    @abstractmethod
    def ratios(self, count: int, precision: int) -> RatioEnclosures:
        """p(k) / p(k-1) for k = 1..count, in units of 2^-precision."""

    @abstractmethod
    def reach(self, digits: int) -> float:
        """About the smallest k with P(|X| > k) < 2^-digits. Only a first guess: the thresholds check it."""

    def pmf(self, x: int) -> float:
        """P(X = x), to the last digit of a float or nearly. For very wide laws, an x far out is refused."""
        if isinstance(x, bool) or not hasattr(x, "__index__"):
            raise BadInput(f"expected x to be a whole number, got {x!r}")
        size = abs(int(x))
        for digits in range(FIRST_DIGITS, _FAINTEST, WORD_DIGITS):
            if size <= _reach(self, digits) and size < len(masses := threshold_level(self, digits).masses):
                return float(masses[size])
        return 0.0

    @property
    def masses(self) -> NDArray[np.float64]:
        """P(X = 0), P(X = 1), ... until what is left out has less than 2^-63 of probability."""
        return threshold_level(self, FIRST_DIGITS).masses

    def sample(self, uniform_below: UniformBelow) -> int:
        """One draw, exactly from this law if `uniform_below` is exactly uniform."""
        word = uniform_below(1 << WORD_DIGITS)
        size = _magnitude(self, word >> 1, lambda: uniform_below(1 << WORD_DIGITS))
        return -size if word & 1 else size

    def sample_array(self, n: int, words: WordSource) -> NDArray[np.int64]:
        """n independent draws, from one word each and, next to never, a few more."""
        count = expect.whole("n", n, at_least=0)
        drawn = np.empty(count, dtype=np.int64)
        for start in range(0, count, _CHUNK):
            part = drawn[start : start + _CHUNK]
            part[:] = self.from_words(words(len(part)), lambda: int(words(1)[0]))
        return drawn

    def from_words(self, word: NDArray[np.uint64], more: Callable[[], int]) -> NDArray[np.int64]:
        """What each word becomes: the deterministic heart of `sample_array`."""
        table = _table(self)
        digits = word >> np.uint64(1)
        sizes: NDArray[np.int64] = table.guide[digits >> np.uint64(FIRST_DIGITS - _GUIDE_BITS)].astype(np.int64)
        (mixed,) = np.nonzero(sizes == _MIXED)
        doubtful = digits[mixed]
        below = np.searchsorted(table.ascending, doubtful, side="left")
        upto = np.searchsorted(table.ascending, doubtful, side="right")
        sizes[mixed] = len(table.ascending) - upto
        for place in np.nonzero(below != upto)[0]:
            sizes[mixed[place]] = _magnitude(self, int(doubtful[place]), more)
        np.negative(sizes, out=sizes, where=(word & np.uint64(1)).astype(np.bool_))
        return sizes


@dataclass(frozen=True, eq=False)
class ThresholdLevel:
    """The first binary digits of S(0), S(1), ..., up to the first that are all zero; and the masses so far."""

    thresholds: list[int]
    masses: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Table:
    """The first level for many words at once. `guide` answers for all words that share their upper digits, or
    says that a threshold lies among them."""

    ascending: NDArray[np.uint64]
    guide: NDArray[np.int32]


def _magnitude(law: SymmetricLaw, number: int, more: Callable[[], int]) -> int:
    """|X| for a U whose first digits spell `number`; draws further digits while they are needed.

    With T(k) the digits of S(k) cut off: number < T(k) proves U < S(k), number > T(k) proves U > S(k), and
    only equality leaves it open.
    """
    digits = FIRST_DIGITS
    while True:
        thresholds = threshold_level(law, digits).thresholds
        size = _count_above(thresholds, number)
        if thresholds[size] != number:
            return size
        number = number << WORD_DIGITS | more()
        digits += WORD_DIGITS


def _count_above(descending: list[int], number: int) -> int:
    """How many thresholds are above the number. The last one is 0, so never all of them."""
    low, high = 0, len(descending) - 1
    while low < high:
        middle = (low + high) // 2
        if descending[middle] > number:
            low = middle + 1
        else:
            high = middle
    return low


@lru_cache(maxsize=16)
def threshold_level(law: SymmetricLaw, digits: int) -> ThresholdLevel:
    """Thresholds of `digits` digits, each proved by its enclosure; precision grows until all of them are."""
    spare = _SPARE + _count(law, digits).bit_length()
    while True:
        # What lies beyond `count` widens every enclosure, so it must be far smaller than the last digit.
        count = _count(law, digits + spare)
        found = _decide_threshold(law, count, digits, digits + 2 * spare + 2 * count.bit_length())
        if found is not None:
            return found
        spare *= 2  # an enclosure straddled a digit: a chance of about 2^-24, or a guess of the reach too short


def _reach(law: SymmetricLaw, digits: int) -> float:
    try:
        return law.reach(digits)
    except OverflowError:  # its parameter is beyond all floats
        return math.inf


def _count(law: SymmetricLaw, digits: int) -> int:
    """How many ratios to ask for, or a refusal before any work."""
    reach = _reach(law, digits)
    if not reach < WIDEST:
        raise BadInput(f"expected a law with at most {WIDEST} likely sizes, got {law} with about {reach:.3g}")
    return max(1, math.ceil(reach))


def _decide_threshold(law: SymmetricLaw, count: int, digits: int, precision: int) -> ThresholdLevel | None:
    ratios = law.ratios(count, precision)
    one = 1 << precision
    if ratios.later >= one:
        return None
    lower, upper = [one], [one]  # p(k) / p(0)
    for ratio_lower, ratio_upper in zip(ratios.lower, ratios.upper, strict=True):
        lower.append(floor_shift(lower[-1] * ratio_lower, precision))
        upper.append(ceil_shift(upper[-1] * ratio_upper, precision))
    # What lies beyond `count` is between nothing and a geometric series.
    above_lower, above_upper = 0, ceil_divide(upper[-1] * ratios.later, one - ratios.later)
    survival: list[tuple[int, int]] = []
    for k in range(count, -1, -1):
        survival.append((2 * above_lower, 2 * above_upper))
        above_lower += lower[k]
        above_upper += upper[k]
    total_lower, total_upper = survival[-1][0] + one, survival[-1][1] + one
    thresholds: list[int] = []
    for tail_lower, tail_upper in reversed(survival):
        threshold = (tail_lower << digits) // total_upper
        if threshold != (tail_upper << digits) // total_lower:
            return None
        thresholds.append(threshold)
        if threshold == 0:
            masses = np.array([mass / total_lower for mass in lower[: len(thresholds)]])
            masses.flags.writeable = False
            return ThresholdLevel(thresholds, masses)
    return None


@lru_cache(maxsize=16)
def _table(law: SymmetricLaw) -> _Table:
    ascending = np.array(threshold_level(law, FIRST_DIGITS).thresholds[::-1], dtype=np.uint64)
    bucket = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(FIRST_DIGITS - _GUIDE_BITS)
    last = bucket + np.uint64(2 ** (FIRST_DIGITS - _GUIDE_BITS) - 1)
    below = np.searchsorted(ascending, bucket, side="left")
    upto = np.searchsorted(ascending, last, side="right")
    guide = np.where(below == upto, len(ascending) - upto, _MIXED).astype(np.int32)
    return _Table(ascending, guide)
