"""Floors and slates for `tacit audit`, and how each can be weaker than the same claim allows.

The twins make the mistake that these mechanisms invite: something that must be public is read off the
private scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise, permutations, product

import numpy as np

from tacit.privacy.audit.case import AuditCase, Row, claimed_epsilon, exact_case, exact_epsilon
from tacit.privacy.choice.floors import Floors
from tacit.privacy.choice.slate_response import OverlapSlates, TopSlates
from tacit.privacy.choice.slates import PeeledSlates, all_slates
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.releases import LocalChoice
from tacit.privacy.units import Relation

Scores = Sequence[float]
FLOORS = (0.2, 0.12, 0.08, 0.05)


def cases() -> list[AuditCase]:
    """All cases. Claims come from the accountant, never from here, so that it is audited too."""
    return [_floors(64), _floors(32), *_slates()]


def _floors(bits: int) -> AuditCase:
    def law(share: Fraction) -> Floors:
        return Floors.nearest(1 / share, FLOORS, bits)

    def careless(scores: Scores) -> Floors:
        """Planned on the private scores: the floors follow the private ranking."""
        order = sorted(range(4), key=lambda place: -scores[place])
        return Floors.nearest(1, [FLOORS[order.index(place)] for place in range(4)], bits)

    return _case(
        f"optimal choice by floors of {bits} bits, 4 candidates",
        lambda share: _rows(4, partial(_floors_row, law(share))),
        lambda: _rows(4, lambda scores: _floors_row(careless(scores), scores)),
    )


def _slates() -> list[AuditCase]:
    def as_many_as_are_good(scores: Scores) -> OverlapSlates:
        return OverlapSlates.for_epsilon(1, 5, 2, top=2 if scores[0] == 4 else 3, needed=2)

    def as_many_slates_as_are_good(scores: Scores) -> TopSlates:
        return TopSlates.for_epsilon(1, 5, 2, favoured=1 if scores[0] == 4 else 3)

    def peeled(share: Fraction) -> PeeledSlates:
        return PeeledSlates.for_epsilon(1 / share, 4, 2)

    return [
        _case(
            "overlap slates, 2 slots of 5",
            lambda share: _rows(
                5, partial(_overlap_row, OverlapSlates.for_epsilon(1 / share, 5, 2, top=3, needed=2))
            ),
            lambda: _rows(5, lambda scores: _overlap_row(as_many_as_are_good(scores), scores)),
        ),
        _case(
            "top slates, 2 slots of 5",
            lambda share: _rows(5, partial(_top_row, TopSlates.for_epsilon(1 / share, 5, 2, favoured=3))),
            lambda: _rows(5, lambda scores: _top_row(as_many_slates_as_are_good(scores), scores)),
        ),
        _case(
            "peeled slates, 2 slots of 4",
            lambda share: _rows(4, partial(_peeled_row, peeled(share))),
            lambda: _rows(4, partial(_peeled_row, peeled(Fraction(1, 2)))),  # all of epsilon in every slot
            # The order of slots is not told, so it spends less than its slots do: by definition, this much.
            stated=exact_epsilon(_rows(4, partial(_peeled_by_definition, peeled(Fraction(1))))),
        ),
    ]


def _case(
    name: str,
    rows: Callable[[Fraction], list[Row]],
    twin_rows: Callable[[], list[Row]],
    stated: float = math.inf,
) -> AuditCase:
    relation = Relation.REPLACE_ONE
    claimed = claimed_epsilon(LocalChoice(Fraction(1)), relation, 0)
    return exact_case(name, relation, claimed, rows=rows, twin_rows=twin_rows, stated=stated)


def _peeled_by_definition(law: PeeledSlates, scores: Scores) -> Row:
    """Randomized response for the best, then among the rest for the best of them; the two in no order."""
    one, two = law.responses
    number = {tuple(slate): place for place, slate in enumerate(all_slates(law.candidates, law.slots).tolist())}
    row = [Fraction(0)] * len(number)
    for first, second in permutations(range(law.candidates), 2):
        rest = [place for place in range(law.candidates) if place != first]
        best, next_best = (max(places, key=lambda place: scores[place]) for places in (range(4), rest))
        chance = one.pmf(best)[first] * two.pmf(rest.index(next_best))[rest.index(second)]
        row[number[min(first, second), max(first, second)]] += chance
    return row


def _rows(candidates: int, row: Callable[[Scores], Row]) -> list[Row]:
    """The law for every ranking, equal ones once."""
    return list({tuple(row(scores)): None for scores in permutations(range(candidates))})


def _floors_row(law: Floors, scores: Scores) -> Row:
    """Read off the sampler: all words of a stretch must decide alike."""
    best_first = sorted(range(law.candidates), key=lambda place: -scores[place])
    ends = accumulate((law.weights(scores)[place] for place in best_first), initial=0)
    row = [Fraction(0)] * law.candidates
    for low, high in pairwise(ends):
        words = _probes(low, high)
        for said in set(law.choose(np.tile(scores, (3, 1)), lambda _, w=words: w).tolist()):  # type: ignore[misc]
            # Several, if the sampler is not what it seems: then no row sums to one.
            row[said] += Fraction(high - low, WHOLE)
    return row


def _overlap_row(law: OverlapSlates, scores: Scores) -> Row:
    widths = (weight for count, weight in law.blocks.values() for _ in range(count))
    return _slate_row(law, scores, accumulate((*widths, law.spare), initial=0))


def _top_row(law: TopSlates, scores: Scores) -> Row:
    others = len(all_slates(law.candidates, law.slots)) - law.favoured
    widths = (*(law.high_weight,) * law.favoured, *(law.low_weight,) * others, law.spare)
    return _slate_row(law, scores, accumulate(widths, initial=0))


def _peeled_row(law: PeeledSlates, scores: Scores) -> Row:
    """Every stretch of the first slot's words beside every one of the second's."""
    first, second = (
        list(pairwise([*(block * response.lie_weight for block in range(response.classes)), WHOLE]))
        for response in law.responses
    )
    number = {tuple(slate): place for place, slate in enumerate(all_slates(law.candidates, law.slots).tolist())}
    row = [Fraction(0)] * len(number)
    for one, two in product(first, second):
        words = iter([np.repeat(_probes(*one), 3), np.tile(_probes(*two), 3)])
        said = law.choose(np.tile(scores, (9, 1)), lambda _, words=words: next(words))  # type: ignore[misc]
        for slate in {tuple(each) for each in said.tolist()}:
            row[number[slate]] += Fraction((one[1] - one[0]) * (two[1] - two[0]), WHOLE**2)
    return row


def _slate_row(law: OverlapSlates | TopSlates, scores: Scores, ends: Iterator[int]) -> Row:
    stretches = [(low, high) for low, high in pairwise(ends) if low < high]
    words = np.concatenate([_probes(low, high) for low, high in stretches])
    said = law.choose(np.tile(scores, (len(words), 1)), lambda _: words)
    number = {tuple(slate): place for place, slate in enumerate(all_slates(law.candidates, law.slots).tolist())}
    row = [Fraction(0)] * len(number)
    for (low, high), three in zip(stretches, said.reshape(len(stretches), 3, -1).tolist(), strict=True):
        for slate in {tuple(one) for one in three}:
            row[number[slate]] += Fraction(high - low, WHOLE)
    return row


def _probes(low: int, high: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The first, the middle and the last word of a stretch."""
    return np.array([low, (low + high) // 2, high - 1], np.uint64)
