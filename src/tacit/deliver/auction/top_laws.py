"""The laws of `TopChoice` for many auctions, each with its own (epsilon, k, m)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.deliver.auction.candidates import Floats, Integers
from tacit.kernels.choices import TopLaws
from tacit.privacy.choice.ranked import TopChoice

LARGEST_TABLE = 2**20

TopColumns = tuple[Integers, Integers, NDArray[np.uint64], NDArray[np.uint64], Integers]


@dataclass(frozen=True)
class LawTable:
    """Which law each auction has, and what each law may tell."""

    laws: TopLaws
    law_epsilon: Floats

    @property
    def epsilon(self) -> Floats:
        """One an auction."""
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
