"""Impressions on their way from delivery to the bill: what was shown, its public price, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput

NO_BIDDER, RESERVE_PRICE = -1, -2
"""Price setters that are no campaign: an empty slot's worth, and the reserve. Others are campaigns, from 0."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Impressions:
    """One row an impression that is charged; every column is public, and none says what else might have won.

    campaign       who pays
    price_micros   whole micros
    most_micros    what the price may not pass: the bid, or the public score of the impression, rounded down
    rank           the public rank, the best 0
    setter         the campaign whose public score made the price, RESERVE_PRICE or NO_BIDDER
    rule           the price rule, in words
    """

    campaign: Integers
    price_micros: Integers
    most_micros: Integers
    rank: Integers
    setter: Integers
    rule: str

    def __post_init__(self) -> None:
        for name in ("campaign", "price_micros", "most_micros", "rank", "setter"):
            column = getattr(self, name)
            if column.dtype != np.int64 or column.shape != (len(self.campaign),):
                raise BadInput(
                    f"expected {name} as {len(self.campaign)} whole numbers of 64 bits, got {column.dtype} of "
                    f"shape {column.shape}"
                )

    def __len__(self) -> int:
        return len(self.campaign)
