"""The town that storms over billing happen in: two quarters, their menus, and people whose secrets are marked.

Exact places and private rates are such that their bytes are found wherever they turn up.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from tacit.arrays import Floats
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.server.party import EpochTimes
from tacit.deliver.device.account import DeviceLimits
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.priced_menus import price_list
from tacit.deliver.protocol.prices import BillingEvent, Rules, SecondPrice
from tacit.deliver.server.candidates import price_menu
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Node, Sequence
from tacit.schema.contexts.tree import Tree

EXACT, QUARTER, ANYWHERE = (0,), (1,), (2,)
PLACES = ("Old>cafe of xq71", "Old>bakery of xq72", "New>gym of xq73", "New>pool of xq74")
TOWN = Sequence([Steps("place", Tree.of_paths(list(PLACES)))], [EXACT, QUARTER, ANYWHERE])
CAMPAIGNS = (11, 12, 13)
POOR, POOR_MICROS = 13, 100_000  # a campaign that can pay for two impressions, until it is given more
START, EPOCH_SECONDS, REPORT_SECONDS, HOLD_SECONDS = 1_800_000_000, 600, 600, 60
SKEW_SECONDS = 30  # by which devices' clocks are off


@cache
def menus_of(epoch: int) -> tuple[PricedMenu, ...]:
    """Both quarters, both lanes; in the old one showing nothing is a candidate too."""
    found = []
    for place, (quarter, worth) in enumerate((("Old", 30_000), ("New", None))):
        bids, rates = [1_000_000, 900_000, 1_100_000 + place], [0.05, 0.05, 0.04]
        rules = Rules(SecondPrice(BillingEvent.IMPRESSION), empty_worth_micros=worth)
        menu = price_menu(Node(QUARTER, (quarter,), ("place",)), CAMPAIGNS, bids, rates, rules)
        personal = price_list(menu, epoch=epoch, epsilon=1, smallest_cohort=3)
        found += [personal, personal.public_lane()]
    return tuple(found)


def times_of(epoch: int) -> EpochTimes:
    opens = START + epoch * EPOCH_SECONDS
    return EpochTimes(opens, opens + EPOCH_SECONDS, opens + EPOCH_SECONDS + REPORT_SECONDS)


def marked_rate(device: int, ad: int) -> float:
    """A private rate whose bytes are found wherever they turn up."""
    found: float = struct.unpack("<d", b"SeCr" + device.to_bytes(2, "big") + bytes([0xA0 + ad % 16, 0x3F]))[0]
    return found


@dataclass(frozen=True)
class MarkedRates:
    """A device's private rates, all of them marked."""

    device: int

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:
        del context
        rates: Floats = np.array([0.0 if ad < 0 else marked_rate(self.device, ad) for ad in menu.ads], float)
        return rates


def settings_of(number: int) -> DeviceSettings:
    """Every fifth person did not agree."""
    return DeviceSettings(
        TOWN, DisclosureLevel(QUARTER), consent=number % 5 != 4, limits=limits_of(number),
        prefetch=1 + number % 3,
    )  # fmt: skip


def limits_of(number: int) -> DeviceLimits:
    """Every third device has soon told all that it may."""
    return DeviceLimits(local=Fraction(4 if number % 3 == 2 else 30), per_choice=Fraction(1))
