"""Overlap randomized response: a slate is favoured if it holds at least so many of the privately best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import log_rounded_up
from tacit.privacy.choice.choice import Floats, checked
from tacit.privacy.choice.ranking import private_ranking
from tacit.privacy.choice.slates.subsets import expect_slots, numbered, slates, two_weights
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.randomness import Words


@dataclass(frozen=True)
class OverlapSlates:
    """A slate that holds at least `needed` of the private best `top` has high_weight of 2^64 words, another
    low_weight. Words that are left over name the public best slate, whatever the scores.

    Guarantee:  pure epsilon-LDP, epsilon = ln(high_weight / low_weight) exactly. As many slates are favoured
                whatever the scores, so all inputs share one normaliser; the words left over add the same to a
                slate under every input, which only brings its weights closer.
    Neighbours: any two vectors of private scores of one request.
    Assumes:    candidates, their order, `top` and `needed` are public; words are independent and exactly
                uniform; what is shown where follows the public order.
    Source:     ours (docs/optimal_mechanism.md); for one slot: Ye, Barg 2018 (arXiv 1702.00610).
    """

    candidates: int
    slots: int
    top: int
    needed: int
    low_weight: int
    high_weight: int

    def __post_init__(self) -> None:
        _expect_sizes(self.candidates, self.slots, self.top, self.needed)
        expect.whole("low_weight", self.low_weight, at_least=1)
        expect.whole("high_weight", self.high_weight, at_least=self.low_weight)
        if self.spare < 0:
            raise BadInput("expected weights of all slates to sum to at most 2^64, got more")

    @classmethod
    def for_epsilon(
        cls, epsilon: expect.Number, candidates: int, slots: int, *, top: int, needed: int
    ) -> OverlapSlates:
        """The one that favours most while its exact epsilon is at most the one asked for."""
        _expect_sizes(candidates, slots, top, needed)
        counts = overlap_counts(candidates, slots, top)
        favoured = sum(count for overlap, count in counts.items() if overlap >= needed)
        low, high = two_weights(epsilon, comb(candidates, slots), favoured)
        return cls(candidates, slots, top, needed, low, high)

    @property
    def epsilon(self) -> float:
        return log_rounded_up(Fraction(self.high_weight, self.low_weight))

    @cached_property
    def blocks(self) -> dict[int, tuple[int, int]]:
        """For each possible overlap: how many slates have it, and the weight of each. Public."""
        return {
            overlap: (count, self.high_weight if overlap >= self.needed else self.low_weight)
            for overlap, count in overlap_counts(self.candidates, self.slots, self.top).items()
        }

    @cached_property
    def spare(self) -> int:
        """Words left over."""
        return WHOLE - sum(count * weight for count, weight in self.blocks.values())

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        """For one request: how many of all 2^64 words name each slate, as `subsets.slates` lists them."""
        best = private_ranking(checked(scores, self.candidates, axes=1))[: self.top]
        held = np.isin(slates(self.candidates, self.slots), best).sum(axis=1)
        law = [self.high_weight if overlap >= self.needed else self.low_weight for overlap in held.tolist()]
        law[0] += self.spare
        return tuple(law)

    def pmf(self, scores: ArrayLike) -> Floats:
        return np.array([weight / WHOLE for weight in self.weights(scores)])

    def inclusion(self, scores: ArrayLike) -> Floats:
        """The probability that each candidate is shown, of the shape of `scores`."""
        given = checked(scores, self.candidates)
        inside = outside = 0.0
        for overlap, (count, weight) in self.blocks.items():
            chance = count * weight / WHOLE
            inside += chance * overlap / self.top
            outside += chance * (self.slots - overlap) / (self.candidates - self.top)
        shown = np.full(given.shape, outside)
        np.put_along_axis(shown, private_ranking(given)[..., : self.top], inside, axis=-1)
        shown[..., : self.slots] += self.spare / WHOLE
        return shown

    def choose(self, scores: ArrayLike, words: Words) -> NDArray[np.int64]:
        """The slate of each request, (n, slots), in public order, from one word each.

        The words are cut into one stretch for each overlap, the same for all scores. Where a word falls in its
        stretch says which of the slates with that overlap it names.
        """
        given = checked(scores, self.candidates, axes=2)
        word, ranking = words(len(given)), private_ranking(given)
        chosen = np.tile(np.arange(self.slots), (len(given), 1))  # what the words left over name
        ends = list(accumulate(count * weight for count, weight in self.blocks.values()))
        for (overlap, (count, weight)), end in zip(self.blocks.items(), ends, strict=True):
            start = end - count * weight
            here = np.flatnonzero((word >= np.uint64(start)) & (word <= np.uint64(end - 1)))
            number = (word[here] - np.uint64(start)) // np.uint64(weight)
            others = self.slots - overlap
            among_best, among_others = np.divmod(number, np.uint64(comb(self.candidates - self.top, others)))
            ranks = np.hstack([
                numbered(among_best, self.top, overlap),
                numbered(among_others, self.candidates - self.top, others) + self.top,
            ])  # fmt: skip
            chosen[here] = np.take_along_axis(ranking[here], ranks, axis=1)
        return np.sort(chosen, axis=1)


def overlap_counts(candidates: int, slots: int, top: int) -> dict[int, int]:
    """How many slates hold each possible number of `top` given candidates."""
    least, most = max(0, slots + top - candidates), min(slots, top)
    return {held: comb(top, held) * comb(candidates - top, slots - held) for held in range(least, most + 1)}


def best_overlap(means: ArrayLike, slots: int, epsilon: expect.Number) -> tuple[int, int, float]:
    """The best (top, needed) and its expected sum, from the expected ordered scores, the largest first."""
    ordered = np.asarray(means, dtype=np.float64)
    if ordered.ndim != 1 or not np.isfinite(ordered).all():
        raise BadInput(f"expected a vector of finite means, got shape {ordered.shape}")
    candidates = len(ordered)
    expect_slots(candidates, slots)
    inverse_odds = math.exp(-min(float(expect.positive("epsilon", epsilon)), 700.0))
    best = (0, 0, -math.inf)
    for top in range(1, candidates):
        inside, outside = float(ordered[:top].mean()), float(ordered[top:].mean())
        counts = overlap_counts(candidates, slots, top)
        for needed in range(min(counts) + 1, max(counts) + 1):
            weight = {held: count * (1.0 if held >= needed else inverse_odds) for held, count in counts.items()}
            total = sum(w * (held * inside + (slots - held) * outside) for held, w in weight.items())
            if total / sum(weight.values()) > best[2]:
                best = top, needed, total / sum(weight.values())
    return best


def _expect_sizes(candidates: int, slots: int, top: int, needed: int) -> None:
    expect_slots(candidates, slots)
    if not 1 <= expect.whole("top", top, at_least=1) < candidates:
        raise BadInput(f"expected top < candidates, got {top} of {candidates}")
    counts = overlap_counts(candidates, slots, top)
    if not min(counts) < expect.whole("needed", needed, at_least=1) <= max(counts):
        raise BadInput(
            f"expected needed between {min(counts) + 1} and {max(counts)}, so that some slates hold as many "
            f"and some do not, got {needed}"
        )
