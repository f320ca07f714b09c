"""Bids, payments and values of ads: what ads pay for a click, and what they are worth below a disclosed node.

Payments are whole micros, everywhere or by advertisers' bids on contexts: the most specific bid above a context
holds there. Values are expected micros per impression, payment times click rate.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.errors import BadInput
from tacit.kernels.auctions import MOST_MICROS
from tacit.kernels.checks import ANY, expect_array
from tacit.kernels.greedy import SparseValues, first_gains
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser


@dataclass(frozen=True)
class Bid:
    """An advertiser's bid for a click on an ad wherever the context lies below the node."""

    ad: int
    node: Node
    micros: int


@dataclass(frozen=True, eq=False)
class Payments:
    """Micros per click: (ads,) everywhere, or (ads, contexts). `ads` are the numbers that ads go by."""

    micros: Integers
    ads: Integers

    def __post_init__(self) -> None:
        expect_numpy(payments=self.micros)
        if self.micros.dtype != np.int64 or self.micros.ndim not in (1, 2):
            raise BadInput(
                "expected payments in whole micros, int64 of (ads,) or (ads, contexts), "
                f"got {self.micros.dtype} of shape {self.micros.shape}"
            )
        expect_ads(self.ads, len(self.micros))
        outside = (self.micros < 0) | (self.micros > MOST_MICROS)
        if outside.any():
            at = np.argwhere(outside)[0]
            where = f" in context {at[1]}" if len(at) == 2 else ""
            got = int(self.micros[tuple(at)])
            raise BadInput(f"ad {self.ads[at[0]]}{where}: expected a payment in 0..2^53 micros, got {got}")

    def rows(self, first: int, end: int) -> Integers:
        """(ads, contexts or 1) of some of the ads, to be multiplied by rates."""
        part = self.micros[first:end]
        return part[:, None] if part.ndim == 1 else part


def expect_ads(ads: Integers, count: int) -> None:
    """Different whole numbers, one per ad."""
    expect_numpy(ads=ads)
    if ads.dtype != np.int64 or ads.shape != (count,):
        raise BadInput(f"expected ads as int64 of {count}, got {ads.dtype} of shape {ads.shape}")
    ordered = np.sort(ads)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise BadInput(f"expected different ads, got ad {twice[0]} twice")


def expect_numpy(**arrays: Any) -> None:
    """Arrays, not lists: checks of their kind and shape take that for granted."""
    for name, given in arrays.items():
        if not isinstance(given, np.ndarray):
            raise BadInput(f"expected {name} as a NumPy array, got {type(given).__name__}")


def expect_bids(bids: Iterable[Bid], ads: Container[int], hierarchy: Hierarchy) -> None:
    """Bids for some of these ads, on nodes of the hierarchy, at most one per ad and node."""
    levels = set(hierarchy.levels())
    placed: set[tuple[int, Node]] = set()
    for bid in bids:
        _expect_bid(bid, ads, levels)
        if (bid.ad, bid.node) in placed:
            raise BadInput(f"ad {bid.ad} on {bid.node}: expected one bid, got two")
        placed.add((bid.ad, bid.node))


def _expect_bid(bid: Bid, ads: Container[int], levels: set[Levels]) -> None:
    if not isinstance(bid, Bid):
        raise BadInput(f"expected bids as Bid(ad, node, micros), got {type(bid).__name__}")
    if bid.ad not in ads:
        raise BadInput(f"expected bids for ads among those given, got one for ad {bid.ad}")
    if not isinstance(bid.node, Node):
        raise BadInput(f"ad {bid.ad}: expected a bid on a Node of the hierarchy, got {type(bid.node).__name__}")
    if bid.node.levels not in levels:
        raise BadInput(f"ad {bid.ad} on {bid.node}: expected levels of the hierarchy, got {bid.node.levels}")
    whole = hasattr(bid.micros, "__index__") and not isinstance(bid.micros, bool)
    if not whole or not 0 <= bid.micros <= MOST_MICROS:
        raise BadInput(f"ad {bid.ad} on {bid.node}: expected whole micros in 0..2^53, got {bid.micros!r}")


def most_specific_bid(found: list[tuple[Node, int]]) -> int:
    """Of nodes above one context, so that their levels alone say which lies below which."""
    return min(
        micros
        for node, micros in found
        if not any(other != node and is_coarser(node.levels, other.levels) for other, _ in found)
    )


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
