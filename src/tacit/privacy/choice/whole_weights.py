"""From probabilities in doubles to whole numbers out of 2^64 that keep a promise exactly.

Every candidate gets a public floor and a public cap, whole numbers whose ratio is at most e^epsilon. Weights
are forced between them after all floating-point work, for every input, so nothing that doubles do can break the
promise. A floor is at least one word: no candidate that was possible becomes impossible.

How far the whole numbers are from the real law, where signals are within 100 of each other: doubles are off by
a relative 2^-45 at most, and forcing them into their bounds moves them by no more; whole words and floors move
a probability by less than 2^-64; what then lacks to 2^64, or is too much, goes to the candidate that has the
most room for it. So no probability moves by more than 2^-44 + a 2^-63. Privacy rests on none of this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput, SelfCheckFailed
from tacit.privacy.budget import exp_rounded_down, log_rounded_up
from tacit.privacy.choice.choice import Floats
from tacit.privacy.mechanisms.randomized_response import WHOLE

LARGEST_CORRECTION = 1e-7
"""Of all words, this share may be moved to mend rounding; more means that the law is another."""

WIDER = Fraction(1, 2**46)
"""Extremes in doubles may be off by so much of themselves: floors and caps leave room for it."""


@dataclass(frozen=True)
class Bounds:
    """Between `floors` and `caps`, one of each a candidate, lie the weights of every input.

    Guarantee:  weights in these bounds are epsilon-DP, epsilon = max ln(cap / floor), in whole numbers.
    Neighbours: any two vectors of private scores of one request.
    Assumes:    floors and caps come from public data; words are independent and exactly uniform.
    Source:     the definition of pure LDP; floors and caps as in `Floors`.
    """

    floors: tuple[int, ...]
    caps: tuple[int, ...]

    def __post_init__(self) -> None:
        ordered = all(1 <= low <= high for low, high in zip(self.floors, self.caps, strict=True))
        if not ordered or not sum(self.floors) <= WHOLE <= sum(self.caps):
            raise BadInput("expected a larger epsilon, got one that whole numbers out of 2^64 cannot keep")

    @classmethod
    def around(cls, log_least: Floats, log_most: Floats, epsilon: Fraction | None) -> Bounds:
        """The tightest around these extremes; with an epsilon, no ratio passes e^epsilon."""
        spare = WHOLE - len(log_least) + 1  # every other candidate keeps a word at least
        odds = None if epsilon is None else exp_rounded_down(epsilon)
        floors, caps = [], []
        for least, most in zip(np.exp(log_least).tolist(), np.exp(log_most).tolist(), strict=True):
            floor = min(max(1, math.ceil(Fraction(least) * (1 - WIDER) * WHOLE)), spare)
            cap = min(max(floor, math.ceil(Fraction(most) * (1 + WIDER) * WHOLE)), spare)
            floors.append(floor)
            caps.append(cap if odds is None else min(cap, math.floor(odds * floor)))
        return cls(tuple(floors), tuple(caps))

    @cached_property
    def epsilon(self) -> float:
        return log_rounded_up(max(Fraction(cap, low) for low, cap in zip(self.floors, self.caps, strict=True)))

    def weights(self, pmf: Floats) -> NDArray[np.uint64]:
        """Whole numbers in the bounds that sum to 2^64, next to the law; pmf (n, a), a >= 2."""
        floors, caps = np.array(self.floors, np.uint64), np.array(self.caps, np.uint64)
        words = np.ldexp(np.minimum(pmf, 1 - 2.0**-53), 64).astype(np.uint64)
        weights: NDArray[np.uint64] = np.clip(words, floors, caps)
        roughly = np.ldexp(weights.astype(np.float64).sum(axis=1), -64)
        if not np.all(np.abs(roughly - 1) <= LARGEST_CORRECTION):
            raise SelfCheckFailed("expected probabilities that sum to one within their bounds, got others")
        # Sums wrap around at 2^64, which is where they should end: what is seen is the excess, of either sign.
        excess = weights.sum(axis=1, dtype=np.uint64).view(np.int64)
        for _ in self.floors:  # each turn uses up one candidate's room, or ends it; one turn is the rule
            rows = np.flatnonzero(excess)
            if not rows.size:
                break
            self._mend(weights, excess, rows, floors, caps)
        if np.any(excess):
            raise SelfCheckFailed("expected room between floors and caps, got none")
        return weights

    @staticmethod
    def _mend(
        weights: NDArray[np.uint64],
        excess: NDArray[np.int64],
        rows: NDArray[np.intp],
        floors: NDArray[np.uint64],
        caps: NDArray[np.uint64],
    ) -> None:
        """Move these rows' excess off, or onto, the candidate with the most room for it."""
        some = weights[rows]
        over = excess[rows] > 0
        room = np.where(over[:, None], some - floors, caps - some)  # (rows, a)
        place = room.argmax(axis=1)
        step = np.minimum(room[np.arange(len(rows)), place], np.abs(excess[rows]).astype(np.uint64))
        weights[rows, place] = np.where(over, weights[rows, place] - step, weights[rows, place] + step)
        excess[rows] -= np.where(over, step.astype(np.int64), -step.astype(np.int64))
