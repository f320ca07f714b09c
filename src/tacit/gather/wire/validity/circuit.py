"""What is proved: digits that spell nothing but counts within their bounds, and what they cost.

A count is spelled by digits in 0..most with weights whose sums are exactly 0..each; for `most` = 1 by bits.
Further digits spell what the sum of counts leaves of the bound `total`. So if every digit is in range, every
count is; and if counts and rest add up to `total`, the sum is at most that: bounds so large that it could wrap
are refused.

The largest digit is a matter of size. With 1, a count of 0..4 takes three elements; with 4 it takes one, and
the proof's quotient grows instead, which all counts share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.wire.validity.bounds import MOST, Bounds
from tacit.kernels.field import PRIME, Shape, Words, weighted_sums

LARGEST_DIGIT = 16
"""Beyond it a device's work grows faster than anything shrinks."""

MOST_CELLS = 2**24


@dataclass(frozen=True)
class Circuit:
    """Digits, their weights, and how they are dealt to the wires of a proof: the smallest upload that does."""

    bounds: Bounds
    cells: int
    proofs: int

    def __post_init__(self) -> None:
        if not 1 <= expect.whole("cells", self.cells, at_least=1) <= MOST_CELLS:
            raise BadInput(f"expected cells <= 2^24, got {self.cells}")
        expect.whole("proofs", self.proofs, at_least=1)
        if self.cells * self.bounds.each >= MOST:
            raise BadInput(f"expected cells x each below 2^62, got {self.cells} x {self.bounds.each}")
        # A rest may be spelled above `total`: with the counts it must stay below the prime, or a sum too large
        # could come around to the right one.
        if self.cells * self.bounds.each + self.shape.most * sum(self.rest_weights) >= PRIME:
            raise BadInput(f"expected a smaller total, got {self.bounds.total}: sums could wrap in the field")

    @property
    def shape(self) -> Shape:
        return _smallest(self.bounds, self.cells, self.proofs)

    @property
    def width(self) -> int:
        """Field elements of a report with its proofs."""
        return self.shape.width(self.proofs)

    @cached_property
    def count_weights(self) -> tuple[int, ...]:
        return _weights(self.bounds.each, self.shape.most)

    @cached_property
    def rest_weights(self) -> tuple[int, ...]:
        return _powers(self.bounds.total, self.shape.most)

    def digits(self, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Words:
        """(digits,) that spell these counts, count by count, and then the rest; counts are within bounds."""
        rest, most = np.array([self.bounds.total - int(counts.sum())]), self.shape.most
        spelled = (_spelled(counts, self.count_weights, most), _spelled(rest, self.rest_weights, most))
        return np.concatenate([each.reshape(-1) for each in spelled]).astype(np.uint64)

    def counts(self, table: Words) -> Words:
        """(rows, cells) from rows that begin with digits, or with shares of them."""
        if self.count_weights == (1,):
            return np.ascontiguousarray(table[:, : self.cells])
        return weighted_sums(table, np.array(self.count_weights, np.uint64), self.cells)

    def sums(self, table: Words) -> Words:
        """(rows,): counts and rest together, of the rows or of shares; `total` for an honest report."""
        weights = self.count_weights * self.cells + self.rest_weights
        return weighted_sums(table, np.array(weights, np.uint64), 1)[:, 0]

    def soundness_error(self, hash_queries: int) -> Fraction:
        """At most the chance that one report out of bounds passes, by a device that tries so many hashes.

        A challenge hides digits out of range if it is a root of a polynomial of degree wires - 1: a chance a.
        If it does not, no quotient fits, and the two sides agree at a random point with a chance b, of a
        polynomial's degree in all points outside of the domain. A device may look for challenges that suit it
        (they are hashes of what it sends) but never sees a point. It takes a report for which i of k proofs are
        blind, found with a chance of at most hash_queries C(k, i) a^i, and must be lucky in the others.
        """
        shape, k = self.shape, self.proofs
        blind = Fraction(shape.wires - 1, PRIME)
        lucky = Fraction((shape.most + 1) * (shape.size - 1), PRIME - shape.size)
        tries = expect.whole("hash_queries", hash_queries, at_least=1)
        found = (min(Fraction(1), tries * math.comb(k, i) * blind**i) for i in range(k + 1))
        return min(Fraction(1), sum((each * lucky ** (k - i) for i, each in enumerate(found)), Fraction()))


@lru_cache(maxsize=256)
def _smallest(bounds: Bounds, cells: int, proofs: int) -> Shape:
    """Of all largest digits and domains, those with the fewest elements to upload; of equals the first."""
    found = []
    for most in range(1, LARGEST_DIGIT + 1):
        if bounds.each % most:
            continue  # such digits spell no range that ends at `each`
        digits = cells * len(_weights(bounds.each, most)) + len(_powers(bounds.total, most))
        size = 2
        while size == 2 or most * size <= 4 * digits:
            found.append(Shape(digits, most, -(-digits // (size - 1)), size))
            size *= 2
    return min(found, key=lambda shape: shape.width(proofs))


@lru_cache(maxsize=256)
def _weights(largest: int, most: int) -> tuple[int, ...]:
    """Weights, as few as can be, by which digits in 0..most spell exactly 0..largest; `most` divides it."""
    weights: list[int] = []
    while (left := largest // most - sum(weights)) > 0:
        weights.append(min(most * sum(weights) + 1, left))  # no gap: all numbers up to here have been spelled
    return tuple(weights)


@lru_cache(maxsize=256)
def _powers(largest: int, most: int) -> tuple[int, ...]:
    """Weights that spell at least 0..largest: no count is below 0, so no rest exceeds the total anyway."""
    weights = [1]
    while most * sum(weights) < largest:
        weights.append(weights[-1] * (most + 1))
    return tuple(weights)


def _spelled(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]], weights: tuple[int, ...], most: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """(numbers, digits): of each weight from the last on as little as what the others cannot reach."""
    left, digits = numbers.copy(), np.zeros((len(numbers), len(weights)), np.int64)
    for place in reversed(range(1, len(weights))):
        reach, weight = most * sum(weights[:place]), weights[place]
        digits[:, place] = -(-np.maximum(left - reach, 0) // weight)
        left -= digits[:, place] * weight
    digits[:, 0] = left  # the first weight is 1
    return digits
