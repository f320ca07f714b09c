"""A storm over billing between processes: ad server, proxy and devices on this machine, killed at random.

    with process_storm(launcher, folder, Weather(7, lossy=15)) as storm:
        storm.blow(kills=20, faults=50, impressions=20)
        storm.drain()
        figures = check_bill(storm.evidence())

The seed decides whom to kill after how long, and what becomes of messages in their order; which work a kill
meets is the machine's business. Everybody's clock is the launcher's.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.server.store import Campaign
from tacit.entropy import Entropy, Simulation
from tacit.errors import TacitError
from tacit.services import trial
from tacit.services.billing_clients import HttpBillingOperator
from tacit.services.http_clients import SignedClient
from tacit.services.settings import read_secret_file
from tacit.services.signatures import ExchangeKeys, Party
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit.store.device_journal import SqlDeviceJournal
from tests.support.billing_storm_checks import DeviceEvidence, Evidence
from tests.support.billing_storm_devices import (
    PARTIES,
    PHASE,
    journal_path,
    read_sights,
    status_path,
)
from tests.support.billing_storm_faults import PROXY, Weather
from tests.support.billing_storm_relay import Relay, relaying
from tests.support.billing_storm_town import POOR, POOR_MICROS, limits_of
from tests.support.local_postgres import LocalPostgres
from tests.support.service_processes import Launcher, free_ports

ADS = "ads"
EPOCH_SECONDS, REPORT_SECONDS = 600, 600
PATIENCE_SECONDS, SETTLE_SECONDS = 60, 2 * 86_400
DEVICES_EACH = 3
MOST_KILLS, MOST_FRUITLESS = 400, 4
PACE = "\n[pace]\ncommit_wait_ms = 2\nlook_every_ms = 50\ntimeout_seconds = 2\n"
MARKET = f"""\
epoch_seconds = {EPOCH_SECONDS}
report_seconds = {REPORT_SECONDS}
epsilon = 1
smallest_cohort = 3
attributes = ["place"]

[[campaign]]
number = 11
advertiser = "Bean & Leaf"

[[campaign]]
number = 12
advertiser = "Two Wheels"

[[campaign]]
number = {POOR}
advertiser = "Tea House"
budget_micros = {POOR_MICROS}

