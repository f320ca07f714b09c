"""Slates as sets: all of them in public order, their number, and the set behind a number."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.mechanisms.randomized_response import WHOLE

Integers = NDArray[np.int64]

MOST_LISTED = 100_000
LEAST_WEIGHT = 1000
"""With fewer words a slate, rounding would waste more than a thousandth of them."""


def expect_slots(candidates: int, slots: int) -> None:
    expect.whole("candidates", candidates, at_least=2)
    if expect.whole("slots", slots, at_least=1) >= candidates:
        raise BadInput(f"expected fewer slots than candidates, got {slots} of {candidates}")


def two_weights(epsilon: expect.Number, count: int, favoured: int) -> tuple[int, int]:
    """Of 2^64 words, how many for each slate and each favoured one: a ratio of at most e^epsilon, exactly."""
    odds = exp_rounded_down(expect.positive("epsilon", epsilon))
    low = math.floor(WHOLE / (count - favoured + odds * favoured))
    if low < LEAST_WEIGHT:
        raise BadInput(
            f"expected slates that 2^64 words can tell apart at epsilon {epsilon}, got {count:,} of them"
        )
    return low, math.floor(low * odds)


@lru_cache(maxsize=16)
def slates(candidates: int, slots: int) -> Integers:
    """All slates, (slates, slots), from the public best on; refused where there are too many to list."""
    expect_slots(candidates, slots)
    count = comb(candidates, slots)
    if count > MOST_LISTED:
        raise BadInput(f"expected at most {MOST_LISTED:,} slates to list, got {count:,}")
    listed = np.array(list(combinations(range(candidates), slots)), np.int64)
    listed.setflags(write=False)
    return listed


def numbered(number: NDArray[np.uint64], places: int, size: int) -> Integers:
    """The sets of `size` out of `places` with these numbers, (n, size), each ascending.

    Numbers count sets by their largest place (the combinatorial number system): set {p_1 < p_2 < ...} is number
    C(p_1, 1) + C(p_2, 2) + ..., so that each number below C(places, size) is one set.
    """
    left = number.astype(np.uint64)
    sets = np.empty((len(left), size), np.int64)
    for members in range(size, 0, -1):
        below = np.array([comb(place, members) for place in range(places)], np.uint64)  # ascending
        largest = np.searchsorted(below, left, side="right") - 1
        sets[:, members - 1] = largest
        left = left - below[largest]
    return sets
