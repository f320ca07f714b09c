"""Devices beside an ad server and a proxy in one process: a small town, real keys, the same bytes.

town = AdTown.open(tmp_path)         # an epoch with menus of both lanes for both quarters
device = town.device()
device.show(("Cafe",), town.rates, town.now)
device.send_reports(town.now)
town.bill()
town.charges()                       # by (menu, index)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.arrays import Floats
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.proxy.party import HoldRule
from tacit.bill.server.party import EpochTimes
from tacit.bill.server.store import Campaign
from tacit.deliver.device.account import DeviceLimits
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.journal import DeviceJournal, ImpressionState, MemoryJournal
from tacit.deliver.device.parties import AdChannel, PartyKeys
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.priced_menus import price_list
from tacit.entropy import Entropy, Simulation
from tacit.errors import BillRefused
from tacit.privacy.units import Window
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tests.support.billing_worlds import EPOCH, PROXY_KEY, REQUESTS, SERVER_KEY, TIMES, World
from tests.support.device_cases import QUARTER, TOWN, menu_of, node, old_quarter

KEYS = PartyKeys(REQUESTS.public, SERVER_KEY.public, PROXY_KEY.public)
LIMITS = DeviceLimits(local=20, per_choice=2, window=Window.days(365))  # type: ignore[arg-type]  # numbers will do
SETTINGS = DeviceSettings(TOWN, DisclosureLevel(QUARTER), consent=True, limits=LIMITS, prefetch=2)
OLD, NEW = ("Cafe",), ("Gym",)
CAMPAIGNS = (1, 2, 3)


def town_menus(
    epoch: int = EPOCH, *, epsilon: Any = 2, smallest_cohort: int = 1, floor: float = 0.0
) -> list[PricedMenu]:
    """Menus of both lanes for both quarters."""
    bids, rates = [1_000_000, 950_000, 1_100_000], [0.05, 0.05, 0.04]
    new_quarter = menu_of(node("New"), [1, 2, 3], bids, rates, charged="impression")
    personal = [
        price_list(menu, epoch=epoch, epsilon=epsilon, smallest_cohort=smallest_cohort)
        for menu in (old_quarter(floor, charged="impression"), new_quarter)
    ]
    return [*personal, *(menu.public_lane() for menu in personal)]


class Rates:
    """A device's own rates, the same everywhere, and how often they were asked."""

    def __init__(self, rates: Sequence[float] = (0.01, 0.09, 0.02)) -> None:
        self.rates, self.asked = np.array(rates), 0

    def __call__(self, menu: Menu, context: DeviceContext) -> Floats:
        del context
        self.asked += 1
        return self.rates[: len(menu)] if len(menu) <= len(self.rates) else np.r_[self.rates, 0.0]


def no_rates(menu: Menu, context: DeviceContext) -> Floats:
    """For lanes in which nothing private is read."""
    del menu, context
    raise AssertionError("a private rate was asked for")


@dataclass
class TownChannel:
    """A device's way to the parties of a world, at the world's second."""

    world: World
    calls: Counter[str] = field(default_factory=Counter)

    def head(self) -> bytes:
        self.calls["head"] += 1
        return self.world.proxy.head(self.world.now).to_bytes()

    def offer(self, sealed: bytes) -> bytes:
        self.calls["offer"] += 1
        return self.world.server.offer(sealed, self.world.now)

    def report(self, report: bytes) -> None:
        self.calls["report"] += 1
        (verdict,) = self.world.proxy.take([report], self.world.now)
        if verdict is not BillVerdict.ACCEPTED:
            raise BillRefused(verdict)

    def statement(self, nonce: bytes) -> bytes | None:
        self.calls["statement"] += 1
        found = self.world.proxy.statement_for(nonce)
        return None if found is None else found.to_bytes()

    def statements(self, epoch: int) -> Sequence[bytes]:
        self.calls["statements"] += 1
        return [each.to_bytes() for each in self.world.proxy.cohorts(epoch)]


@dataclass
class AdTown:
    """Both parties with an epoch that is open, and devices of one's own."""

    world: World
    channel: AdChannel
    ads: SqlAdStore
    rates: Rates = field(default_factory=Rates)

    @classmethod
    def open(
        cls,
        folder: Path,
        menus: Sequence[PricedMenu] | None = None,
        *,
        hold_seconds: int = 0,
        times: EpochTimes = TIMES,
    ) -> AdTown:
        ads, proxied = (
            SqlAdStore.open(folder / "ads.sqlite"),
            SqlBillingProxyStore.open(folder / "proxy.sqlite"),
        )
        ads.put_campaigns([Campaign(campaign, f"advertiser {campaign}") for campaign in CAMPAIGNS])
        world = World(ads, proxied, hold=HoldRule(seconds=hold_seconds))
        world.open_epoch(*(town_menus() if menus is None else menus), times=times)
        return cls(world, TownChannel(world), ads)

    @property
    def now(self) -> int:
        return self.world.now

    def device(
        self,
        settings: DeviceSettings = SETTINGS,
        journal: DeviceJournal | None = None,
        *,
        channel: AdChannel | None = None,
        seed: int | str | None = None,
        **changed: Any,
    ) -> AdDevice:
        """A device; by a seed where its draws are to be repeated."""
        kept = MemoryJournal() if journal is None else journal
        way = self.channel if channel is None else channel
        own = replace(settings, **changed)
        if seed is None:
            return AdDevice(own, KEYS, kept, way, Entropy())
        return AdDevice(own, KEYS, kept, way, Simulation(seed), simulated=True)

    def bill(self, now: int | None = None) -> None:
        """Whatever waits becomes batches and charges."""
        self.world.now = self.now if now is None else now
        self.world.bill()

    def charges(self) -> Counter[tuple[bytes, int, int]]:
        """How many charges were made, by menu, index and price."""
        return Counter(
            {(line.menu_id, line.index, line.price_micros): line.impressions for line in self.ads.totals()}
        )


def reported(devices: Sequence[AdDevice]) -> Counter[tuple[bytes, int, int]]:
    """What devices have shown and the proxy has taken, by menu, index and price."""
    found: Counter[tuple[bytes, int, int]] = Counter()
    for device in devices:
        for record in device.journal.impressions((ImpressionState.ACKED, ImpressionState.SETTLED)):
            menu = device._offers.kept_menu(record.menu_id)
            assert menu is not None
            assert record.index is not None
            price = menu.menu.price_micros(record.index)
            assert price is not None
            found[record.menu_id, record.index, price] += 1
    return found