[[menu]]
levels = [1]
values = ["Old"]
ads = [
    {{ campaign = 11, bid_micros = 1_000_000, rate = 0.05 }},
    {{ campaign = 12, bid_micros = 900_000, rate = 0.05 }},
    {{ campaign = {POOR}, bid_micros = 1_100_000, rate = 0.04 }},
]
"""


class ProcessStorm:
    """The processes, who they are by now, and what they are told."""

    def __init__(
        self,
        launcher: Launcher,
        folder: Path,
        weather: Weather,
        *,
        groups: int = 2,
        postgres: LocalPostgres | None = None,
        stores: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.weather, self._launcher, self._postgres = folder, weather, launcher, postgres
        self._below = Simulation(f"kills of storm {weather.seed}").uniform_below
        self.firsts = [group * DEVICES_EACH for group in range(groups)]
        self.stores = {ADS: str(folder / "ads.sqlite"), PROXY: str(folder / "reports.sqlite"), **(stores or {})}
        proxy, server, *between = free_ports(5)
        trial.write_trial(folder, proxy_port=proxy, server_port=server, entropy=Entropy(), billing=True)
        (folder / "market.toml").write_text(MARKET)
        self.relays = [
            Relay("device>proxy", between[0], proxy, weather),
            Relay("proxy>server", between[1], server, weather),
            Relay("server>proxy", between[2], proxy, weather),
        ]
        self._edit("proxy.toml", f":{server}", f":{between[1]}", PROXY, "reports.sqlite")
        self._edit("server.toml", f":{proxy}", f":{between[2]}", ADS, "ads.sqlite")
        self._server_url = f"http://127.0.0.1:{server}"
        self._running: dict[str, int] = {}
        self._write_parties(f"http://127.0.0.1:{between[0]}")
        (folder / PHASE).write_text("storm")

    def _edit(self, name: str, other: str, between: str, party: str, store: str) -> None:
        path = self.folder / name
        text = path.read_text().replace(
            f'url = "http://127.0.0.1{other}"', f'url = "http://127.0.0.1{between}"'
        )
        path.write_text(text.replace(f'store = "{store}"', f'store = "{self.stores[party]}"') + PACE)

    def _write_parties(self, url: str) -> None:
        secrets = {
            party: read_secret_file("sealing", self.folder / f"{party}.sealing")
            for party in ("proxy", "server")
        }
        self._public = {party: SigningKey.derive(secret).public for party, secret in secrets.items()}
        told = {party: key.hex() for party, key in self._public.items()}
        sealing = OpeningKey(secrets["server"]).public.hex()
        (self.folder / PARTIES).write_text(json.dumps({**told, "sealing": sealing, "url": url}))

    # Processes

    def start(self, name: str) -> None:
        """A party, and wait until it listens; or some devices."""
        errors = self.said(name, "err")
        if name.startswith("devices"):
            first = name.partition("-")[2]
            self._running[name] = self._launcher.told("devices", self.folder, first, DEVICES_EACH, errors)
            return
        lines = self._lines(name)
        settings = self.folder / ("server.toml" if name == ADS else "proxy.toml")
        self._running[name] = self._launcher.told("start", name, settings, self.said(name, "out"), errors)
        self.wait_until(lambda: self._lines(name) > lines, f"{name} listens")

    def said(self, name: str, kind: str) -> Path:
        return self.folder / f"{name}.{kind}"

    def _lines(self, name: str) -> int:
        path = self.said(name, "out")
        return path.read_text().count("\n") if path.exists() else 0

    def kill(self, name: str) -> None:
        assert self.end(name, signal.SIGKILL) == -signal.SIGKILL, self.errors()

    def end(self, name: str, how: signal.Signals) -> int:
        process = self._running.pop(name)
        os.kill(process, how)
        return self._launcher.told("wait", process)

    def end_all(self) -> None:
        for name in list(self._running):
            self.end(name, signal.SIGKILL)

    def errors(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.err"))
        )

    def wait_until(self, done: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"it never happened that {what}\n{self.errors()}")
            time.sleep(0.01)

    # The storm

    def begin(self) -> None:
        for name in (PROXY, ADS, *self._groups()):
            self.start(name)

    def _groups(self) -> list[str]:
        return [f"devices-{first}" for first in self.firsts]

    def blow(self, kills: int, faults: int, impressions: int) -> None:
        """One kill after the other, until there were so many, and so many faults, and so many impressions were
        seen; meanwhile time passes, and invoices are closed."""
        seen, fruitless = 0, 0
        for number in itertools.count():
            before, seen = seen, self._seen()
            if number >= kills and self.weather.faults.total() >= faults and seen >= impressions:
                return
            assert number < MOST_KILLS, "little happens for so many kills"
            fruitless = 0 if seen > before else fruitless + 1
            if fruitless >= MOST_FRUITLESS:  # on a slow machine nobody would ever finish anything
                self.wait_until(partial(self._sees_more_than, seen), "somebody sees an ad")
            time.sleep(0.05 + self._below(150) / 1000)
            self._strike()
            if number % 8 == 3:
                self._launcher.pass_seconds(EPOCH_SECONDS // 3)
            if number % 5 == 2:
                self._close_invoices()

    def _seen(self) -> int:
        return len(read_sights(self.folder))

    def _sees_more_than(self, seen: int) -> bool:
        return self._seen() > seen

    def _strike(self) -> None:
        if self._postgres is not None and self._below(4) == 0:
            self._postgres.kill()
            self.weather.note("postgresql killed")
            time.sleep(self._below(100) / 1000)
            self._postgres.start()
            return
        groups = self._groups()
        name = (ADS, PROXY, groups[self._below(len(groups))])[self._below(3)]
        self.kill(name)
        self.weather.note(f"{name} killed")
        time.sleep(self._below(100) / 1000)
        self.start(name)

    def _close_invoices(self) -> None:
        secret = read_secret_file("operator", self.folder / "operator.secret")
        exchange = ExchangeKeys.between(secret, caller=Party.OPERATOR, called=Party.SERVER)
        with httpx.Client(trust_env=False, timeout=2) as client, suppress(OSError, TacitError):
            calls = SignedClient(
                client, self._server_url, exchange, entropy=Entropy(), clock=self._launcher.clock
            )
            HttpBillingOperator(calls).close_invoices()

    def drain(self) -> None:
        """The weather is calm: everything that was under way comes to its end, and everybody ends well."""
        self.weather.calm = True
        for name in (ADS, PROXY):  # they had learnt to wait long for each other
            self.kill(name)
            self.start(name)
        (self.folder / PHASE).write_text("drain")
        self._wait_for_devices("SHOWN")
        self._launcher.pass_seconds(EPOCH_SECONDS * 2 + REPORT_SECONDS)
        self._wait_for_devices("CHOSEN", "SHOWN")
        proxied = SqlBillingProxyStore.open(self.stores[PROXY])
        self.wait_until(lambda: not proxied.waiting() and not proxied.undelivered(), "all is delivered")
        proxied.close()
        try:
            self._wait_for_devices("ACKED", seconds=5)
        except TimeoutError:  # the proxy does not know of a report: that is settled in full some day
            self._launcher.pass_seconds(SETTLE_SECONDS)
            self._wait_for_devices("ACKED")
        (self.folder / PHASE).write_text("end")
        for name in self._groups():
            assert self._launcher.told("wait", self._running.pop(name)) == 0, self.errors()
        for name in (PROXY, ADS):
            assert self.end(name, signal.SIGTERM) == 0, self.errors()

    def _wait_for_devices(self, *states: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Until no device has an impression in one of these states, by its own word of now."""
        since = self._launcher.clock()

        def is_done(first: int) -> bool:
            path = status_path(self.folder, first)
            told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
            current = told.get("phase") == "drain" and told["now"] > since
            return current and not any(told.get(state) for state in states)

        left = f"no device has {' or '.join(states)}"
        self.wait_until(lambda: all(map(is_done, self.firsts)), left, seconds)

    # Afterwards

    def evidence(self, held: ExitStack) -> Evidence:
        """What everybody kept, opened until it is left; the bill is closed."""
        ads, proxied = SqlAdStore.open(self.stores[ADS]), SqlBillingProxyStore.open(self.stores[PROXY])
        held.callback(ads.close)
        held.callback(proxied.close)
        ads.put_campaigns([Campaign(POOR, "Tea House")])
        ads.close_invoices(self._launcher.clock())
        devices = {}
        for number in range(len(self.firsts) * DEVICES_EACH):
            journal = SqlDeviceJournal.open(journal_path(self.folder, number))
            held.callback(journal.close)
            devices[f"device-{number}"] = DeviceEvidence(journal, limits_of(number))
        return Evidence(
            sights=read_sights(self.folder), devices=devices, ads=ads, proxied=proxied,
            server_public=self._public["server"], proxy_public=self._public["proxy"],
            now=self._launcher.clock(),
        )  # fmt: skip


@contextmanager
def process_storm(launcher: Launcher, folder: Path, weather: Weather, **options: Any) -> Iterator[ProcessStorm]:
    """One that has begun; whatever happens, its processes end."""
    storm = ProcessStorm(launcher, folder, weather, **options)
    with relaying(*storm.relays):
        try:
            storm.begin()
            yield storm
        finally:
            storm.end_all()
