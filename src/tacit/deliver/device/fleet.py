"""Thousands of devices in one process, for tests and simulations: each as if alone, by the same code.

    fleet = DeviceFleet(settings, keys, channel, Simulation(1), simulated=True)
    for visit in day:
        fleet.show(visit.person, visit.context, visit.rates, visit.second)
    fleet.send_reports(now)
    fleet.settle(now)

What is public, heads and menus and their plans, is checked and planned once for all of them. Accounts, tokens
and choices are each device's own, in a journal in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tacit import expect
from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.choice import DeviceRates
from tacit.deliver.device.journal import MemoryJournal
from tacit.deliver.device.menu_book import MenuBook
from tacit.deliver.device.outcomes import SentReports, SettledReports, ShownAd
from tacit.deliver.device.packs import PackShelf
from tacit.deliver.device.parties import AdChannel, PartyKeys
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.device.shown_log import MemoryShownLog
from tacit.display import brief
from tacit.privacy.randomness import Source

TakeReports = Callable[[Sequence[bytes]], Sequence[BillVerdict]]
"""Many reports at once, and what becomes of each: `BillingProxy.take` at some second, say."""

SENT_AT_ONCE = 1000


class DeviceFleet:
    """Devices by number, each made when it is first asked for. What they say and spend is what as many
    `AdDevice`s would, in the same order: a test holds them to it.

    consents  whether the person of a device agrees; where it is None, as `settings` say
    take      hands in many reports at once, where the channel's one by one would be too slow
    packs     the menus' ads, and with them caps and categories, which all devices share
    choosing  draws choices, where they are to be repeated: as `AdDevice` has it
    """

    def __init__(
        self,
        settings: DeviceSettings,
        keys: PartyKeys,
        channel: AdChannel,
        source: Source,
        *,
        consents: Callable[[int], bool] | None = None,
        take: TakeReports | None = None,
        packs: PackShelf | None = None,
        choosing: Source | None = None,
        simulated: bool = False,
    ) -> None:
        expect.kind("keys", keys, PartyKeys)
        expect.kind("settings", settings, DeviceSettings)
        self._settings = {choice: replace(settings, consent=choice) for choice in (False, True)}
        self._consents = (lambda _: settings.consent) if consents is None else consents
        self._keys, self._channel, self._source, self._simulated = keys, channel, source, simulated
        self._take, self._packs, self._choosing = take, packs, choosing
        self._book = MenuBook(keys)
        self._devices: dict[int, AdDevice] = {}

    def __repr__(self) -> str:
        return brief(self, devices=len(self._devices))

    def __len__(self) -> int:
        """How many devices have been asked for."""
        return len(self._devices)

    @property
    def devices(self) -> dict[int, AdDevice]:
        """Those that have been asked for, by number."""
        return dict(self._devices)

    def device(self, number: int) -> AdDevice:
        """The device of this number."""
        found = self._devices.get(number)
        if found is None:
            found = self._devices[number] = AdDevice(
                self._settings[self._consents(number)], self._keys, MemoryJournal(), self._channel,
                self._source, book=self._book, packs=self._packs, choosing=self._choosing,
                log=MemoryShownLog(),
                simulated=self._simulated,
            )  # fmt: skip
        return found

    def show(self, number: int, context: Sequence[Any], rates: DeviceRates, now: int) -> ShownAd:
        """One impression on one device, as `AdDevice.show`."""
        return self.device(number).show(context, rates, now)

    def send_reports(self, now: int) -> SentReports:
        """Send what all devices have shown, as `AdDevice.send_reports`."""
        if self._take is None:
            return _sum_sent([device.send_reports(now) for device in self._devices.values()])
        waiting = [(device, each) for device in self._devices.values() for each in device.waiting_reports()]
        outcomes = []
        for start in range(0, len(waiting), SENT_AT_ONCE):
            some = waiting[start : start + SENT_AT_ONCE]
            verdicts = self._take([record.report for _, record in some])
            for (device, record), verdict in zip(some, verdicts, strict=True):
                outcomes.append(device.enter_verdicts([record], [verdict], now))
        return _sum_sent(outcomes)

    def settle(self, now: int) -> SettledReports:
        """Ask for the cohorts of all devices' reports, as `AdDevice.settle`."""
        every = [device.settle(now) for device in self._devices.values()]
        return SettledReports(
            sum(each.by_size for each in every),
            sum(each.in_full for each in every),
            sum(each.waiting for each in every),
        )


def _sum_sent(outcomes: Sequence[SentReports]) -> SentReports:
    return SentReports(
        sum(each.acked for each in outcomes),
        sum(each.waiting for each in outcomes),
        tuple(verdict for each in outcomes for verdict in each.refused),
    )
