"""Candidates that follow their statistics: change some ads or contexts, and choose again from what is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.deliver.candidates.payments import expect_ads, expect_numpy
from tacit.deliver.candidates.selection import Selection, dense_part, selection_of
from tacit.deliver.candidates.values import ContextValues, expect_weight, gains_alone
from tacit.errors import BadInput
from tacit.kernels.checks import ANY, expect_array, expect_below
from tacit.kernels.greedy import first_gains, lazy_greedy

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FEW = 0.25
"""Up to this share of contexts, a change is added to what is known; beyond it all values are read again."""

SLACK = 1e-12
"""A sum that was changed by parts is off by less than this share of all that ever went into it."""


class Candidates:
    """The values of a disclosed node, kept as they change.

    For each ad it keeps a bound on what the ad earns alone. Greedy choice needs no more than bounds to begin
    with, so a choice after changes is the one that a beginning from nothing would make.
    """

    def __init__(self, values: ContextValues) -> None:
        self._values = dense_part(values).copy()  # (room for ads, contexts)
        self._bounds = values.first_gains.copy()
        self._ads = values.ads.copy()
        self._weight = values.weight.copy()
        self._row = dict(values.row)
        self._size = len(values.ads)  # rows in use, of which some may be of ads that left

    @property
    def ads(self) -> Integers:
        """The ads there are, in the order that breaks ties."""
        return self._ads[self._rows()]

    def values(self) -> ContextValues:
        """What is held now, as a copy."""
        return ContextValues(self._weight.copy(), self._values[self._rows()], self.ads)

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
        rows = self._rows_of(ads)
        self._values[rows] = values
        self._bounds[rows] = gains

    def remove(self, ads: Integers) -> None:
        """Forget these ads."""
        expect_ads(ads, len(ads))
        rows = self._rows_of(ads)
        self._values[rows] = 0.0  # worth nothing, an ad is never chosen
        self._bounds[rows] = 0.0
        for ad in ads:
            del self._row[int(ad)]
        if 2 * len(self._row) < self._size:
            self._compact()

    def update_contexts(
        self, contexts: Integers, values: NDArray[np.float32] | None = None, weight: Floats | None = None
    ) -> None:
        """Replace what all ads, in the order of `ads`, are worth in some contexts, or how likely these are."""
        expect_numpy(contexts=contexts)
        expect_array("contexts", contexts, np.int64, (ANY,))
        expect_below("contexts", contexts, len(self._weight))
        if len(np.unique(contexts)) != len(contexts):
            raise BadInput("expected different contexts, got one twice")
        rows = self._rows()
        before, weight_before = self._values[np.ix_(rows, contexts)], self._weight[contexts]
        after = before if values is None else values
        expect_numpy(values=after)
        expect_array("values", after, np.float32, before.shape)
        weight_after = weight_before if weight is None else weight
        expect_numpy(weight=weight_after)
        expect_array("weight", weight_after, np.float64, contexts.shape)
        whole = self._weight.copy()
        whole[contexts] = weight_after
        expect_weight(whole, len(whole))
        gained = gains_alone(np.ascontiguousarray(after), weight_after, self._ads[rows])
        self._values[np.ix_(rows, contexts)] = after
        self._weight = whole
        if len(contexts) > FEW * len(whole):
            self._bounds[: self._size] = first_gains(self._values[: self._size], whole)
            return
        had = self._bounds[rows] + gained
        lost = before.astype(np.float64) @ weight_before
        self._bounds[rows] = had - lost * (1 - SLACK) + SLACK * had

    def select(self, k: int, price_per_ad: float = 0.0, *, certify: bool = True) -> Selection:
        """As `selection.select` of what is held now."""
        k = expect.whole("k", k, at_least=1)
        price = float(expect.at_least_zero("price_per_ad", price_per_ad))
        table, bounds = self._values[: self._size], self._bounds[: self._size]
        picked = lazy_greedy(table, self._weight, k, price, bounds, certify=certify)
        return selection_of(picked, self._ads, price)

    def _rows(self) -> Integers:
        return np.sort(np.fromiter(self._row.values(), np.int64, len(self._row)))

    def _rows_of(self, ads: Integers) -> Integers:
        missing = [int(ad) for ad in ads if int(ad) not in self._row]
        if missing:
            raise BadInput(f"expected ads that are there, got ad {missing[0]}")
        return np.fromiter((self._row[int(ad)] for ad in ads), np.int64, len(ads))

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

    def _compact(self) -> None:
        rows = self._rows()
        self._values, self._bounds, self._ads = self._values[rows], self._bounds[rows], self._ads[rows]
        self._size = len(rows)
        self._row = {int(ad): place for place, ad in enumerate(self._ads)}
