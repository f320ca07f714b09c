"""Public forecasts of blocks, made once for all arms that plan by them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from tacit.deliver.auction.choices import TopOf
from tacit.deliver.auction.offers import Offers
from tacit.deliver.planning.blocks import BlockForecast, forecast_block
from tacit.deliver.planning.prior import Spread
from tacit.kernels.auctions import EMPTY


class Forecasts:
    """Forecasts at every step of a ladder, kept by all that they are made of: nothing is planned twice."""

    def __init__(self, ladder: Sequence[float]) -> None:
        self.ladder = tuple(ladder)
        self._known: dict[tuple[Spread, bytes], BlockForecast] = {}

    def of(self, offers: Offers, prior: Spread) -> BlockForecast:
        read = (offers.offsets, offers.score, offers.rows == EMPTY)
        key = prior, hashlib.sha256(b"".join(column.tobytes() for column in read)).digest()
        if key not in self._known:
            self._known[key] = forecast_block(offers, prior, self.ladder)
        return self._known[key]

    def evenly(self, offers: Offers, prior: Spread, epsilon: float) -> TopOf:
        """The same epsilon, one of the ladder, for every request."""
        return self.of(offers, prior).rule(np.full(offers.count, float(epsilon)))
