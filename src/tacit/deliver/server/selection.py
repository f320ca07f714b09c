"""Selection of the ads to send: k ads by greedy choice, and the same problem from its other ends.

The k ads that earn most together, with a bound on what any k could reach; as few ads as earn a given revenue;
the coarsest disclosure that earns it; k from the load of the network; and selection again, from what is
known, as statistics, ads and contexts change.

Source: Hardt and Nath, Privacy-aware personalization for mobile advertising, CCS 2012, sections 3.2 and 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.server.values import (
    ROUNDING,
    ContextValues,
    expect_ads,
    expect_numpy,
    gains_alone,
)
from tacit.display import brief
from tacit.errors import BadInput
from tacit.expect import Number
from tacit.kernels.checks import ANY, expect_array
from tacit.kernels.greedy import GreedySelection, SparseValues, lazy_greedy

GUARANTEE = 1 - 1 / math.e
"""Of the best k ads' revenue, what greedy choice reaches at least (Nemhauser, Wolsey, Fisher 1978)."""

ROUND_UP = 1e-12
"""Sums of doubles in another order differ by less than this share."""


@dataclass(frozen=True, eq=False)
class AdSelection:
    """Ads in the order of choice, what each adds, and the expected revenue of all, in micros per request.

    `bound` is at least revenue - price_per_ad x size of every set of at most k ads: it is computed from this
    instance, and mostly far nearer than 1 - 1/e. None where it was not asked for.
    """

    ads: Integers
    gains: Floats
    revenue: float
    price_per_ad: float
    bound: float | None


def select_ads(
    values: ContextValues, k: int, price_per_ad: float = 0.0, *, certify: bool = True
) -> AdSelection:
    """At most k ads by greedy choice, as long as each adds more than `price_per_ad` micros.

    Without a price the revenue is at least 1 - 1/e of the best k ads' (Theorem 3.5 of the paper). With one, no
    longer list of the same greedy order is better: gains only fall (section 3.3.2). `certify` adds a bound on
    what any k ads could reach, for a third more time, or half where all values are alike.
    """
    expect.kind("values", values, ContextValues)
    k = expect.whole("k", k, at_least=1)
    price = float(expect.at_least_zero("price_per_ad", price_per_ad))
    known = values.first_gains
    picked = lazy_greedy(values.values, values.weight, k, price, known, certify=certify)
    return selection_of(picked, values.ads, price)


def selection_of(picked: GreedySelection, ads: Integers, price_per_ad: float) -> AdSelection:
    bound = None if picked.bound is None else picked.bound * (1 + ROUND_UP)
    return AdSelection(ads[picked.ads], picked.gains, math.fsum(picked.gains), price_per_ad, bound)


def smallest_selection(values: ContextValues, revenue_at_least: float) -> AdSelection:
    """A short list that earns a given revenue: ads by greedy choice until it is reached.

    It is at most 1 + ln(R / (R - r)) times as long as the shortest, R being what is asked for and r what the
    list earns without its last ad (Wolsey 1982). Refused where all ads together earn less.
    """
    wanted = float(expect.at_least_zero("revenue_at_least", revenue_at_least))
    most = len(values.ads)
    if not most:
        raise BadInput("expected at least one ad, got none")
    picked = lazy_greedy(values.values, values.weight, most, 0.0, values.first_gains, enough=wanted)
    found = selection_of(picked, values.ads, 0.0)
    if found.revenue < wanted * (1 - ROUND_UP):
        raise BadInput(
            "expected revenue_at_least to be at most what all ads together earn, "
            f"{found.revenue:.9g} micros per request, got {wanted:.9g}"
        )
    return found


def dense_values(values: ContextValues) -> NDArray[np.float32]:
    """The values as a table, for callers that change them."""
    if isinstance(values.values, SparseValues):
        raise BadInput("expected dense values, got sparse ones")
    return values.values


Level = TypeVar("Level")
Weighted = Sequence[tuple[float, ContextValues]]
"""The nodes of a level: how likely a request discloses each, and what ads are worth below it."""


@dataclass(frozen=True, eq=False)
class LevelSelection(Generic[Level]):
    """A level, what a request earns when everybody discloses at it, and the ads for each of its nodes."""

    level: Level
    revenue: float
    selections: tuple[AdSelection, ...]


