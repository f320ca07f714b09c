"""Randomized response over whole slates: the best `kept` of them are favoured."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import log_rounded_up
from tacit.privacy.choice.choice import Floats, checked
from tacit.privacy.choice.prior import checked_draws
from tacit.privacy.choice.slates.subsets import expect_slots, slates, two_weights
from tacit.privacy.choice.top_plan import TopPlan, best_exchangeable_plan
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.randomness import Words

SUMS_AT_ONCE = 2**21


@dataclass(frozen=True)
class TopSlates:
    """Each of the `favoured` slates with the largest sums of scores has high_weight of 2^64 words, any other
    low_weight. Equal sums go to the publicly better slate; words left over name the public best slate.

    Guarantee:  pure epsilon-LDP, epsilon = ln(high_weight / low_weight) exactly, for the reasons in `overlap`.
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
        _expect_sizes(self.candidates, self.slots, self.favoured)
        expect.whole("low_weight", self.low_weight, at_least=1)
        expect.whole("high_weight", self.high_weight, at_least=self.low_weight)
        if self.spare < 0:
            raise BadInput("expected weights of all slates to sum to at most 2^64, got more")

    @classmethod
    def for_epsilon(cls, epsilon: expect.Number, candidates: int, slots: int, *, favoured: int) -> TopSlates:
        """The one that favours most while its exact epsilon is at most the one asked for."""
        _expect_sizes(candidates, slots, favoured)
        low, high = two_weights(epsilon, comb(candidates, slots), favoured)
        return cls(candidates, slots, favoured, low, high)

    @property
    def epsilon(self) -> float:
        return log_rounded_up(Fraction(self.high_weight, self.low_weight))

    @property
    def _slates(self) -> NDArray[np.int64]:
        return slates(self.candidates, self.slots)

    @property
    def spare(self) -> int:
        """Words left over."""
        others = comb(self.candidates, self.slots) - self.favoured
        return WHOLE - self.favoured * self.high_weight - others * self.low_weight

    def weights(self, scores: ArrayLike) -> tuple[int, ...]:
        """For one request: how many of all 2^64 words name each slate, as `subsets.slates` lists them."""
        one = checked(scores, self.candidates, axes=1)
        law = [self.low_weight] * len(self._slates)
        for slate in _ranked(one[None, :], self.slots)[0, : self.favoured].tolist():
            law[slate] = self.high_weight
        law[0] += self.spare
        return tuple(law)

    def pmf(self, scores: ArrayLike) -> Floats:
        return np.array([weight / WHOLE for weight in self.weights(scores)])

    def inclusion(self, scores: ArrayLike) -> Floats:
        """The probability that each candidate is shown, of the shape of `scores`."""
        given = checked(scores, self.candidates)
        flat = given.reshape(-1, self.candidates)
        # Every slate has low_weight: that part is the same for all. The favoured have the difference on top.
        shown = np.full(flat.shape, comb(self.candidates - 1, self.slots - 1) * self.low_weight / WHOLE)
        shown[:, : self.slots] += self.spare / WHOLE
        more = (self.high_weight - self.low_weight) / WHOLE
        for rows in _some(len(flat), len(self._slates)):
            best = _ranked(flat[rows], self.slots)[:, : self.favoured]
            members = self._slates[best].reshape(len(best), -1)  # (n, favoured · slots)
            at = np.arange(len(best))[:, None] * self.candidates + members
            held = np.bincount(at.ravel(), minlength=len(best) * self.candidates)
            shown[rows] += more * held.reshape(len(best), self.candidates)
        return shown.reshape(given.shape)

    def choose(self, scores: ArrayLike, words: Words) -> NDArray[np.int64]:
        """The slate of each request, (n, slots), in public order, from one word each."""
        given = checked(scores, self.candidates, axes=2)
        word = words(len(given))
        favoured_end = self.favoured * self.high_weight
        best = word // np.uint64(self.high_weight)
        # Beyond the favoured; where the word is below, this wraps around, and is not used.
        other = (word - np.uint64(favoured_end)) // np.uint64(self.low_weight) + np.uint64(self.favoured)
        rank = np.where(word < np.uint64(favoured_end), best, other)
        spare = word > np.uint64(WHOLE - self.spare - 1)
        rank = np.where(spare, np.uint64(0), rank).astype(np.int64)
        chosen = np.empty(len(given), np.int64)
        for rows in _some(len(given), len(self._slates)):
            ranked = _ranked(given[rows], self.slots)
            chosen[rows] = np.take_along_axis(ranked, rank[rows, None], axis=1)[:, 0]
        return self._slates[np.where(spare, 0, chosen)]


def slate_sums(scores: Floats, slots: int) -> Floats:
    """The sum of scores of every slate, (n, slates), always added in the same order."""
    listed = slates(scores.shape[1], slots)
    sums = scores[:, listed[:, 0]]
    for slot in range(1, slots):
        sums = sums + scores[:, listed[:, slot]]
    return sums


def best_top_slates(draws: ArrayLike, slots: int, epsilon: expect.Number) -> TopPlan:
    """How many slates to favour, and the expected sum: the optimum over all epsilon-LDP slates where the
    candidates are alike. The plan speaks of slates: `top` of its `candidates` are favoured.
    """
    scores = checked_draws(draws)
    expect_slots(scores.shape[1], slots)
    total = np.zeros(len(slates(scores.shape[1], slots)))
    for rows in _some(len(scores), len(total)):
        total += np.sort(slate_sums(scores[rows], slots), axis=1)[:, ::-1].sum(axis=0)
    return best_exchangeable_plan(total / len(scores), epsilon)


def _ranked(scores: Floats, slots: int) -> NDArray[np.int64]:
    """Slates from the largest sum of scores down, (n, slates)."""
    # Rows whose sums might overflow are made smaller by a power of two, which keeps their order.
    huge = np.abs(scores).max(axis=1, keepdims=True) > np.finfo(np.float64).max / slots
    sums = slate_sums(np.where(huge, np.ldexp(scores, -slots.bit_length()), scores), slots)
    return np.argsort(-sums, axis=1, kind="stable").astype(np.int64, copy=False)


def _some(rows: int, width: int) -> list[slice]:
    step = max(1, SUMS_AT_ONCE // width)
    return [slice(start, start + step) for start in range(0, rows, step)]


def _expect_sizes(candidates: int, slots: int, favoured: int) -> None:
    expect_slots(candidates, slots)
    count = len(slates(candidates, slots))
    if not expect.whole("favoured", favoured, at_least=1) < count:
        raise BadInput(f"expected fewer favoured slates than there are, {count:,}, got {favoured}")
