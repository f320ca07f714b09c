"""Scores of a menu's candidates by all that the device knows: they stay on the device.

Where the menu has a floor on the click rate, showing nothing is one more candidate. It is worth the floor
times the least bid that pays at all: no ad that reaches the floor is worth less, and an ad below the floor
always counts less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tacit.arrays import Floats
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.protocol.menu import Menu
from tacit.errors import BadInput


class DeviceRates(Protocol):
    """The device's own click rates: of a history, or of a model that runs there."""

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:
        """The rate of each candidate in the menu's order (candidates,); of nothing, any."""


@dataclass(frozen=True, eq=False)
class HistoryRates:
    """The server's rates for the exact context, then the person's own.

    The server's is that of the device's finest node that it sent a rate of the ad for. The history is private,
    and not in the text.
    """

    history: ClickHistory = field(repr=False)

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:
        expect_answer(menu, context)
        return self.history.rates(menu.ads, context, menu.rates_along(context.below))


def device_scores(menu: Menu, rates: Floats) -> Floats:
    """Micros per impression by the device's rates (..., candidates), in public order: of one request, or many.

    The best of them is what the floor asks to be shown.
    """
    if rates.shape[-1:] != (len(menu),):
        raise BadInput(f"expected a rate for each of {len(menu)} candidates, got shape {rates.shape}")
    scores, reaches = menu.scores(rates)
    if not menu.ctr_floor:
        return scores
    assert menu.nothing_micros is not None  # a menu with a floor has it
    # Never equal to nothing: ties would go by public rank, which does not know what reaches the floor here.
    worth = menu.nothing_micros
    above, below = np.nextafter(worth, np.inf), np.nextafter(worth, -np.inf)
    scores = np.where(reaches, np.maximum(scores, above), np.minimum(scores, below))
    scores[..., menu.nothing_rank] = worth
    return scores


def expect_answer(menu: Menu, context: DeviceContext) -> None:
    """Refuse ads for another node than the one asked for, even for one that the device is in.

    Both nodes are public. To refuse by whether the device is in the node would answer whatever a server asks.
    """
    if menu.node != context.disclosed:
        raise BadInput(f"expected ads for the node that was asked for, {context.disclosed}, got {menu.node}")
