"""Price rules of an auction: public, and fixed before any private score is read.

First or second price, per click or per impression; reserve, score cutoff, and the worth of an empty slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, assert_never, final, get_args

import numpy as np

from tacit import expect
from tacit.arrays import Integers
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.kernels.auctions import EMPTY, MOST_MICROS, RESERVE, Pricing
from tacit.schema.impressions import NO_BIDDER, OWN_BID, RESERVE_PRICE


class BillingEvent(Choice):
    """What is paid for: what the bid is for ("click", or conversion), or the impression at its public rate."""

    CLICK = "click"
    IMPRESSION = "impression"


@dataclass(frozen=True)
class _Price:
    """What is charged, and the words of a bill: "WORD price per EVENT".

    `tacit.schema.impressions.price_rule_words` puts what a line is due on behind the last " per ".
    """

    word: ClassVar[str]
    charged: BillingEvent = BillingEvent.CLICK

    def __post_init__(self) -> None:
        object.__setattr__(self, "charged", BillingEvent(self.charged))

    def __str__(self) -> str:
        return f"{self.word} price per {self.charged}"


@final
@dataclass(frozen=True)
class SecondPrice(_Price):
    """The next public score, per impression; per click, that over the candidate's own public rate.

    By the server's ranking, so the price tells nothing that is private, and is never above the candidate's own
    public score or bid. Under a randomised choice it is not truthful: a bid moves the price of others only,
    but also who is on the list.

    Source: Laro et al. 2023, appendix A.3.
    """

    word = "second"


@final
@dataclass(frozen=True)
class FirstPrice(_Price):
    """The candidate's own bid per click, or its public score per impression: known from the winner alone."""

    word = "first"


PriceRule = SecondPrice | FirstPrice

PRICES: dict[str, type[PriceRule]] = {rule.word: rule for rule in get_args(PriceRule)}
"""Every rule by its word, which a configuration and a bill have for it."""


@dataclass(frozen=True)
class Rules:
    """How a block of auctions is offered.

    price                how a candidate is priced by its public rank
    reserve_micros       the least public score, per impression; below it a candidate takes no part
    cutoff               gamma: of the others, those with a score >= best (1 - gamma) are sent to the device
    empty_worth_micros   what showing nothing is worth; given, abstaining is a candidate, at price 0, that the
                         cutoff never drops. Its worth prices the candidate just above it.
    """

    price: PriceRule = SecondPrice()
    reserve_micros: int = 0
    cutoff: float = 1.0
    empty_worth_micros: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.price, PriceRule):
            raise BadInput(f"expected a price rule of public data alone, got {type(self.price).__name__}")
        if expect.whole("reserve_micros", self.reserve_micros, at_least=0) > MOST_MICROS:
            raise BadInput(f"expected reserve_micros <= 2^53, got {self.reserve_micros}")
        expect.probability("cutoff", self.cutoff, zero=True, one=True)
        if self.empty_worth_micros is not None:
            expect.at_least_zero("empty_worth_micros", self.empty_worth_micros)

    @property
    def pricing(self) -> Pricing:
        """The same for the kernels. A price rule that they do not know is refused, and mypy says so before."""
        match self.price:
            case FirstPrice():
                first_price = True
            case SecondPrice():
                first_price = False
            case unknown:
                assert_never(unknown)
        return Pricing(
            first_price=first_price,
            per_event=self.price.charged is BillingEvent.CLICK,
            reserve=float(self.reserve_micros),
            keep=1.0 - float(self.cutoff),
            empty=None if self.empty_worth_micros is None else float(self.empty_worth_micros),
        )


def setter_codes(rows: Integers, setters: Integers, campaign: Integers) -> Integers:
    """Who made each price, in the words of the bill: what the kernels call a row is a campaign there.

    rows and setters are of the kernels, one per candidate; campaign has the number of every row.
    """
    named = campaign.take(setters, mode="clip")
    named[setters == rows] = OWN_BID
    others = np.flatnonzero(setters < 0)
    codes = setters[others]
    if not np.isin(codes, (EMPTY, RESERVE)).all():
        raise BadInput("expected prices set by a row, the reserve or an empty slot, got another")
    named[others] = np.where(codes == EMPTY, NO_BIDDER, RESERVE_PRICE)
    return named
