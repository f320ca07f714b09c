"""A device's own click rates by a model that runs there: private, whole, until a private choice is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.arrays import Floats
from tacit.deliver.device.choice import expect_answer
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.protocol.menu import NOTHING, Menu

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class ModelRates:
    """Rates by a model that scores one row at a time, such as `score_row` of one that tacit trained.

        rates = ModelRates(tacit.load("model").score_row, lambda ad, context: {**profile, "ad": ad})

    score  the chance of a click, of a row by column
    row    what is known of this person and moment, for one ad; none of it leaves the device
    """

    score: Callable[[Row], float] = field(repr=False)
    row: Callable[[int, DeviceContext], Row] = field(repr=False)

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:
        expect_answer(menu, context)
        rates = [0.0 if ad == NOTHING else float(self.score(self.row(ad, context))) for ad in menu.ads]
        known: Floats = np.clip(np.array(rates, np.float64), 0.0, 1.0)
        return known
