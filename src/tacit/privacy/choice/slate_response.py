"""Randomized response over whole slates: one draw decides the slate, and some slates are favoured.

`OverlapSlates` favours a slate that holds at least `needed` of the privately best candidates. `TopSlates`
favours the slates with the largest sums of scores, which is the optimum where candidates are alike.
"""

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
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.budget import log_rounded_up
from tacit.privacy.choice.choice import as_numbers, check_draws, check_scores, private_ranking
from tacit.privacy.choice.slates import all_slates, expect_slots, favoured_weights, unrank_sets
from tacit.privacy.choice.top_choice import TopPlan, best_exchangeable_plan
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.randomness import WordSource


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
        _expect_overlap_sizes(self.candidates, self.slots, self.top, self.needed)
        expect.whole("low_weight", self.low_weight, at_least=1)
        expect.whole("high_weight", self.high_weight, at_least=self.low_weight)
        if self.spare < 0:
            raise BadInput("expected weights of all slates to sum to at most 2^64, got more")

    @classmethod
    def for_epsilon(
        cls, epsilon: expect.Number, candidates: int, slots: int, *, top: int, needed: int
    ) -> OverlapSlates:
        """The one that favours most while its exact epsilon is at most the one asked for."""
        _expect_overlap_sizes(candidates, slots, top, needed)
        counts = overlap_counts(candidates, slots, top)
        favoured = sum(count for overlap, count in counts.items() if overlap >= needed)
        low, high = favoured_weights(epsilon, comb(candidates, slots), favoured)
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
        """For one request: how many of all 2^64 words name each slate, as `slates.all_slates` lists them."""
        best = private_ranking(check_scores(scores, self.candidates, axes=1))[: self.top]
        held = np.isin(all_slates(self.candidates, self.slots), best).sum(axis=1)
        law = [self.high_weight if overlap >= self.needed else self.low_weight for overlap in held.tolist()]
        law[0] += self.spare
        return tuple(law)

    def pmf(self, scores: ArrayLike) -> Floats:
        return np.array([weight / WHOLE for weight in self.weights(scores)])

    def inclusion(self, scores: ArrayLike) -> Floats:
        """The probability that each candidate is shown, of the shape of `scores`."""
        given = check_scores(scores, self.candidates)
        inside = outside = 0.0
        for overlap, (count, weight) in self.blocks.items():
            chance = count * weight / WHOLE
            inside += chance * overlap / self.top
            outside += chance * (self.slots - overlap) / (self.candidates - self.top)
        shown = np.full(given.shape, outside)
        np.put_along_axis(shown, private_ranking(given)[..., : self.top], inside, axis=-1)
        shown[..., : self.slots] += self.spare / WHOLE
        return shown

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The slate of each request, (n, slots), in public order, from one word each.

        The words are cut into one stretch for each overlap, the same for all scores. Where a word falls in its
        stretch says which of the slates with that overlap it names.
        """
        given = check_scores(scores, self.candidates, axes=2)
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
                unrank_sets(among_best, self.top, overlap),
                unrank_sets(among_others, self.candidates - self.top, others) + self.top,
            ])  # fmt: skip
            chosen[here] = np.take_along_axis(ranking[here], ranks, axis=1)
        return np.sort(chosen, axis=1)


def overlap_counts(candidates: int, slots: int, top: int) -> dict[int, int]:
    """How many slates hold each possible number of `top` given candidates."""
    least, most = max(0, slots + top - candidates), min(slots, top)
    return {held: comb(top, held) * comb(candidates - top, slots - held) for held in range(least, most + 1)}


def best_overlap(means: ArrayLike, slots: int, epsilon: expect.Number) -> tuple[int, int, float]:
    """The best (top, needed) and its expected sum, from the expected ordered scores, the largest first."""
    ordered = as_numbers("means", means)
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


def _expect_overlap_sizes(candidates: int, slots: int, top: int, needed: int) -> None:
    expect_slots(candidates, slots)
    if not 1 <= expect.whole("top", top, at_least=1) < candidates:
        raise BadInput(f"expected top < candidates, got {top} of {candidates}")
    counts = overlap_counts(candidates, slots, top)
    if not min(counts) < expect.whole("needed", needed, at_least=1) <= max(counts):
        raise BadInput(
            f"expected needed between {min(counts) + 1} and {max(counts)}, so that some slates hold as many "
            f"and some do not, got {needed}"
        )


SUMS_AT_ONCE = 2**21


@dataclass(frozen=True)
class TopSlates:
    """Each of the `favoured` slates with the largest sums of scores has high_weight of 2^64 words, any other
    low_weight. Equal sums go to the publicly better slate; words left over name the public best slate.

    Guarantee:  pure epsilon-LDP, epsilon = ln(high_weight / low_weight) exactly, for the reasons in
                `OverlapSlates`.
    Neighbours: any two vectors of private scores of one request.
    Assumes:    candidates, their order and `favoured` are public; words are independent and exactly uniform;
                what is shown where follows the public order.
    Source:     ours (docs/optimal_mechanism.md); for one slot: Ye, Barg 2018 (arXiv 1702.00610).
    """

    candidates: int
    slots: int
    favoured: int
    low_weight: int
    high_weight: int

    def __post_init__(self) -> None:
        _expect_top_sizes(self.candidates, self.slots, self.favoured)
        expect.whole("low_weight", self.low_weight, at_least=1)
        expect.whole("high_weight", self.high_weight, at_least=self.low_weight)
        if self.spare < 0:
            raise BadInput("expected weights of all slates to sum to at most 2^64, got more")

    @classmethod
    def for_epsilon(cls, epsilon: expect.Number, candidates: int, slots: int, *, favoured: int) -> TopSlates:
        """The one that favours most while its exact epsilon is at most the one asked for."""
        _expect_top_sizes(candidates, slots, favoured)
        low, high = favoured_weights(epsilon, comb(candidates, slots), favoured)
        return cls(candidates, slots, favoured, low, high)

    @property
    def epsilon(self) -> float:
        return log_rounded_up(Fraction(self.high_weight, self.low_weight))

    @property
    def _slates(self) -> NDArray[np.int64]:
        return all_slates(self.candidates, self.slots)

    @property
    def spare(self) -> int:
        """Words left over."""
        others = comb(self.candidates, self.slots) - self.favoured
        return WHOLE - self.favoured * self.high_weight - others * self.low_weight

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        """For one request: how many of all 2^64 words name each slate, as `slates.all_slates` lists them."""
        one = check_scores(scores, self.candidates, axes=1)
        law = [self.low_weight] * len(self._slates)
        for slate in _rank_slates(one[None, :], self.slots)[0, : self.favoured].tolist():
            law[slate] = self.high_weight
        law[0] += self.spare
        return tuple(law)

    def pmf(self, scores: ArrayLike) -> Floats:
        return np.array([weight / WHOLE for weight in self.weights(scores)])

    def favourites(self, scores: ArrayLike) -> NDArray[np.int64]:
        """The numbers of the slates that are favoured in each request, (n, favoured), as in `all_slates`."""
        given = check_scores(scores, self.candidates, axes=2)
        blocks = _row_blocks(len(given), len(self._slates))
        best = [_rank_slates(given[rows], self.slots)[:, : self.favoured] for rows in blocks]
        return np.concatenate([np.empty((0, self.favoured), np.int64), *best])

    def inclusion(self, scores: ArrayLike) -> Floats:
        """The probability that each candidate is shown, of the shape of `scores`."""
        given = check_scores(scores, self.candidates)
        flat = given.reshape(-1, self.candidates)
        # Every slate has low_weight: that part is the same for all. The favoured have the difference on top.
        shown = np.full(flat.shape, comb(self.candidates - 1, self.slots - 1) * self.low_weight / WHOLE)
        shown[:, : self.slots] += self.spare / WHOLE
        more = (self.high_weight - self.low_weight) / WHOLE
        for rows in _row_blocks(len(flat), len(self._slates)):
            best = _rank_slates(flat[rows], self.slots)[:, : self.favoured]
            members = self._slates[best].reshape(len(best), -1)  # (n, favoured · slots)
            at = np.arange(len(best))[:, None] * self.candidates + members
            held = np.bincount(at.ravel(), minlength=len(best) * self.candidates)
            shown[rows] += more * held.reshape(len(best), self.candidates)
        return shown.reshape(given.shape)

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The slate of each request, (n, slots), in public order, from one word each."""
        given = check_scores(scores, self.candidates, axes=2)
        word = words(len(given))
        favoured_end = self.favoured * self.high_weight
        best = word // np.uint64(self.high_weight)
        # Beyond the favoured; where the word is below, this wraps around, and is not used.
        other = (word - np.uint64(favoured_end)) // np.uint64(self.low_weight) + np.uint64(self.favoured)
        rank = np.where(word < np.uint64(favoured_end), best, other)
        spare = word > np.uint64(WHOLE - self.spare - 1)
        rank = np.where(spare, np.uint64(0), rank).astype(np.int64)
        chosen = np.empty(len(given), np.int64)
        for rows in _row_blocks(len(given), len(self._slates)):
            ranked = _rank_slates(given[rows], self.slots)
            chosen[rows] = np.take_along_axis(ranked, rank[rows, None], axis=1)[:, 0]
        return self._slates[np.where(spare, 0, chosen)]


