"""A fleet does what as many single devices would, and fast enough for a simulated day."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.reports import ImpressionReport
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.fleet import DeviceFleet
from tacit.deliver.device.journal import MemoryJournal
from tacit.deliver.device.menu_book import MenuBook
from tacit.deliver.device.outcomes import SentReports, SettledReports, ShownAd
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, EntropyMisuse
from tacit.store.device_journal import SqlDeviceJournal
from tests.support.billing_worlds import EXPIRED
from tests.support.device_worlds import (
    KEYS,
    LIMITS,
    NEW,
    OLD,
    SETTINGS,
    AdTown,
    Rates,
    TownChannel,
    no_rates,
    reported,
    town_menus,
)

PEOPLE = 6
VISITS = [(at % PEOPLE, OLD if at % 4 else NEW) for at in range(40)]
SMALL = replace(SETTINGS, limits=replace(LIMITS, local=LIMITS.local / 2))


@pytest.fixture
def town(tmp_path: Path) -> AdTown:
    return AdTown.open(tmp_path)


def agrees(person: int) -> bool:
    return person != 1


def profile(person: int) -> Rates:
    return Rates(np.roll([0.01, 0.09, 0.02], person).tolist())


def shown_by_fleet(town: AdTown) -> tuple[DeviceFleet, list[ShownAd]]:
    fleet = DeviceFleet(
        SMALL, KEYS, town.channel, Simulation(1), consents=agrees, choosing=Simulation(2), simulated=True
    )
    return fleet, [fleet.show(person, at, profile(person), town.now) for person, at in VISITS]


def test_single_devices_with_journals_on_disk_show_and_spend_the_same(town: AdTown, tmp_path: Path) -> None:
    fleet, ads = shown_by_fleet(town)
    choosing, source = Simulation(2), Simulation("other secrets")
    devices = [
        AdDevice(
            replace(SMALL, consent=agrees(person)), KEYS, SqlDeviceJournal.open(tmp_path / f"{person}.sqlite"),
            town.channel, source, choosing=choosing, simulated=True,
        )
        for person in range(PEOPLE)
    ]  # fmt: skip
    for (person, at), ad in zip(VISITS, ads, strict=True):
        own = devices[person].show(at, profile(person), town.now)
        assert replace(own, nonce=ad.nonce) == ad
        assert own.nonce != ad.nonce, "secrets are each device's own"
    for person, device in enumerate(devices):
        assert device.account == fleet.device(person).account
        assert device.send_reports(town.now).acked == len([who for who, _ in VISITS if who == person])
    assert fleet.send_reports(town.now) == SentReports(len(VISITS), 0)
    town.bill()
    assert town.charges() == reported([*devices, *fleet.devices.values()])
    assert {ad.lane for ad in ads} == {Lane.PUBLIC, Lane.PERSONAL}
    assert len({ad.campaign for ad in ads}) == 3, "else every choice is the same"


def test_by_the_same_draws_reports_differ_in_their_seals_alone(town: AdTown) -> None:
    fleet, _ = shown_by_fleet(town)
    book, source, choosing = MenuBook(KEYS), Simulation(1), Simulation(2)
    devices = [
        AdDevice(
            replace(SMALL, consent=agrees(person)), KEYS, MemoryJournal(), town.channel, source,
            book=book, choosing=choosing, simulated=True,
        )
        for person in range(PEOPLE)
    ]  # fmt: skip
    for person, at in VISITS:
        devices[person].show(at, profile(person), town.now)
    for person, device in enumerate(devices):
        ours = [ImpressionReport.from_bytes(each.report) for each in device.waiting_reports()]
        theirs = [ImpressionReport.from_bytes(each.report) for each in fleet.device(person).waiting_reports()]
        assert [replace(each, sealed=b"") for each in ours] == [replace(each, sealed=b"") for each in theirs]
        assert all(mine.sealed != yours.sealed for mine, yours in zip(ours, theirs, strict=True))


def test_reports_can_be_handed_in_many_at_once(town: AdTown) -> None:
    sizes: list[int] = []

    def take(reports: Sequence[bytes]) -> Sequence[BillVerdict]:
        sizes.append(len(reports))
        return town.world.proxy.take(reports, town.now)

    fleet = DeviceFleet(SETTINGS, KEYS, town.channel, Entropy(), take=take)
    for person, at in VISITS:
        fleet.show(person, at, town.rates, town.now)
    assert fleet.send_reports(town.now) == SentReports(len(VISITS), 0)
    assert fleet.send_reports(town.now) == SentReports(0, 0)
    assert sizes == [len(VISITS)]
    town.bill()
    assert fleet.settle(town.now) == SettledReports(len(VISITS), 0, 0)
    assert town.charges() == reported(list(fleet.devices.values()))
    for person, at in VISITS[:3]:
        fleet.show(person, at, town.rates, town.now)
    town.world.now = EXPIRED
    assert fleet.send_reports(EXPIRED) == SentReports(0, 0, (BillVerdict.EXPIRED,) * 3)


def test_what_is_public_is_fetched_and_checked_once(town: AdTown) -> None:
    channel = TownChannel(town.world)
    fleet = DeviceFleet(replace(SETTINGS, prefetch=1), KEYS, channel, Entropy())
    for person in range(30):
        fleet.show(person, OLD, town.rates, town.now)
    assert channel.calls == {"head": 1, "offer": 31}, "one menu, and a token for each"
    assert len(fleet) == 30


def test_consent_is_each_persons_own(town: AdTown) -> None:
    fleet = DeviceFleet(SETTINGS, KEYS, town.channel, Entropy(), consents=lambda person: person == 2)
    assert fleet.show(1, OLD, no_rates, town.now).lane is Lane.PUBLIC
    assert fleet.show(2, OLD, town.rates, town.now).lane is Lane.PERSONAL


def test_a_fleet_is_made_of_what_a_device_is_made_of(town: AdTown) -> None:
    with pytest.raises(BadInput, match="expected settings to be a DeviceSettings, got None"):
        DeviceFleet(None, KEYS, town.channel, Entropy())  # type: ignore[arg-type]
    with pytest.raises(EntropyMisuse):
        DeviceFleet(SETTINGS, KEYS, town.channel, Simulation(1)).show(1, OLD, town.rates, town.now)


def test_a_turn_takes_at_most_five_milliseconds(tmp_path: Path) -> None:
    """Of processor time: blind, verify, plan, choose, seal, and keep it all on disk; without the ad server's
    signature. The least of a few rounds, since others use the machine too."""
    town = AdTown.open(tmp_path, town_menus())
    spent = [0.0]

    class Server(TownChannel):
        def offer(self, sealed: bytes) -> bytes:
            before = time.process_time()
            answer = super().offer(sealed)
            spent[0] += time.process_time() - before
            return answer

    limits = replace(LIMITS, local=LIMITS.local * 100)
    turns: dict[str, list[float]] = {"memory": [], "sqlite": []}
    for kind in turns:
        journal = MemoryJournal() if kind == "memory" else SqlDeviceJournal.open(tmp_path / "device.sqlite")
        device = town.device(SETTINGS, journal, channel=Server(town.world), limits=limits, prefetch=4)
        device.show(OLD, town.rates, town.now)
        for _ in range(4):
            spent[0], before = 0.0, time.process_time()
            for _ in range(8):
                device.show(OLD, town.rates, town.now)
            turns[kind].append((time.process_time() - before - spent[0]) / 8 * 1000)
    assert min(turns["memory"]) < 5, turns
    assert min(turns["sqlite"]) < 5, turns
