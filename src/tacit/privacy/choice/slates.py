"""Private slates: several slots at once, shown in public order; what they offer, and peeling as the baseline.

The value of a slate is the sum of its candidates' scores. A slate is a set: which slot shows which
candidate is decided by public rank, so the order tells nothing. Peeling fills the slots one after the
other, each by randomized response among the candidates that are left, with epsilon / slots each.
`slate_response` makes one draw for the whole slate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from math import comb, prod
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down, log_rounded_up
from tacit.privacy.choice.choice import check_draws, check_scores, private_ranking
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse
from tacit.privacy.randomness import WordSource


class PrivateSlate(Protocol):
    """A law over sets of `slots` of the `candidates`. Sets are numbered as `slates.all_slates` lists them."""

    @property
    def candidates(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def epsilon(self) -> float:
        """The exact worst case over all scores of what is sampled, rounded up."""

    def pmf(self, scores: ArrayLike) -> Floats:
        """For one request: the probability of each slate, (slates,). For few slates only."""

    def inclusion(self, scores: ArrayLike) -> Floats:
        """The probability that each candidate is shown, of the shape of `scores`. Exact, for any size."""

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The slate of each request, (n, slots), in public order, for scores (n, candidates)."""


def expected_sum(slate: PrivateSlate, draws: ArrayLike) -> float:
    """The mean sum of scores on the slate: over the slate by its exact law, over the scores by the draws."""
    scores = check_draws(draws)
    return float((slate.inclusion(scores) * scores).sum(axis=1).mean())


MOST_LISTED = 100_000
LEAST_WEIGHT = 1000
"""With fewer words per slate, rounding would waste more than a thousandth of them."""


def expect_slots(candidates: int, slots: int) -> None:
    expect.whole("candidates", candidates, at_least=2)
    if expect.whole("slots", slots, at_least=1) >= candidates:
        raise BadInput(f"expected fewer slots than candidates, got {slots} of {candidates}")


def favoured_weights(epsilon: expect.Number, count: int, favoured: int) -> tuple[int, int]:
    """Of 2^64 words, how many for each slate and each favoured one: a ratio of at most e^epsilon, exactly."""
    odds = exp_rounded_down(expect.positive("epsilon", epsilon))
    low = math.floor(WHOLE / (count - favoured + odds * favoured))
    if low < LEAST_WEIGHT:
        raise BadInput(
            f"expected slates that 2^64 words can tell apart at epsilon {epsilon}, got {count:,} of them"
        )
    return low, math.floor(low * odds)


@lru_cache(maxsize=16)
def all_slates(candidates: int, slots: int) -> Integers:
    """All slates, (slates, slots), from the public best on; refused where there are too many to list."""
    expect_slots(candidates, slots)
    count = comb(candidates, slots)
    if count > MOST_LISTED:
        raise BadInput(f"expected at most {MOST_LISTED:,} slates to list, got {count:,}")
    listed = np.array(list(combinations(range(candidates), slots)), np.int64)
    listed.setflags(write=False)
    return listed


def unrank_sets(number: NDArray[np.uint64], places: int, size: int) -> Integers:
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


@dataclass(frozen=True)
class PeeledSlates:
    """`responses` fill one slot each: the privately best of those left, or another one of them.

    Guarantee:  pure epsilon-LDP, epsilon the sum over slots, even for who saw the slots filled in turn; the set
                alone tells less.
    Neighbours: any two vectors of private scores of one request.
    Assumes:    candidates and their order are public; words are independent and exactly uniform; what is shown
                where follows the public order.
    Source:     basic composition: Dwork, McSherry, Nissim, Smith 2006; one slot: Laro et al. 2023, eq. 2.
    """

    candidates: int
    responses: tuple[RandomizedResponse, ...]

    def __post_init__(self) -> None:
        expect.several("responses", self.responses, RandomizedResponse)
        expect_slots(self.candidates, self.slots)
        for taken, response in enumerate(self.responses):
            if response.classes != self.candidates - taken:
                raise BadInput(f"expected slot {taken} to choose among {self.candidates - taken}, got another")

    @classmethod
    def for_epsilon(cls, epsilon: expect.Number, candidates: int, slots: int) -> PeeledSlates:
        """Epsilon shared evenly among the slots."""
        expect_slots(candidates, slots)
        each = expect.positive("epsilon", epsilon) / slots
        responses = (RandomizedResponse.for_epsilon(each, candidates - taken) for taken in range(slots))
        return cls(candidates, tuple(responses))

    @property
    def slots(self) -> int:
        return len(self.responses)

    @property
    def epsilon(self) -> float:
        """Of the slots filled in turn: exact, and at least that of the set."""
        return log_rounded_up(prod((r.truth / r.lie for r in self.responses), start=Fraction(1)))

    def probabilities(self, scores: ArrayLike) -> tuple[Fraction, ...]:
        """For one request: the exact probability of each slate, as `slates.all_slates` lists them."""
        ranking = private_ranking(check_scores(scores, self.candidates, axes=1)).tolist()
        law = {frozenset[int](): Fraction(1)}
        for response in self.responses:
            grown: dict[frozenset[int], Fraction] = {}
            for taken, chance in law.items():
                left = [candidate for candidate in ranking if candidate not in taken]
                for place, candidate in enumerate(left):
                    step = response.lie if place else response.truth
                    slate = taken | {candidate}
                    grown[slate] = grown.get(slate, Fraction(0)) + chance * step
            law = grown
        return tuple(law[frozenset(slate)] for slate in all_slates(self.candidates, self.slots).tolist())

    def pmf(self, scores: ArrayLike) -> Floats:
        return np.array([float(chance) for chance in self.probabilities(scores)])

    def inclusion(self, scores: ArrayLike) -> Floats:
        """The probability that each candidate is shown, of the shape of `scores`."""
        given = check_scores(scores, self.candidates)
        shown = np.empty(given.shape)
        by_rank = np.broadcast_to(self._inclusion_by_rank, given.shape)
        np.put_along_axis(shown, private_ranking(given), by_rank, axis=-1)
        return shown

    @cached_property
    def _inclusion_by_rank(self) -> Floats:
        return np.array([self._inclusion_chance(rank) for rank in range(self.candidates)])

    def _inclusion_chance(self, rank: int) -> float:
        """The chance to be shown with this private rank. While not, all that matters is how many of the better
        ones are left: better[b] is the chance of b of them.
        """
        better = np.zeros(rank + 1)
        better[rank] = 1.0
        shown = 0.0
        counts = np.arange(rank + 1)
        for response in self.responses:
            truth, lie = float(response.truth), float(response.lie)
            worse = response.classes - 1 - counts
            shown += float(better @ np.where(counts == 0, truth, lie))
            one_better = better * np.where(counts == 0, 0.0, truth + (counts - 1) * lie)
            better = better * np.maximum(worse, 0) * lie
            better[:-1] += one_better[1:]
        return shown

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The slate of each request, (n, slots), in public order, from one word per slot."""
        given = check_scores(scores, self.candidates, axes=2)
        left = private_ranking(given)
        chosen = np.empty((len(given), self.slots), np.int64)
        for slot, response in enumerate(self.responses):
            place = response.report(np.zeros(len(given), np.int64), words(len(given)))
            chosen[:, slot] = left[np.arange(len(given)), place]
            stays = np.arange(left.shape[1]) != place[:, None]
            left = left[stays].reshape(len(given), -1)
        return np.sort(chosen, axis=1)
