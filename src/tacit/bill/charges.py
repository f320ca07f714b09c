"""Charges: one line per impression, in whole micros with its reason, adding up exactly by campaign.

Prices arrive whole: the auction rounds every price down, so that no rounding ever charges more than was bid.
Nothing is rounded here, split or averaged: a total is the sum of its lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Integers
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.kernels.auctions import add_by_code
from tacit.schema.impressions import DUE_ON, Impressions, price_reason_words, price_rule_words

LARGEST_TABLE = 2**24  # campaigns numbered up to here are summed without being sorted


@dataclass(frozen=True)
class ChargeReason:
    """Why a price is what it is, in public terms."""

    rule: str
    rank: int
    setter: int

    def __str__(self) -> str:
        return price_reason_words(self.rule, self.rank + 1, self.setter)


@dataclass(frozen=True)
class Charge:
    """One line of an invoice; `auction` is the public id of the auction, where impressions have one."""

    campaign: int
    amount_micros: int
    reason: ChargeReason
    due_on: str
    auction: Any = None


@dataclass(frozen=True)
class Charges:
    """All lines of some impressions, and what each campaign owes; campaigns rise, each once."""

    impressions: Impressions
    campaigns: Integers
    totals_micros: Integers

    __repr__ = brief_repr

    @property
    def by_campaign(self) -> dict[int, int]:
        return dict(zip(self.campaigns.tolist(), self.totals_micros.tolist(), strict=True))

    @property
    def total_micros(self) -> int:
        return sum(self.totals_micros.tolist())

    def lines(self) -> Iterator[Charge]:
        shown = self.impressions
        auctions = [None] * len(shown) if shown.auction is None else shown.auction.tolist()
        columns = (shown.campaign, shown.price_micros, shown.rank, shown.setter, shown.due_on)
        rows = zip(*(column.tolist() for column in columns), auctions, strict=True)
        for campaign, price, rank, setter, due_on, auction in rows:
            due = DUE_ON[due_on]
            yield Charge(
                campaign, price, ChargeReason(price_rule_words(shown.rule, due), rank, setter), due, auction
            )


def charge(impressions: Impressions, happened: NDArray[np.bool_] | None = None) -> Charges:
    """Charge every impression its price, or refuse all of them where one price cannot be meant.

    What a price falls due on is a column of the impressions: the impression itself, a click, or a conversion.
    `happened` says of each impression whether it led to that click or conversion: only then is it charged. What
    falls due on the impression is charged whatever `happened` says. Without `happened` all are, so that the sum
    is the most that can fall due.
    """
    if not isinstance(impressions, Impressions):
        raise BadInput(f"expected impressions at public prices, got {type(impressions).__name__}")
    if happened is not None:
        impressions = _due_impressions(impressions, happened)
    _expect_prices(impressions)
    campaign, prices = impressions.campaign, impressions.price_micros
    if not len(impressions):
        return Charges(impressions, campaign, prices)
    if campaign.min() < 0:
        raise BadInput(f"expected campaigns >= 0, got {int(campaign.min())}")
    largest = int(campaign.max()) + 1
    if largest <= LARGEST_TABLE:
        charged = np.zeros(largest, np.bool_)
        charged[campaign] = True
        numbers = np.flatnonzero(charged)
        return Charges(impressions, numbers, add_by_code(campaign, prices, largest)[numbers])
    numbers, codes = np.unique(campaign, return_inverse=True)
    return Charges(impressions, numbers, add_by_code(codes, prices, len(numbers)))


def _due_impressions(impressions: Impressions, happened: NDArray[np.bool_]) -> Impressions:
    if happened.dtype != np.bool_ or happened.shape != (len(impressions),):
        raise BadInput(
            f"expected happened as a flag for each of {len(impressions)} impressions, got {happened.dtype} of "
            f"shape {happened.shape}"
        )
    return impressions.those(happened | (impressions.due_on == DUE_ON.index("impression")))


def _expect_prices(impressions: Impressions) -> None:
    prices, most = impressions.price_micros, impressions.most_micros
    wrong = (prices < 0) | (prices > most)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BadInput(
            f"impression {at} of campaign {int(impressions.campaign[at])}: expected a price in "
            f"0..{int(most[at])} micros, got {int(prices[at])}"
        )
