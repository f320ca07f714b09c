"""The other ends of the trade-off: privacy or communication optimised while revenue is held."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.deliver.candidates.selection import Selection, select
from tacit.deliver.candidates.values import ROUNDING, ContextValues
from tacit.errors import BadInput
from tacit.expect import Number

Level = TypeVar("Level")
Weighted = Sequence[tuple[float, ContextValues]]
"""The nodes of a level: how likely a request discloses each, and what ads are worth below it."""


@dataclass(frozen=True, eq=False)
class Disclosure(Generic[Level]):
    """A level, what a request earns when everybody discloses at it, and the ads for each of its nodes."""

    level: Level
    revenue: float
    selections: tuple[Selection, ...]


def coarsest_for(
    levels: Sequence[Level],
    nodes: Mapping[Level, Weighted] | Callable[[Level], Weighted],
    k: int,
    revenue_at_least: float,
) -> Disclosure[Level]:
    """The first of the levels, the coarsest first, at which k ads a request earn so much.

    `Hierarchy.levels()` has the finest first: give it reversed. Where levels are tuples of whole numbers, as
    those of a hierarchy are, one that comes before a coarser one is refused; of other levels the order is taken
    as it is. Refused as well, by naming the best that was found, where no level earns so much.
    """
    if not len(levels):
        raise BadInput("expected at least one level, got none")
    _expect_coarsest_first(levels)
    wanted = float(expect.at_least_zero("revenue_at_least", revenue_at_least))
    best = -math.inf
    for level in levels:
        if not callable(nodes) and level not in nodes:
            raise BadInput(f"level {level}: expected its nodes, got none")
        found = _disclosing(level, nodes(level) if callable(nodes) else nodes[level], k)
        if found.revenue >= wanted:
            return found
        best = max(best, found.revenue)
    raise BadInput(
        f"expected revenue_at_least that some level reaches with {k} ads, at most {best:.9g} micros a request, "
        f"got {wanted:.9g}"
    )


def _expect_coarsest_first(levels: Sequence[Level]) -> None:
    several = [each for each in levels if isinstance(each, tuple)]
    whole = all(isinstance(part, int | np.integer) for each in several for part in each)
    if len(several) < len(levels) or not whole:
        return
    if len({len(each) for each in several}) > 1:
        raise BadInput("expected levels of as many attributes each, got tuples of different lengths")
    table: NDArray[np.int64] = np.array(several)  # (levels, attributes)
    for at, level in enumerate(table):
        later = table[at + 1 :]
        coarser = (later >= level).all(axis=1) & (later > level).any(axis=1)
        if coarser.any():
            raise BadInput(
                f"expected the coarsest level first, got {several[at]} before the coarser "
                f"{several[at + 1 + int(coarser.argmax())]}"
            )


def _disclosing(level: Level, nodes: Weighted, k: int) -> Disclosure[Level]:
    name = f"level {level}: the probability of a node"
    chances = [float(expect.probability(name, chance, zero=True, one=True)) for chance, _ in nodes]
    if math.fsum(chances) > 1 + ROUNDING:
        total = math.fsum(chances)
        raise BadInput(f"level {level}: expected probabilities that add up to at most 1, got {total:.9g}")
    selections = tuple(select(values, k, certify=False) for _, values in nodes)
    earned = (chance * each.revenue for chance, each in zip(chances, selections, strict=True))
    return Disclosure(level, math.fsum(earned), selections)


def candidates_for_load(
    free_bytes_per_second: Number, requests_per_second: Number, bytes_per_ad: Number, most: int
) -> int:
    """How many ads a request may have so that all requests fit what the network has free; at most `most`.

    Refused where not even one ad a request fits. Without requests there is nothing to share, and `most` may go.
    """
    free = expect.at_least_zero("free_bytes_per_second", free_bytes_per_second)
    requests = expect.at_least_zero("requests_per_second", requests_per_second)
    size = expect.positive("bytes_per_ad", bytes_per_ad)
    most = expect.whole("most", most, at_least=1)
    needed: Fraction = requests * size  # bytes a second for one ad a request
    if not needed:
        return most
    fits = free // needed
    if fits < 1:
        raise BadInput(
            f"expected room for one ad a request, {float(needed):.9g} bytes a second, got {float(free):.9g}"
        )
    return min(int(fits), most)