def coarsest_level(
    levels: Sequence[Level],
    nodes: Mapping[Level, Weighted] | Callable[[Level], Weighted],
    k: int,
    revenue_at_least: float,
) -> LevelSelection[Level]:
    """The first of the levels, the coarsest first, at which k ads per request earn `revenue_at_least`.

    `Hierarchy.levels()` has the finest first: give it reversed. Where levels are tuples of whole numbers, as
    those of a hierarchy are, one that comes before a coarser one is refused; of other levels the order is taken
    as it is. Refused as well, by naming the best that was found, where no level does.
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
        f"expected revenue_at_least that some level reaches with {k} ads, at most {best:.9g} micros per "
        f"request, got {wanted:.9g}"
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


def _disclosing(level: Level, nodes: Weighted, k: int) -> LevelSelection[Level]:
    name = f"level {level}: the probability of a node"
    chances = [float(expect.probability(name, chance, zero=True, one=True)) for chance, _ in nodes]
    if math.fsum(chances) > 1 + ROUNDING:
        total = math.fsum(chances)
        raise BadInput(f"level {level}: expected probabilities that add up to at most 1, got {total:.9g}")
    selections = tuple(select_ads(values, k, certify=False) for _, values in nodes)
    earned = (chance * each.revenue for chance, each in zip(chances, selections, strict=True))
    return LevelSelection(level, math.fsum(earned), selections)


def candidates_for_load(
    free_bytes_per_second: Number, requests_per_second: Number, bytes_per_ad: Number, most: int
) -> int:
    """How many ads a request may have so that all requests fit what the network has free; at most `most`.

    Refused where not even one ad per request fits. Without requests there is nothing to share, and `most` may
    go.
    """
    free = expect.at_least_zero("free_bytes_per_second", free_bytes_per_second)
    requests = expect.at_least_zero("requests_per_second", requests_per_second)
    size = expect.positive("bytes_per_ad", bytes_per_ad)
    most = expect.whole("most", most, at_least=1)
    needed: Fraction = requests * size  # bytes per second for one ad per request
    if not needed:
        return most
    fits = free // needed
    if fits < 1:
        raise BadInput(
            f"expected room for one ad per request, {float(needed):.9g} bytes per second, got {float(free):.9g}"
        )
    return min(int(fits), most)


class IncrementalSelection:
    """The values of a disclosed node, kept as those of some ads change.

    For each ad it keeps what the ad earns alone, which is all that greedy choice begins with: a choice after
    changes is the one that a beginning from nothing would make, without reading every value again.
    """

    def __init__(self, values: ContextValues) -> None:
        expect.kind("values", values, ContextValues)
        self._values = dense_values(values).copy()  # (room for ads, contexts)
        self._bounds = values.first_gains.copy()
        self._ads = values.ads.copy()
        self._weight = values.weight.copy()
        self._row = dict(values.row)
        self._size = len(values.ads)  # rows in use

    def __repr__(self) -> str:
        return brief(self, ads=len(self.ads), contexts=len(self._weight))

    @property
    def ads(self) -> Integers:
        """The ads there are, in the order that breaks ties."""
        return self._ads[: self._size].copy()

    def values(self) -> ContextValues:
        """What is held now, as a copy."""
        return ContextValues(self._weight.copy(), self._values[: self._size].copy(), self.ads)

    def update(self, ads: Integers, values: NDArray[np.float32]) -> None:
        """Replace what these ads are worth, (ads, contexts), or add them where they are new."""
        expect_numpy(ads=ads, values=values)
        expect_array("values", values, np.float32, (ANY, len(self._weight)))
        expect_ads(ads, len(values))
        gains = gains_alone(values, self._weight, ads)  # refuses before anything changes
        added = [int(ad) for ad in ads if int(ad) not in self._row]
        self._make_room(len(added))
        for ad in added:
            self._row[ad] = self._size
            self._ads[self._size] = ad
            self._size += 1
        rows = np.fromiter((self._row[int(ad)] for ad in ads), np.int64, len(ads))
        self._values[rows] = values
        self._bounds[rows] = gains

    def select(self, k: int, price_per_ad: float = 0.0, *, certify: bool = True) -> AdSelection:
        """As `select_ads` of what is held now."""
        k = expect.whole("k", k, at_least=1)
        price = float(expect.at_least_zero("price_per_ad", price_per_ad))
        table, bounds = self._values[: self._size], self._bounds[: self._size]
        picked = lazy_greedy(table, self._weight, k, price, bounds, certify=certify)
        return selection_of(picked, self._ads, price)

    def _make_room(self, more: int) -> None:
        """Twice the room when there is none, so that adding ads one by one stays linear."""
        if self._size + more <= len(self._values):
            return
        room = max(2 * len(self._values), self._size + more)
        for name in ("_values", "_bounds", "_ads"):
            old = getattr(self, name)
            new = np.zeros((room, *old.shape[1:]), old.dtype)
            new[: self._size] = old[: self._size]
            setattr(self, name, new)
