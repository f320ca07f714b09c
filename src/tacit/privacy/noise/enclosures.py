"""Real numbers between two whole ones: fixed point with a lower and an upper end, rounded outwards.

An enclosure (lower, upper) at `precision` says lower <= x 2^precision <= upper, proved by integer arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

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
