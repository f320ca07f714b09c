"""Impressions on their way from delivery to the bill: what was shown, its public price, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Integers
from tacit.display import brief_repr
from tacit.errors import BadInput

NO_BIDDER, RESERVE_PRICE, OWN_BID = -1, -2, -3
"""Price setters that are no other campaign: an empty slot's worth, the reserve, and the bidder itself (first
price). Others are campaigns, from 0. These are codes of the bill: delivery translates its own."""

DUE_ON = ("impression", "click", "conversion")
"""What a price falls due on, by its code."""

WHOLES = ("campaign", "price_micros", "most_micros", "rank", "setter")


@dataclass(frozen=True)
class Impressions:
    """One row per impression that is charged; every column is public, and none says what else might have won.

    campaign       who pays
    price_micros   whole micros
    most_micros    what the price may not pass: the bid, or the public score of the impression, rounded down
    rank           the public rank, the best 0
    setter         the campaign whose public score made the price, or RESERVE_PRICE, NO_BIDDER, OWN_BID
    rule           the price rule, in words
    due_on         what the price falls due on, a code of DUE_ON each; left out, what the rule's last word says
    auction        the public id of the auction that each was shown for, where there is one
    """

    campaign: Integers
    price_micros: Integers
    most_micros: Integers
    rank: Integers
    setter: Integers
    rule: str
    due_on: NDArray[np.uint8] = None  # type: ignore[assignment]  # filled in below
    auction: NDArray[Any] | None = None

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        expect.kind("campaign", self.campaign, np.ndarray)
        shape = (len(self.campaign),)
        for name in WHOLES:
            column = getattr(self, name)
            if column.dtype != np.int64 or column.shape != shape:
                raise BadInput(
                    f"expected {name} as {shape[0]} whole numbers of 64 bits, got {column.dtype} of "
                    f"shape {column.shape}"
                )
        if self.due_on is None:
            object.__setattr__(self, "due_on", np.full(shape, _last_word(self.rule), np.uint8))
        if self.due_on.dtype != np.uint8 or self.due_on.shape != shape or (self.due_on >= len(DUE_ON)).any():
            raise BadInput(f"expected due_on as {shape[0]} codes of {', '.join(DUE_ON)}, got others")
        if self.auction is not None and self.auction.shape != shape:
            raise BadInput(f"expected an auction for each of {shape[0]} impressions, got {self.auction.shape}")

    def __len__(self) -> int:
        return len(self.campaign)

    def those(self, kept: NDArray[np.bool_]) -> Impressions:
        """Some of them."""
        columns = {name: getattr(self, name)[kept] for name in (*WHOLES, "due_on")}
        return replace(self, **columns, auction=None if self.auction is None else self.auction[kept])


def price_setter_words(setter: int) -> str:
    """Who made a price, in words."""
    known = {RESERVE_PRICE: "reserve", NO_BIDDER: "worth of an empty slot", OWN_BID: "own bid"}
    return known.get(setter, f"campaign {setter}")


def price_reason_words(rule: str, rank: int, setter: int) -> str:
    """Why a price is what it is, in public terms: the rule, the public rank from 1, and who set it."""
    by = price_setter_words(setter)
    the = "" if by.startswith("campaign") else "its " if by == "own bid" else "the "
    return f"{rule}, public rank {rank}, price set by {the}{by}"


def price_rule_words(rule: str, due_on: str) -> str:
    """The rule in words for one line: per what that line is due on, which is the bid's own where clicks are
    charged."""
    kind, per, _ = rule.rpartition(" per ")
    return f"{kind}{per}{due_on}" if per else rule


def _last_word(rule: str) -> int:
    word = rule.rsplit(maxsplit=1)[-1] if rule else ""
    if word not in DUE_ON:
        raise BadInput(f"expected due_on, or a rule that ends in {', '.join(DUE_ON)}, got {rule!r}")
    return DUE_ON.index(word)
