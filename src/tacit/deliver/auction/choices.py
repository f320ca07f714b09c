"""Choice rules for a block of auctions at once, and the laws they choose by.

A rule reads private scores in the public order of the offers and answers with a place in each auction's list,
or -1 where nothing is offered. Ties of private scores go to the better public rank. Top-m randomized response
has the laws of `TopChoice`, each auction with its own (epsilon, k, m).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import Offers
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.kernels.choices import TopLaws, choose_top, top_pmf
from tacit.privacy.budget import rounded_up
from tacit.privacy.choice.choice import as_numbers
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.randomness import WordSource

LARGEST_TABLE = 2**20

MOST_SIZES = 512
"""Laws for all sizes up to here are made beforehand, a few microseconds each."""

GREEDY, NON_PERSONALISED = "greedy", "non-personalised"
"""What the two ends are called, that others are measured between."""

TopColumns = tuple[Integers, Integers, NDArray[np.uint64], NDArray[np.uint64], Integers]


@dataclass(frozen=True)
class LawTable:
    """Which law each auction has, and what each law may tell."""

    laws: TopLaws
    law_epsilon: Floats

    @property
    def epsilon(self) -> Floats:
        """One per auction."""
        return self.law_epsilon[self.laws.law]

    @classmethod
    def of(cls, epsilon: float | Floats, kept: Integers, top: Integers) -> LawTable:
        """For each auction the most telling law whose exact epsilon is at most the one asked for."""
        different, which = _different(epsilon, kept, top)
        return _table(tuple(different), which)

    @classmethod
    def certain(cls, kept: Integers) -> LawTable:
        """The privately best of those kept, for sure: no privacy where there is more than one."""
        largest = int(kept.max(initial=0)) + 1
        numbers, nothing = np.arange(largest), np.zeros(largest, np.int64)
        words = np.full(largest, 2**64 - 1, np.uint64)
        laws = TopLaws(kept, numbers, np.minimum(numbers, 1), nothing.astype(np.uint64), words, nothing)
        return cls(laws, np.where(numbers > 1, np.inf, 0.0))

    @classmethod
    def by_size(cls, epsilon: float, kept: int | None, top: int, sizes: Integers) -> LawTable:
        """The same where only the number of candidates differs."""
        # A power of two of them, so that blocks share their tables whatever their largest auction is.
        up_to = 1 << int(sizes.max(initial=0)).bit_length()
        kept_of = [size if kept is None else min(size, kept) for size in range(up_to)]
        return _table(tuple((epsilon, k, min(k, top)) for k in kept_of), sizes)


def _table(different: tuple[tuple[float, int, int], ...], which: Integers) -> LawTable:
    kept, top, low, high, spare, spent = _arrays(different)
    return LawTable(TopLaws(which, kept, top, low, high, spare), spent)


def _different(
    epsilon: float | Floats, kept: Integers, top: Integers
) -> tuple[list[tuple[float, int, int]], Integers]:
    """The (epsilon, k, m) that occur, and which of them each auction has."""
    budgets, budget = (
        np.unique(epsilon, return_inverse=True)
        if isinstance(epsilon, np.ndarray)
        else (np.array([epsilon], np.float64), np.int64(0))
    )
    base = int(kept.max(initial=0)) + 1
    codes: Integers = (budget * base + kept) * base + top
    size = len(budgets) * base * base
    if size <= LARGEST_TABLE:  # counting is faster than sorting
        present = np.flatnonzero(np.bincount(codes, minlength=size))
        places = np.zeros(size, np.int64)
        places[present] = np.arange(len(present))
        which = places[codes]
    else:
        present, which = np.unique(codes, return_inverse=True)
    named = [(float(budgets[code // base**2]), code // base % base, code % base) for code in present.tolist()]
    return named, which


@lru_cache(maxsize=256)
def _arrays(different: tuple[tuple[float, int, int], ...]) -> tuple[NDArray[Any], ...]:
    """kept, top, low, high and spare words, and exact epsilons, of the laws that occur."""
    laws = [_law(*each) for each in different]
    low, high, spare, spent = zip(*laws, strict=True) if laws else ((), (), (), ())
    kept, top = (np.array([each[place] for each in different], np.int64) for place in (1, 2))
    weights = (np.array(words, np.uint64) for words in (low, high))
    return kept, top, *weights, np.array(spare, np.int64), np.array(spent, np.float64)


@lru_cache(maxsize=2**14)
def _law(epsilon: float, kept: int, top: int) -> tuple[int, int, int, float]:
    """Low, high and spare words of 2^64, and the exact epsilon. Where one or none is kept, nothing is drawn."""
    if kept <= 1:
        return 1, 1, 0, 0.0
    law = TopChoice.for_epsilon(epsilon, kept, kept, top)
    return law.low_weight, law.high_weight, law.spare, law.epsilon


class ChoiceRule(Protocol):
    """A law for every auction of a block.

    `measured_only` rules are for comparing markets: their epsilon is what was asked, no bound on what their
    draws tell, so that nothing they choose may be shown.
    """

    measured_only: ClassVar[bool]

    def epsilon(self, offers: Offers) -> Floats:
        """What the choice may tell about the private scores of each auction, in the worst case."""

    def pmf(self, offers: Offers, scores: Floats) -> Floats:
        """The chance of each candidate, in the order of the offers."""

    def choose(self, offers: Offers, scores: Floats, words: WordSource) -> Integers:
        """The place chosen in each auction, from one word each."""


@dataclass(frozen=True)
class Greedy:
    """The best private score. Not private at all: the end that the others are measured against."""

    measured_only: ClassVar[bool] = False  # its epsilon says what it tells: everything

    def epsilon(self, offers: Offers) -> Floats:
        return LawTable.certain(offers.sizes).epsilon

    def pmf(self, offers: Offers, scores: Floats) -> Floats:
        return top_pmf(offers.offsets, scores, LawTable.certain(offers.sizes).laws)

    def choose(self, offers: Offers, scores: Floats, words: WordSource) -> Integers:  # noqa: ARG002 (nothing is random)
        no_words = np.zeros(offers.count, np.uint64)
        return choose_top(offers.offsets, scores, LawTable.certain(offers.sizes).laws, no_words)


@dataclass(frozen=True)
class NonPersonalised:
    """The best public score, whatever the device knows.

    Guarantee:  epsilon 0: what is shown is a function of the offers alone.
    Neighbours: any two vectors of private scores of one auction.
    Assumes:    offers are public.
    Source:     by definition: no private score is read.
    """

    measured_only: ClassVar[bool] = False

    def epsilon(self, offers: Offers) -> Floats:
        return np.zeros(offers.count)

    def pmf(self, offers: Offers, scores: Floats) -> Floats:
        return top_pmf(offers.offsets, scores, LawTable.certain(np.minimum(offers.sizes, 1)).laws)

    def choose(self, offers: Offers, scores: Floats, words: WordSource) -> Integers:  # noqa: ARG002
        return np.minimum(offers.sizes, 1) - 1


@dataclass(frozen=True)
class TopChoiceRule:
    """Top-m randomized response among the public best k: trunc(k, m), the law of `TopChoice`.

    `kept` (k, by default all) and `top` (m) are one number, or one per auction; where an auction has fewer
    candidates, they are all of those. So may epsilon be; where it is 0 the public best is chosen.

    Guarantee:  that of `TopChoice`, whose whole numbers these are: each word names whom it names there.
    Neighbours: any two vectors of private scores of one auction.
    Assumes:    offers, `kept`, `top` and epsilon are public; private scores are finite; words are independent
                and exactly uniform.
    Source:     as `TopChoice`.
    """

    measured_only: ClassVar[bool] = False

    epsilon_asked: float | Floats
    kept: int | Integers | None = None
    top: int | Integers = 1

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        epsilon = as_numbers("epsilon_asked", self.epsilon_asked)
        if not np.all(np.isfinite(epsilon)) or np.any(epsilon < 0):
            raise BadInput("expected epsilon >= 0 and finite, got another")
        for name, sizes in (("kept", self.kept), ("top", self.top)):
            if sizes is not None and np.any(as_numbers(name, sizes) < 1):
                raise BadInput(f"expected {name} >= 1, got less")

    def epsilon(self, offers: Offers) -> Floats:
        return self._table(offers).epsilon

    def pmf(self, offers: Offers, scores: Floats) -> Floats:
        return top_pmf(offers.offsets, scores, self._table(offers).laws)

    def choose(self, offers: Offers, scores: Floats, words: WordSource) -> Integers:
        return choose_top(offers.offsets, scores, self._table(offers).laws, words(offers.count))

    def laws_by_size(self, largest: int) -> TopColumns | None:
        """The laws of requests of 0..largest candidates, or None where they differ by more than that."""
        arrays = (isinstance(asked, np.ndarray) for asked in (self.epsilon_asked, self.kept, self.top))
        if any(arrays) or largest > MOST_SIZES:
            return None
        laws = self._by_size(np.arange(largest + 1)).laws
        return laws.kept, laws.top, laws.low_weight, laws.high_weight, laws.spare_words

    def _by_size(self, sizes: Integers) -> LawTable:
        epsilon, kept = float(self.epsilon_asked), self.kept if self.epsilon_asked else 1
        return LawTable.by_size(epsilon, kept, self.top, sizes)  # type: ignore[arg-type]

    def _table(self, offers: Offers) -> LawTable:
        sizes = offers.sizes
        arrays = (isinstance(asked, np.ndarray) for asked in (self.epsilon_asked, self.kept, self.top))
        if not any(arrays):
            return self._by_size(sizes)
        for name, asked in (("epsilon", self.epsilon_asked), ("kept", self.kept), ("top", self.top)):
            if isinstance(asked, np.ndarray) and asked.shape != sizes.shape:
                raise BadInput(f"expected {name} for {len(sizes)} auctions, got {asked.shape}")
        kept = sizes if self.kept is None else np.minimum(sizes, self.kept)
        if isinstance(self.epsilon_asked, np.ndarray):
            kept = np.where(self.epsilon_asked > 0, kept, np.minimum(kept, 1))
        elif not self.epsilon_asked:
            kept = np.minimum(kept, 1)  # nothing to spend
        return LawTable.of(self.epsilon_asked, kept, np.minimum(kept, self.top))


@dataclass(frozen=True)
class PlannedRule:
    """The rule that a public plan makes of a block's offers, which hold nothing private.

    Guarantee:  that of the rule it makes, for each auction: `epsilon` is what that rule has for it. A rule that
                is for measuring only is refused.
    Neighbours: any two vectors of private scores of one auction.
    Assumes:    the plan reads nothing but the offers and what is public, and makes the same of the same offers;
                what the rule assumes.
    Source:     the rule's own; a plan that is fixed before anything private is read tells nothing.
    """

    measured_only: ClassVar[bool] = False

    plan: Callable[[Offers], ChoiceRule]

    def epsilon(self, offers: Offers) -> Floats:
        return self._rule(offers).epsilon(offers)

    def pmf(self, offers: Offers, scores: Floats) -> Floats:
        return self._rule(offers).pmf(offers, scores)

    def choose(self, offers: Offers, scores: Floats, words: WordSource) -> Integers:
        return self._rule(offers).choose(offers, scores, words)

    def _rule(self, offers: Offers) -> ChoiceRule:
        rule = self.plan(offers)
        expect_fit_to_show(rule)
        return rule


def expect_fit_to_show(rule: ChoiceRule) -> None:
    """Refuse a rule whose epsilon is no promise."""
    if rule.measured_only:
        raise BadInput(
            "expected a choice whose epsilon is a bound, such as TopChoiceRule, or NoisyMax one request at a "
            f"time, got {type(rule).__name__}, which is for measuring only"
        )


def expect_within_budget(
    offers: Offers, rule: ChoiceRule, left: expect.Number | Floats, user: Integers | None = None
) -> None:
    """Refuse a block that a device cannot pay for. `left` is what it has, one figure or one per auction.

    With `user`, all that a user's auctions in the block ask for together is compared with the least that is
    left in one of them. Without it nobody knows which auctions are one device's, and each is compared alone.
    Either way nothing is remembered: what a block spends, the caller deducts before the next.
    """
    if not isinstance(left, np.ndarray):
        exactly = expect.at_least_zero("epsilon left", left)
        left = np.full(offers.count, 0.0 - rounded_up(-exactly))  # rounded down
    if left.shape != (offers.count,) or not np.all(np.isfinite(left) & (left >= 0)):
        raise BadInput(f"expected a finite epsilon left >= 0 for each of {offers.count} auctions, got others")
    asked = rule.epsilon(offers)
    over = ~(asked <= left)  # NaN is over, too
    if over.any():
        at = int(np.argmax(over))
        raise BadInput(
            f"auction {offers.names.of(at)}: expected epsilon <= {left[at]:g}, which the device has left, "
            f"got {asked[at]:g}"
        )
    if user is None:
        return
    order = np.argsort(user, kind="stable")
    ends = np.flatnonzero(np.diff(user[order])) + 1
    for auctions in np.split(order, ends):
        least = left[auctions].min(initial=math.inf)
        # Rounded once, at the end, so that the sign is that of the exact difference.
        if len(auctions) > 1 and math.fsum([*asked[auctions].tolist(), -least]) > 0:
            raise BadInput(
                f"auction {offers.names.of(int(auctions[0]))}: expected epsilon <= {least:g} with the device's "
                f"other auctions of the block, which it has left, got {math.fsum(asked[auctions].tolist()):g}"
            )
