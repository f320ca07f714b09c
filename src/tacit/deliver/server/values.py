"""Values of ads in the contexts below a disclosed node: expected micros per impression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.server.bids import Payments, expect_ads, expect_numpy
from tacit.errors import BadInput
from tacit.kernels.checks import ANY, expect_array
from tacit.kernels.greedy import SparseValues, first_gains

Values = NDArray[np.float32] | SparseValues

ROUNDING = 1e-9
"""By how much probabilities may add up to more than 1: what sums of many are off by."""

BLOCK = 1024  # ads at a time, so that no second table of all values is ever made


@dataclass(frozen=True, eq=False)
class ContextValues:
    """Ads by contexts: payment x click rate, and 0 where the ad may not be shown.

    weight  (contexts,) the chance of each context given the disclosed node. They may add up to less than 1: in
            the rest nothing is earned, so what is said of revenue holds at least. More than 1 is refused.
    values  (ads, contexts) expected micros, float32 or sparse
    ads     (ads,) the number of each ad
    """

    weight: Floats
    values: Values
    ads: Integers

    def __post_init__(self) -> None:
        expect_numpy(probability=self.weight)
        if not isinstance(self.values, SparseValues):
            expect_numpy(values=self.values)
            expect_array("values", self.values, np.float32, (ANY, ANY))
        count, contexts = self.values.shape
        if not contexts:
            raise BadInput("expected at least one context, got none")
        expect_weight(self.weight, contexts)
        expect_ads(self.ads, count)
        _ = self.first_gains  # reads all values once, and refuses those that cannot be meant

    @classmethod
    def of(
        cls,
        rates: Floats,
        probability: Floats,
        payments: Payments,
        ctr_floor: float = 0.0,
        contexts: Sequence[object] | None = None,
    ) -> ContextValues:
        """From click rates (contexts, ads). An ad is worth nothing where its rate is below `ctr_floor`.

        `contexts` are names for messages. A context whose rates are all NaN has no statistics, and is refused.
        """
        expect_numpy(rates=rates, probability=probability)
        count, ads = len(probability), len(payments.ads)
        expect_array("rates", rates, np.float64, (count, ads))
        if payments.micros.ndim == 2 and payments.micros.shape[1] != count:
            raise BadInput(f"expected payments for {count} contexts, got {payments.micros.shape[1]}")
        floor = float(expect.probability("ctr_floor", ctr_floor, zero=True, one=True))
        values = np.empty((ads, count), np.float32)
        for first in range(0, ads, BLOCK):
            end = min(first + BLOCK, ads)
            part = rates[:, first:end]
            if not ((part >= 0) & (part <= 1)).all():
                raise _bad_rate(rates, payments.ads, contexts)
            shown = np.where(part >= floor, part, 0.0).T  # (ads, contexts)
            values[first:end] = payments.rows(first, end) * shown
        return cls(np.ascontiguousarray(probability), values, payments.ads)

    @cached_property
    def first_gains(self) -> Floats:
        """What each ad earns alone."""
        return gains_alone(self.values, self.weight, self.ads)

    @cached_property
    def row(self) -> dict[int, int]:
        """Where each ad is."""
        return {int(ad): place for place, ad in enumerate(self.ads)}

    def of_ad(self, ad: int) -> NDArray[np.float32] | Floats:
        """(contexts,) what one ad is worth."""
        if ad not in self.row:
            raise BadInput(f"expected ads among those given, got ad {ad}")
        at = self.row[ad]
        if not isinstance(self.values, SparseValues):
            own_row: NDArray[np.float32] = self.values[at]
            return own_row
        own = slice(self.values.offsets[at], self.values.offsets[at + 1])
        dense = np.zeros(self.values.contexts)
        dense[self.values.context[own]] = self.values.value[own]
        return dense


def gains_alone(values: Values, weight: Floats, ads: Integers) -> Floats:
    """What each ad earns alone; values that cannot be meant are refused by naming the ad, not its row."""
    try:
        return first_gains(values, weight)
    except BadInput:
        of_ads = values.value if isinstance(values, SparseValues) else values
        bad = np.argwhere(~(np.isfinite(of_ads) & (of_ads >= 0)))
        if not len(bad):
            raise
        at = int(bad[0, 0])
        row = (
            int(np.searchsorted(values.offsets, at, side="right")) - 1
            if isinstance(values, SparseValues)
            else at
        )
        got = of_ads[tuple(bad[0])]
        raise BadInput(f"ad {ads[row]}: expected values that are finite and >= 0, got {got}") from None


def expect_weight(weight: Floats, contexts: int) -> None:
    """Probabilities that add up to 1, or to less where something is left out."""
    expect_array("probability", weight, np.float64, (contexts,))
    if not ((weight >= 0) & (weight <= 1 + ROUNDING)).all():
        raise BadInput("expected probabilities of contexts in 0..1, got others")
    total = float(weight.sum())
    if total > 1 + ROUNDING:
        raise BadInput(f"expected probabilities of contexts that add up to at most 1, got {total:.9g}")


def _bad_rate(rates: Floats, ads: Integers, contexts: Sequence[object] | None) -> BadInput:
    """Names the first context that has one; NaN throughout is how a lack of statistics looks."""
    context, ad = np.argwhere(~((rates >= 0) & (rates <= 1)))[0]
    name = f"context {context if contexts is None else contexts[context]}"
    if np.isnan(rates[context]).all():
        return BadInput(f"{name}: expected statistics, got none")
    return BadInput(f"{name}: expected the rate of ad {ads[ad]} in 0..1, got {rates[context, ad]}")
