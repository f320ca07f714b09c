"""Scores of a menu's ads: public ones, and private ones by all that the device knows.

Where a floor on the click rate is asked for, showing nothing is one more candidate. It is worth the floor
times the least price that is paid at all: no ad that reaches the floor is worth less, and an ad below the
floor always counts less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.protocol.menu import Menu
from tacit.errors import BadInput

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NOTHING = -1
"""The place of showing nothing."""


@dataclass(frozen=True, eq=False)
class RankedMenu:
    """The candidates in public order, the best first: made of public data alone.

    places   of each candidate among the menu's ads, or NOTHING
    public   micros per impression, at the public rates; what falls below the floor counts at the least price
    """

    menu: Menu
    ctr_floor: float
    places: Integers
    public: Floats
    worth_of_nothing: float
    least_micros: int  # of those that pay at all

    @classmethod
    def of(cls, menu: Menu, ctr_floor: float = 0.0) -> RankedMenu:
        """With a floor of 0 something is always shown; ties stay in the menu's order."""
        floor = check_floor(ctr_floor)
        paying = menu.micros[menu.micros > 0]
        least = int(paying.min()) if len(paying) else 0
        worth = floor * least
        scores, reaches = _counted(menu.micros, menu.rates, floor, least)
        places = np.arange(len(menu), dtype=np.int64)
        if floor:
            scores, places = np.append(scores, worth), np.append(places, NOTHING)
            # At the same score an ad that reaches the floor is before nothing, and one that does not is after.
            order = np.lexsort((np.append(np.where(reaches, 0, 2), 1), -scores))
        else:
            order = np.argsort(-scores, kind="stable")
        return cls(menu, floor, places[order], scores[order], worth, least)

    @property
    def place_of_nothing(self) -> int | None:
        """Its rank, if it is a candidate."""
        return int(np.argmax(self.places == NOTHING)) if self.ctr_floor else None

    @property
    def ads(self) -> tuple[int | None, ...]:
        """The ad of each candidate; None for showing nothing."""
        return tuple(None if at == NOTHING else self.menu.ads[at] for at in self.places.tolist())

    def private(self, rates: Floats) -> Floats:
        """Scores by the device's rates (ads,), in public order; the best is what the floor asks to be shown."""
        floor, worth = self.ctr_floor, self.worth_of_nothing
        scores, reaches = _counted(self.menu.micros, rates, floor, self.least_micros)
        if not floor:
            return scores[self.places]
        # Never equal to nothing: ties would go by public rank, which does not know what reaches the floor here.
        above, below = np.nextafter(worth, np.inf), np.nextafter(worth, -np.inf)
        scores = np.where(reaches, np.maximum(scores, above), np.minimum(scores, below))
        return np.append(scores, worth)[self.places]  # NOTHING, which is -1, takes the last


@dataclass(frozen=True, eq=False)
class CandidateScores:
    """Candidates in public order, None for showing nothing, with their scores in micros per impression.

    The private ones are not in its text.
    """

    ads: tuple[int | None, ...]
    public: Floats
    private: Floats = field(repr=False)


def score_candidates(
    menu: Menu, context: DeviceContext, history: ClickHistory, ctr_floor: float = 0.0
) -> CandidateScores:
    """Public scores, and private ones, which stay on the device."""
    ranked = RankedMenu.of(menu, ctr_floor)
    return CandidateScores(ranked.ads, ranked.public, ranked.private(device_rates(menu, context, history)))


def device_rates(menu: Menu, context: DeviceContext, history: ClickHistory) -> Floats:
    """The rate of each ad in the menu's order: the server's for the exact context, then the person's own.

    The server's is that of the device's finest node that it sent a rate of the ad for.
    """
    expect_answer(menu, context)
    return history.rates(menu.ads, context, menu.rates_along(context.below))


@lru_cache(maxsize=256)  # reading a number exactly takes longer than all the rest of a choice
def check_floor(ctr_floor: float) -> float:
    """A rate below which nothing is better than an ad; 0 for no floor."""
    return float(expect.probability("ctr_floor", ctr_floor, zero=True, one=True))


def expect_answer(menu: Menu, context: DeviceContext) -> None:
    """Refuse ads for another node than the one asked for, even for one that the device is in.

    Both nodes are public. To refuse by whether the device is in the node would answer whatever a server asks.
    """
    if menu.node != context.disclosed:
        raise BadInput(f"expected ads for the node that was asked for, {context.disclosed}, got {menu.node}")


def _counted(
    micros: Integers, rates: Floats, floor: float, least_micros: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """micros x rate, below the floor at the least price, and which reach the floor and pay."""
    scores = micros * rates
    if not floor:
        return scores, np.ones(len(rates), np.bool_)
    reaches = (rates >= floor) & (micros > 0)
    return np.where(reaches, scores, np.minimum(micros, least_micros) * rates), reaches
