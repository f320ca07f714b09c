"""Devices over real sockets that report whatever happens to the parties, and what was charged for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import httpx

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import MemoryJournal
from tacit.deliver.device.parties import PartyKeys
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.entropy import Entropy
from tacit.errors import BillRefused
from tacit.schema.contexts.hierarchy import load_hierarchy
from tacit.services.billing_clients import HttpAdChannel
from tacit.services.settings import load_parties
from tacit.services.signatures import Party
from tacit.store.billing_ads import SqlAdStore
from tests.support.billing_services import HERE, THERE, liking
from tests.support.service_processes import PATIENCE_SECONDS, Parties


def change(parties: Parties, party: Party, old: str, new: str) -> None:
    path = parties.folder / f"{party}.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def wait_until(done: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


class Fleet:
    """Devices that report whatever happens to the parties, and what they showed."""

    def __init__(self, parties: Parties, client: httpx.Client) -> None:
        known = load_parties(parties.folder / "parties.toml")
        assert known.server.signing_key is not None
        assert known.proxy.signing_key is not None
        self._keys = PartyKeys(known.server.public_key, known.server.signing_key, known.proxy.signing_key)
        self._hierarchy = load_hierarchy(parties.folder / "contexts.toml")
        self._clock, self._entropy = parties.clock, Entropy()
        self.channel = HttpAdChannel(
            client, known.proxy.url, entropy=self._entropy, sleep=lambda pause: time.sleep(min(pause, 0.1)),
            attempts=100, first_pause_seconds=0.02,
        )  # fmt: skip
        self.prices: list[int] = []
        self.devices: list[AdDevice] = []

    def wait_for_epoch(self) -> EpochHead:
        found: list[EpochHead] = []

        def is_open() -> bool:
            try:
                found.append(EpochHead.from_bytes(self.channel.head()))
            except BillRefused:
                return False
            return True

        wait_until(is_open)
        return found[-1]

    def visit(self, number: int) -> None:
        """One impression, shown and reported; asked again until somebody answers."""
        settings = DeviceSettings(self._hierarchy, DisclosureLevel((1, 1)), consent=True, prefetch=1)
        device = AdDevice(settings, self._keys, MemoryJournal(), self.channel, self._entropy)
        self.devices.append(device)
        while True:
            try:
                ad = device.show(HERE if number % 2 else THERE, liking, self._clock())
                break
            except BillRefused as refused:  # a moment in which the other party is starting
                if refused.reason is not BillVerdict.STALE_EPOCH:
                    raise
        self.prices.append(ad.price_micros)
        while device.send_reports(self._clock()).waiting:
            time.sleep(0.05)


def charges(parties: Parties) -> tuple[int, int]:
    """Impressions that were charged, and what for in all, from the ad server's store."""
    settings = parties.settings(Party.SERVER)
    assert settings.billing is not None
    with closing(SqlAdStore.open(settings.billing.store)) as store:
        totals = store.totals()
    return sum(line.impressions for line in totals), sum(line.total_micros for line in totals)
