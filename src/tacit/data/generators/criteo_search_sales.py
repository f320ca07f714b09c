"""What a sale brings and when, in a made-up Criteo Sponsored Search log.

Measured on a public sample (2,822 rows of one partner, 100 sales): prices of sold products p50 66.9 and p90
99 euros, amounts p50 63.6 and p90 91.8, delays p25 280 s, p50 877 s, p75 4.5 days, p90 11.4 days, never above
30 days, unknown for 1% of sales. A click without a sale has price 0, so that the price column tells the
label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.data.generators.tokens import mixed

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

MEDIAN_PRICE, SPREAD_BELOW, SPREAD_ABOVE = 66.9, 1.0, 0.31
OF_THE_PRODUCT = (
    0.9  # correlation of a price's normal with its product's own; the rest differs from click to click
)
WITHOUT_TAX = 0.845
MORE_IN_THE_BASKET, BASKET_SPREAD = 0.25, 0.45
AT_ONCE, AT_ONCE_MEDIAN_S, AT_ONCE_SPREAD = 0.55, 303.0, 0.75
LATER_MEAN_S, LATEST_S = 650_000.0, 30 * 86_400
UNKNOWN_DELAY = 0.01
NONE = -1


@dataclass(frozen=True)
class Sales:
    """The three columns that only a sale fills."""

    amount_euro: Reals
    delay_s: Integers
    price_euro: Reals


def sales(sold: NDArray[np.bool_], products: Integers, draw: np.random.Generator) -> Sales:
    """Outcomes for every row, then emptied where nothing was sold."""
    rows = len(sold)
    of_product = ndtri((mixed(products, salt=0) + 0.5) / 2**32)
    normal = OF_THE_PRODUCT * of_product + np.sqrt(1 - OF_THE_PRODUCT**2) * draw.standard_normal(rows)
    price = np.round(MEDIAN_PRICE * np.exp(np.where(normal < 0, SPREAD_BELOW, SPREAD_ABOVE) * normal), 2)
    more = draw.random(rows) < MORE_IN_THE_BASKET
    basket = np.where(more, np.exp(BASKET_SPREAD * np.abs(draw.standard_normal(rows))), 1.0)
    return Sales(
        amount_euro=np.where(sold, price * WITHOUT_TAX * basket, NONE),
        delay_s=np.where(sold, _delays(draw, rows), NONE),
        price_euro=np.where(sold, np.maximum(price, 0.01), 0.0),
    )


def _delays(draw: np.random.Generator, rows: int) -> Integers:
    """In the same visit (log-normal), or days later (exponential, given that it is within 30 days)."""
    at_once = AT_ONCE_MEDIAN_S * np.exp(AT_ONCE_SPREAD * draw.standard_normal(rows))
    known_share = -np.expm1(-LATEST_S / LATER_MEAN_S)
    later = -LATER_MEAN_S * np.log1p(-draw.random(rows) * known_share)
    delays = np.where(draw.random(rows) < AT_ONCE, np.minimum(at_once, LATEST_S), later).astype(np.int64)
    unknown = draw.random(rows) < UNKNOWN_DELAY
    return np.where(unknown, NONE, delays)
