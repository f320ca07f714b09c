"""Bids and payments: what ads pay for a click, everywhere or by advertisers' bids on contexts.

Whole micros. The most specific bid above a context holds there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Integers
from tacit.errors import BadInput
from tacit.kernels.auctions import MOST_MICROS
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

    @classmethod
    def everywhere(cls, micros: Sequence[int] | NDArray[Any], ads: Integers | None = None) -> Payments:
        """One payment per ad, whatever the context."""
        whole = np.asarray(micros)
        if whole.dtype.kind in "iu":
            whole = whole.astype(np.int64)
        return cls(whole, np.arange(len(whole), dtype=np.int64) if ads is None else ads)

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
