"""Peeling: fill the slots one after the other, each by randomized response on who is left."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import log_rounded_up
from tacit.privacy.choice.choice import Floats, checked
from tacit.privacy.choice.ranking import private_ranking
from tacit.privacy.choice.slates.subsets import expect_slots, slates
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.randomness import Words


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
        """For one request: the exact probability of each slate, as `subsets.slates` lists them."""
        ranking = private_ranking(checked(scores, self.candidates, axes=1)).tolist()
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
        return tuple(law[frozenset(slate)] for slate in slates(self.candidates, self.slots).tolist())

    def pmf(self, scores: ArrayLike) -> Floats:
        return np.array([float(chance) for chance in self.probabilities(scores)])

    def inclusion(self, scores: ArrayLike) -> Floats:
        """The probability that each candidate is shown, of the shape of `scores`."""
        given = checked(scores, self.candidates)
        shown = np.empty(given.shape)
        by_rank = np.broadcast_to(self._inclusion_by_rank, given.shape)
        np.put_along_axis(shown, private_ranking(given), by_rank, axis=-1)
        return shown

    @cached_property
    def _inclusion_by_rank(self) -> Floats:
        return np.array([self._included(rank) for rank in range(self.candidates)])

    def _included(self, rank: int) -> float:
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

    def choose(self, scores: ArrayLike, words: Words) -> NDArray[np.int64]:
        """The slate of each request, (n, slots), in public order, from one word a slot."""
        given = checked(scores, self.candidates, axes=2)
        left = private_ranking(given)
        chosen = np.empty((len(given), self.slots), np.int64)
        for slot, response in enumerate(self.responses):
            place = response.report(np.zeros(len(given), np.int64), words(len(given)))
            chosen[:, slot] = left[np.arange(len(given)), place]
            stays = np.arange(left.shape[1]) != place[:, None]
            left = left[stays].reshape(len(given), -1)
        return np.sort(chosen, axis=1)
