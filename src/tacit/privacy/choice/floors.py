"""The best choice that given floors allow: start at the floors, pour the rest down the private ranking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down, log_rounded_up, rounded_up
from tacit.privacy.choice.choice import as_numbers, check_scores, choose_by_weights, private_ranking
from tacit.privacy.randomness import WordSource

WORD_BITS = 64
FEASIBLE = 1e-6
"""Floors from a solver may miss their constraints by this much and are mended; beyond it they are refused."""


@dataclass(frozen=True)
class Floors:
    """Choose candidate i with at least numerators[i] and at most caps[i] of 2^bits words, whatever the scores.

    What the floors leave over is poured down the private ranking, each candidate filled up to its cap before
    the next. Of all laws between these floors and caps this one has the largest expected score, for every
    vector of scores. A candidate without a floor is never chosen.

    Guarantee:  pure epsilon-LDP, epsilon the largest ln(most / least) over candidates and all scores, computed
                from the whole numbers that are sampled.
    Neighbours: any two vectors of private scores of one request.
    Assumes:    numerators and caps come from public data; words are independent and exactly uniform.
    Source:     ours (docs/optimal_mechanism.md); the floors are the blanket of Balle et al. 2019, 1903.02837.
    """

    numerators: tuple[int, ...]
    caps: tuple[int, ...]
    bits: int = WORD_BITS

    def __post_init__(self) -> None:
        expect.several("numerators", self.numerators)
        expect.several("caps", self.caps)
        if self.bits not in (32, 64):
            raise BadInput(f"expected bits to be 32 or 64, got {self.bits!r}")
        if not self.numerators or len(self.numerators) != len(self.caps):
            raise BadInput(f"expected one cap a floor, got {len(self.numerators)} and {len(self.caps)}")
        for place, (low, high) in enumerate(zip(self.numerators, self.caps, strict=True)):
            expect.whole(f"numerators[{place}]", low, at_least=0)
            if expect.whole(f"caps[{place}]", high, at_least=low) > 0 == low:
                raise BadInput(f"expected caps[{place}] = 0 above a floor of 0, got {high}")
        if not sum(self.numerators) <= self.whole <= sum(self.caps):
            raise BadInput(
                f"expected floors that sum to at most 2^{self.bits} and caps that reach it, got "
                f"{sum(self.numerators) / self.whole:.6g} and {sum(self.caps) / self.whole:.6g} of it"
            )

    @classmethod
    def for_epsilon(cls, epsilon: expect.Number, numerators: Sequence[int], bits: int = WORD_BITS) -> Floors:
        """The widest caps over these floors whose exact epsilon is at most the one asked for.

        >>> half = 2**63
        >>> Floors.for_epsilon(1, [half // 2, half // 2]).weights([0.3, 0.7])[1] / 2**64
        0.6795704571147613
        """
        numerators = expect.several("numerators", numerators)
        odds = exp_rounded_down(expect.positive("epsilon", epsilon))
        whole = [expect.whole(f"numerators[{i}]", n, at_least=0) for i, n in enumerate(numerators)]
        return cls(tuple(whole), tuple(_cap(n, odds) for n in whole), bits)

    @classmethod
    def nearest(cls, epsilon: expect.Number, shares: ArrayLike, bits: int = WORD_BITS) -> Floors:
        """Floors given as probabilities, rounded to whole numbers; `rounding_loss` says what that can cost."""
        odds, wanted = exp_rounded_down(expect.positive("epsilon", epsilon)), _fractions(shares)
        total = sum(wanted)
        if not (1 - FEASIBLE) / odds <= total <= 1 + Fraction(FEASIBLE):
            raise BadInput(
                f"expected floors that sum to between e^-epsilon and 1, got {float(total):.6g} at {epsilon=}"
            )
        whole = 2**bits
        rounded = [math.ceil(share * whole) for share in wanted]  # up: a cap lost would cost more than a floor
        largest = max(range(len(rounded)), key=rounded.__getitem__)
        rounded[largest] -= max(0, sum(rounded) - whole)
        short = whole - sum(_cap(n, odds) for n in rounded)
        # Caps are at least floors, so this many more never lift the floors' sum above the whole.
        rounded[largest] += max(0, -(-short // odds))
        return cls.for_epsilon(epsilon, rounded, bits)

    def rounding_loss(self, epsilon: expect.Number, shares: ArrayLike) -> float:
        """What using these floors in place of `shares` loses at most, in multiples of max - min of the scores.

        By duality that is the sum, over candidates, of how far its floor rose or its cap fell, whichever is
        more; a cap above one is as good as one. From `nearest` it is at most candidates / 2^bits, unless floors
        that already sum to one had to give way.
        """
        odds, one = exp_rounded_down(expect.positive("epsilon", epsilon)), Fraction(1)
        moved = (
            max(
                Fraction(0),
                Fraction(low, self.whole) - share,
                min(one, share * odds) - Fraction(high, self.whole),
            )
            for share, low, high in zip(_fractions(shares), self.numerators, self.caps, strict=True)
        )
        return rounded_up(sum(moved, Fraction(0)))

    @property
    def candidates(self) -> int:
        return len(self.numerators)

    @property
    def whole(self) -> int:
        return 1 << self.bits

    @cached_property
    def rest(self) -> int:
        """What is left to pour."""
        return self.whole - sum(self.numerators)

    @cached_property
    def epsilon(self) -> float:
        """The exact worst case: each candidate ranked first against ranked last."""
        rooms = [high - low for low, high in zip(self.numerators, self.caps, strict=True)]
        ratios = [
            Fraction(low + min(room, self.rest), low + max(0, self.rest - (sum(rooms) - room)))
            for low, room in zip(self.numerators, rooms, strict=True)
            if low
        ]
        return log_rounded_up(max(ratios))

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        """For one request: how many of all 2^64 words choose each candidate."""
        one = check_scores(scores, self.candidates, axes=1)
        law, left = list(self.numerators), self.rest
        for place in private_ranking(one).tolist():
            poured = min(left, self.caps[place] - law[place])
            law[place] += poured
            left -= poured
        return tuple(share << (WORD_BITS - self.bits) for share in law)

    def pmf(self, scores: ArrayLike) -> Floats:
        """The law as doubles, (..., candidates)."""
        given = check_scores(scores, self.candidates)
        flat = given.reshape(-1, self.candidates)
        law = np.zeros(flat.shape)
        if len(self._support) == 1:
            law[:, self._support[0]] = 1.0
        else:
            ranking, weights = self._pour_weights(flat)
            np.put_along_axis(law, ranking, weights / float(self.whole), axis=1)
        return law.reshape(given.shape)

    def choose(self, scores: ArrayLike, words: WordSource) -> Integers:
        """The candidate chosen for each request, from one word each; from none if only one has a floor."""
        given = check_scores(scores, self.candidates, axes=2)
        if len(self._support) == 1:
            return np.full(len(given), self._support[0], np.int64)
        ranking, weights = self._pour_weights(given)
        # Shifted words are below 2^bits, where the last block ends; `choose_by_weights` never looks there.
        place = choose_by_weights(weights, words(len(given)) >> np.uint64(WORD_BITS - self.bits))
        return ranking[np.arange(len(given)), place]

    @cached_property
    def _support(self) -> Integers:
        return np.flatnonzero([n > 0 for n in self.numerators]).astype(np.int64)

    def _pour_weights(self, scores: Floats) -> tuple[Integers, NDArray[np.uint64]]:
        """Candidates with a floor in private order, and their weights, both (n, support).

        With two candidates or more every weight is below 2^64, so it fits its type.
        """
        low = np.array([self.numerators[i] for i in self._support], np.uint64)
        room = np.array([min(self.caps[i] - self.numerators[i], self.rest) for i in self._support], np.uint64)
        order = private_ranking(scores[:, self._support])
        weights, rooms = low[order], room[order]
        left = np.full(len(scores), self.rest, np.uint64)
        for rank in range(order.shape[1]):
            poured = np.minimum(left, rooms[:, rank])
            weights[:, rank] += poured
            left -= poured
        return self._support[order], weights


def _cap(floor: int, odds: Fraction) -> int:
    return floor * odds.numerator // odds.denominator


def _fractions(shares: ArrayLike) -> list[Fraction]:
    array = as_numbers("shares", shares)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or (array < 0).any():
        raise BadInput(f"expected a vector of floors >= 0, got shape {array.shape} or a value outside")
    return [Fraction(share) for share in array.tolist()]
