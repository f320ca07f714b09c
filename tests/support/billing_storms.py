"""A storm over billing in one process: real parties on real stores, calls that get lost, parties that die.

    storm = Storm(folder, Weather(7, lossy=20, deadly=30, downtime=2))
    storm.blow(steps=300)
    storm.drain()                    # the weather is calm: all restart, send, batch, deliver, settle
    figures = check_bill(storm.evidence())

A party is one object on its own file. When it dies, the object is thrown away and another opened on the file.
Time passes only where the storm says so.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.offers import OfferRequest
from tacit.bill.proxy.party import BillingProxy, HoldRule
from tacit.bill.server.party import AdServer
from tacit.bill.server.store import Campaign
from tacit.deliver.device.account import DeviceAccount
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import ImpressionRecord
from tacit.deliver.device.outcomes import ShownAd
from tacit.deliver.device.parties import PartyKeys
from tacit.entropy import Simulation
from tacit.errors import BillRefused
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit.store.device_journal import SqlDeviceJournal
from tests.support.billing_messages import token_keys
from tests.support.billing_storm_checks import DeviceEvidence, Evidence, Kept, Sight, StormDamage
from tests.support.billing_storm_faults import (
    AFTER,
    BEFORE,
    PROXY,
    SERVER,
    Answer,
    Died,
    Network,
    Weather,
    arm_journal,
    arm_store,
)
from tests.support.billing_storm_town import (
    EPOCH_SECONDS,
    HOLD_SECONDS,
    PLACES,
    POOR,
    POOR_MICROS,
    REPORT_SECONDS,
    SKEW_SECONDS,
    START,
    MarkedRates,
    limits_of,
    menus_of,
    settings_of,
    times_of,
)
from tests.support.billing_worlds import PROXY_KEY, REQUESTS, SERVER_KEY

EXPECTED = (BillVerdict.STALE_EPOCH, BillVerdict.EXPIRED)
"""Why honest parties may refuse each other in a storm: it took too long."""


@dataclass(frozen=True)
class PartyKinds:
    """Of what kind the parties are: honest, or with a deliberate bug."""

    ad_store: type[SqlAdStore] = SqlAdStore
    server: type[AdServer] = AdServer
    proxy_store: type[SqlBillingProxyStore] = SqlBillingProxyStore
    proxy: type[BillingProxy] = BillingProxy
    device: type[AdDevice] = AdDevice


class StormChannel:
    """A device's way to the proxy, through the weather."""

    def __init__(self, storm: Storm, name: str) -> None:
        self._storm, self._link = storm, f"{name}>{PROXY}"

    def head(self) -> bytes:
        storm = self._storm
        return self._call("head", b"", lambda _: storm.proxy.head(storm.now).to_bytes())

    def offer(self, sealed: bytes) -> bytes:
        return self._call("offer", sealed, self._storm.relay_offer)

    def report(self, report: bytes) -> None:
        self._call("report", report, self._storm.take_report)

    def statement(self, nonce: bytes) -> bytes | None:
        def handle(asked: bytes) -> bytes | None:
            found = self._storm.proxy.statement_for(asked)
            return None if found is None else found.to_bytes()

        return self._call("statement", nonce, handle)

    def statements(self, epoch: int) -> Sequence[bytes]:
        def handle(asked: bytes) -> list[bytes]:
            return [each.to_bytes() for each in self._storm.proxy.cohorts(int.from_bytes(asked, "big"))]

        return self._call("statements", epoch.to_bytes(4, "big"), handle)

    def _call(self, what: str, message: bytes, handle: Callable[[bytes], Answer]) -> Answer:
        return self._storm.network.call(f"{self._link} {what}", message, handle)