def slate_sums(scores: Floats, slots: int) -> Floats:
    """The sum of scores of every slate, (n, slates), always added in the same order."""
    listed = all_slates(scores.shape[1], slots)
    sums = scores[:, listed[:, 0]]
    for slot in range(1, slots):
        sums = sums + scores[:, listed[:, slot]]
    return sums


def best_top_slates(draws: ArrayLike, slots: int, epsilon: expect.Number) -> TopPlan:
    """How many slates to favour, and the expected sum: the optimum over all epsilon-LDP slates where the
    candidates are alike. The plan speaks of slates: `top` of its `candidates` are favoured.
    """
    scores = check_draws(draws)
    expect_slots(scores.shape[1], slots)
    total = np.zeros(len(all_slates(scores.shape[1], slots)))
    for rows in _row_blocks(len(scores), len(total)):
        total += np.sort(slate_sums(scores[rows], slots), axis=1)[:, ::-1].sum(axis=0)
    return best_exchangeable_plan(total / len(scores), epsilon)


def _rank_slates(scores: Floats, slots: int) -> NDArray[np.int64]:
    """Slates from the largest sum of scores down, (n, slates)."""
    # Rows whose sums might overflow are made smaller by a power of two, which keeps their order.
    huge = np.abs(scores).max(axis=1, keepdims=True) > np.finfo(np.float64).max / slots
    sums = slate_sums(np.where(huge, np.ldexp(scores, -slots.bit_length()), scores), slots)
    return np.argsort(-sums, axis=1, kind="stable").astype(np.int64, copy=False)


def _row_blocks(rows: int, width: int) -> list[slice]:
    step = max(1, SUMS_AT_ONCE // width)
    return [slice(start, start + step) for start in range(0, rows, step)]


def _expect_top_sizes(candidates: int, slots: int, favoured: int) -> None:
    expect_slots(candidates, slots)
    count = len(all_slates(candidates, slots))
    if not expect.whole("favoured", favoured, at_least=1) < count:
        raise BadInput(f"expected fewer favoured slates than there are, {count:,}, got {favoured}")
