"""Which ads to send: k that earn most together, or as few as earn enough."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.deliver.candidates.values import ContextValues
from tacit.errors import BadInput
from tacit.kernels.greedy import Csr, Picked, lazy_greedy

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

GUARANTEE = 1 - 1 / math.e
"""Of the best k ads' revenue, what greedy choice reaches at least (Nemhauser, Wolsey, Fisher 1978)."""

ROUND_UP = 1e-12
"""Sums of doubles in another order differ by less than this share."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Ads in the order of choice, what each adds, and the expected revenue of all, in micros a request.

    `bound` is at least revenue - price_per_ad x size of every set of at most k ads: it is computed from this
    instance, and mostly far nearer than 1 - 1/e. None where it was not asked for.
    """

    ads: Integers
    gains: Floats
    revenue: float
    price_per_ad: float
    bound: float | None

    @property
    def objective(self) -> float:
        """Revenue less the price of sending."""
        return self.revenue - self.price_per_ad * len(self.ads)


def expected_revenue(values: ContextValues, chosen: Iterable[int]) -> float:
    """What a request earns in expectation if the device shows the best of these ads for its exact context."""
    best = np.zeros(len(values.weight))
    for ad in chosen:
        best = np.maximum(best, values.of_ad(int(ad)))
    return float(values.weight @ best)


def select(values: ContextValues, k: int, price_per_ad: float = 0.0, *, certify: bool = True) -> Selection:
    """At most k ads by greedy choice, as long as each adds more than `price_per_ad` micros.

    Without a price the revenue is at least 1 - 1/e of the best k ads' (Theorem 3.5 of the paper). With one, no
    longer list of the same greedy order is better: gains only fall (section 3.3.2). `certify` adds a bound on
    what any k ads could reach, for a third more time, or half where all values are alike.
    """
    k = expect.whole("k", k, at_least=1)
    price = float(expect.at_least_zero("price_per_ad", price_per_ad))
    known = values.first_gains
    picked = lazy_greedy(values.values, values.weight, k, price, known, certify=certify)
    return selection_of(picked, values.ads, price)


def selection_of(picked: Picked, ads: Integers, price_per_ad: float) -> Selection:
    bound = None if picked.bound is None else picked.bound * (1 + ROUND_UP)
    return Selection(ads[picked.ads], picked.gains, math.fsum(picked.gains), price_per_ad, bound)


def smallest_for(values: ContextValues, revenue_at_least: float) -> Selection:
    """A short list that earns so much: ads by greedy choice until it is reached.

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
            f"{found.revenue:.9g} micros a request, got {wanted:.9g}"
        )
    return found


def dense_part(values: ContextValues) -> NDArray[np.float32]:
    """The values as a table, for those who change them."""
    if isinstance(values.values, Csr):
        raise BadInput("expected dense values, got sparse ones")
    return values.values