class Storm:
    """A server, a proxy and some devices, the weather between them, and what people saw."""

    def __init__(
        self, folder: Path, weather: Weather, *, devices: int = 3, kinds: PartyKinds | None = None
    ) -> None:
        self.folder, self.weather, self.kinds = folder, weather, kinds or PartyKinds()
        self.network = Network(weather, self._bury)
        self.now = START
        self.names = [f"device-{number}" for number in range(devices)]
        self.sights: list[Sight] = []
        self.commits: dict[str, list[Kept]] = {name: [] for name in self.names}
        self.refusals: Counter[str] = Counter()
        self._keys, self._shuffles = itertools.cycle(token_keys()), Simulation(f"{weather.seed} shuffles")
        self._living: dict[str, tuple[Any, Any]] = {}  # party, and its store or journal
        self._starts: Counter[str] = Counter()
        self._down: dict[str, int] = {}
        self._opened: set[int] = set()  # epochs that were begun
        self._known: set[int] = set()  # epochs that the server's process offers

    # The parties

    @property
    def server(self) -> AdServer:
        found: AdServer = self._party(SERVER)[0]
        return found

    @property
    def proxy(self) -> BillingProxy:
        found: BillingProxy = self._party(PROXY)[0]
        return found

    def device(self, name: str) -> AdDevice:
        found: AdDevice = self._party(name)[0]
        return found

    def _party(self, name: str) -> tuple[Any, Any]:
        if name not in self._living:
            if self._down.get(name) and not self.weather.calm:
                self._down[name] -= 1
                raise ConnectionError(f"{name} is down")
            start = {SERVER: self._start_server, PROXY: self._start_proxy}.get(name, self._start_device)
            self._starts[name] += 1
            source = Simulation(f"{self.weather.seed} {name} {self._starts[name]}")
            start(name, source)
        return self._living[name]

    def _start_server(self, name: str, source: Simulation) -> None:
        store = self.kinds.ad_store.open(self.folder / "ads.sqlite")
        arm_store(store, self.weather, name)
        server = self.kinds.server(
            SERVER_KEY,
            REQUESTS,
            store,
            source,
            proxy_public=PROXY_KEY.public,
            make_key=lambda: next(self._keys),
        )
        self._living[name] = server, store
        self._known = set()

    def _start_proxy(self, name: str, _source: Simulation) -> None:
        store = self.kinds.proxy_store.open(self.folder / "reports.sqlite")
        arm_store(store, self.weather, name)
        hold = HoldRule(seconds=HOLD_SECONDS, most=50)
        proxy = self.kinds.proxy(PROXY_KEY, store, server_public=SERVER_KEY.public, hold=hold)
        self._living[name] = proxy, store

    def _start_device(self, name: str, source: Simulation) -> None:
        journal = SqlDeviceJournal.open(self.folder / f"{name}.sqlite")

        def kept(records: Sequence[ImpressionRecord], account: DeviceAccount | None) -> None:
            self.commits[name].append(Kept(tuple(records), None if account is None else account.local_micros))

        arm_journal(journal, self.weather, name, kept)
        keys = PartyKeys(REQUESTS.public, SERVER_KEY.public, PROXY_KEY.public)
        channel = StormChannel(self, name)
        device = self.kinds.device(
            settings_of(self._number(name)), keys, journal, channel, source, simulated=True
        )
        self._living[name] = device, journal
        device.recover(self._clock(name))

    def _bury(self, death: Died) -> None:
        if death.party in self._living:
            self._living.pop(death.party)[1].close()
            self._down[death.party] = self.weather.below(self.weather.downtime + 1)

    def _number(self, name: str) -> int:
        return int(name.partition("-")[2])

    def _clock(self, name: str) -> int:
        """By the device's own clock."""
        return self.now + (self._number(name) * 17) % (2 * SKEW_SECONDS) - SKEW_SECONDS

    # What the parties are told by each other

    def relay_offer(self, sealed: bytes) -> bytes:
        link = f"{PROXY}>{SERVER} offer"
        return self.network.call(link, sealed, lambda asked: self.server.offer(asked, self.now))

    def take_report(self, report: bytes) -> None:
        (verdict,) = self.proxy.take([report], self.now)
        if verdict is not BillVerdict.ACCEPTED:
            raise BillRefused(verdict)

    def countersign(self, directory: bytes) -> bytes:
        """As `DirectoryLink`."""
        link = f"{SERVER}>{PROXY} directory"
        return self.network.call(link, directory, lambda asked: self.proxy.countersign(asked, self.now))

    def deliver(self, batch: bytes) -> bytes:
        """As `BatchLink`."""
        return self.network.call(f"{PROXY}>{SERVER} batch", batch, lambda asked: self.server.redeem(asked))

    # What happens

    def attempt(self, party: str, work: Callable[[], object]) -> bool:
        """Let a party work; whether it came to an end."""
        try:
            with self.network.acting(party):
                work()
        except OSError:
            return False
        except BillRefused as refused:
            if refused.reason not in EXPECTED:
                raise
            self.refusals[refused.reason.name] += 1
            return False
        return True

    def open_epochs(self) -> bool:
        """The epoch of this time, begun where it was not, and offered by the server's process."""
        epoch = (self.now - START) // EPOCH_SECONDS

        def work() -> None:
            server = self.server
            if epoch not in self._opened:
                server.open_epoch(menus_of(epoch), times_of(epoch), self)
                self._opened.add(epoch)
            if epoch not in self._known:
                server.load_epoch(epoch)
                self._known.add(epoch)

        return self.attempt(SERVER, work)

    def show(self, name: str) -> bool:
        number = self._number(name)

        def render(ad: ShownAd) -> None:
            write = self.weather.begin_write(name)
            self.weather.meet(name, write, BEFORE, "it was seen")
            self.sights.append(Sight.of(name, ad))
            self.weather.meet(name, write, AFTER, "it was seen")

        def work() -> None:
            place = PLACES[number % len(PLACES)].partition(">")[2]
            self.device(name).show((place,), MarkedRates(number), self._clock(name), render=render)

        return self.attempt(name, work)

    def send(self, name: str) -> bool:
        return self.attempt(name, lambda: self.device(name).send_reports(self._clock(name)))

    def settle(self, name: str) -> bool:
        return self.attempt(name, lambda: self.device(name).settle(self._clock(name)))

    def recover(self, name: str) -> bool:
        return self.attempt(name, lambda: self.device(name).recover(self._clock(name)))

    def bill(self) -> bool:
        def work() -> None:
            proxy = self.proxy
            proxy.form_batches(self.now, self._shuffles)
            proxy.deliver_batches(self)

        return self.attempt(PROXY, work)

    def close_invoices(self) -> bool:
        return self.attempt(SERVER, lambda: self._party(SERVER)[1].close_invoices(self.now))

    def give_budget(self, micros: int | None) -> bool:
        campaign = Campaign(POOR, f"campaign {POOR}", micros)
        return self.attempt(SERVER, lambda: self._party(SERVER)[1].put_campaigns([campaign]))

    def kill(self, party: str) -> bool:
        """Between two of its works."""
        if party not in self._living:
            return False
        return self.attempt(party, lambda: self.weather.kill(party, "idle"))

    def blow(self, steps: int) -> None:
        """So many things happen, in an order that the weather chose."""
        self.give_budget(POOR_MICROS)
        for _ in range(steps):
            self.now += self.weather.below(12) if self.weather.below(50) else EPOCH_SECONDS // 2
            self.open_epochs()
            name = self.names[self.weather.below(len(self.names))]
            work = self.weather.below(100)
            if work < 45:
                self.show(name)
            elif work < 65:
                self.send(name)
            elif work < 80:
                self.bill()
            elif work < 90:
                self.settle(name)
            elif work < 93:
                self.close_invoices()
            elif work < 95:
                self.give_budget((1 + self.weather.below(4)) * POOR_MICROS)
            else:
                self.kill((SERVER, PROXY, name)[self.weather.below(3)])

    def play(self) -> None:
        """A short run of everything that parties do, whose crash points are enumerated: two epochs, of which
        the first ends with a full cohort and the second with a small one."""
        self._until_done(partial(self.give_budget, POOR_MICROS))
        for epoch in range(2):
            self.now = max(self.now, START + epoch * EPOCH_SECONDS + 60)
            self._until_done(self.open_epochs)
            for name in self.names:
                for _ in range(2 - epoch):
                    self._until_done(partial(self.show, name))
                self._until_done(partial(self.send, name))
            self.now += HOLD_SECONDS
            self._until_done(self.bill)
            for name in self.names:
                self._until_done(partial(self.settle, name))
            self._until_done(self.close_invoices)
        self._until_done(lambda: self.give_budget(None))

    def drain(self) -> None:
        """The weather is calm: all start again, and everything that was under way comes to its end."""
        self.weather.calm = True
        everyone = [SERVER, PROXY, *self.names]
        for party in everyone:
            self._bury(Died(party, "at the end"))
        self.network.hand_out_rest()
        for ends in (0, EPOCH_SECONDS, EPOCH_SECONDS + REPORT_SECONDS, 86_400 + REPORT_SECONDS):
            self.now = max(self.now, self._last_opening() + ends)
            if not ends:
                self._until_done(self.open_epochs)
            for name in self.names:
                self._until_done(partial(self.recover, name))
            self._until_done(self.bill)
        for name in self.names:  # what was never known is settled in full by now
            self._until_done(partial(self.settle, name))
        self._until_done(lambda: self.give_budget(None))
        self._until_done(self.close_invoices)

    @staticmethod
    def _until_done(work: Callable[[], bool], times: int = 5) -> None:
        if not any(work() for _ in range(times)):
            raise StormDamage("work that never comes to an end")

    def _last_opening(self) -> int:
        return times_of(max(self._party(SERVER)[1].epochs(-1), default=0)).opens

    def evidence(self) -> Evidence:
        """All that is known of it."""
        blinded = set()
        for message in self.network.captured:
            if message.link == f"{PROXY}>{SERVER} offer":
                blinded |= set(OfferRequest.opened_by(REQUESTS, message.asked).blinded)
        devices = {
            name: DeviceEvidence(self._party(name)[1], limits_of(self._number(name)), self.commits[name])
            for name in self.names
        }
        return Evidence(
            sights=self.sights, devices=devices, ads=self._party(SERVER)[1], proxied=self._party(PROXY)[1],
            server_public=SERVER_KEY.public, proxy_public=PROXY_KEY.public,
            now=self.now, blinded=frozenset(blinded),
        )  # fmt: skip

    def end(self) -> None:
        for _, store in self._living.values():
            store.close()
