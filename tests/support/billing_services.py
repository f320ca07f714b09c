"""Both parties of billing as web services in one process: the real apps and stores, on a clock that tests set.

    with a_billing_world(folder) as world:
        world.wait_for_epoch()
        device = world.device(1)
        device.show(("Northport", "Coffee"), liking, world.now)
        device.send_reports(world.now)
        world.bill()

Keys of RSA are the few that `billing_worlds` draws once. The network can be meddled with, and any party stopped
and started again on what its store holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.middleware import Middleware

from tacit.arrays import Floats
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.proxy.party import BillingProxy, HoldRule
from tacit.bill.server.party import AdServer
from tacit.bill.server.token_counter import ReservedTokens
from tacit.bill.server.token_keys import TokenKey
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.journal import MemoryJournal
from tacit.deliver.device.parties import PartyKeys
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.server.pacing import PacingSettings
from tacit.entropy import Entropy, Simulation
from tacit.errors import TacitError
from tacit.schema.contexts.hierarchy import load_hierarchy
from tacit.services import trial
from tacit.services.ads.pacer import Pacer
from tacit.services.background import AloneOwner, AppPart, join_parts, run_background
from tacit.services.billing_clients import (
    HttpAdChannel,
    HttpBatches,
    HttpBillingOperator,
    HttpDirectories,
)
from tacit.services.billing_driver import BatchDriver, BillingRetention
from tacit.services.billing_proxy import AddressLimit, OfferRelay, ReportIntake, billing_proxy_part
from tacit.services.billing_server import ad_server_part
from tacit.services.epochs import EpochKeeper, MenuSource
from tacit.services.http_clients import LinkFailed, SignedClient
from tacit.services.key_maker import KeyMaker
from tacit.services.market_file import MarketFile
from tacit.services.problems import HANDLERS, CatchAllMiddleware
from tacit.services.proxy_driver import LinkState
from tacit.services.settings import ServicePace
from tacit.services.signatures import ExchangeKeys, Party, RequestGate
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit.store.campaigns import SqlCampaignStore
from tacit.store.pacing import SqlPacingStore
from tests.support.billing_worlds import token_key
from tests.support.listed_market import LISTED_MARKET
from tests.support.service_worlds import OPERATOR, PAIR, PROXY_URL, SERVER_URL, InProcess, Loop, honest

EPOCH_SECONDS, REPORT_SECONDS, COHORT = 600, 3600, 3
START = 1_800_000_000  # on the grid of epochs
SECRETS = {Party.PROXY: b"P" * 32, Party.SERVER: b"S" * 32}  # what sealing and signing keys follow from
HERE, THERE, UNKNOWN = ("Northport", "Coffee"), ("Southwick", "Running"), ("Harbour", "Tea")
MARKET = (
    LISTED_MARKET.replace("epoch_seconds = 60 ", f"epoch_seconds = {EPOCH_SECONDS} ")
    .replace("report_seconds = 600 ", f"report_seconds = {REPORT_SECONDS} ")
    .replace("smallest_cohort = 5 ", f"smallest_cohort = {COHORT} ")
)
SERVER_HOST, PROXY_HOST = "server.test", "proxy.test"


class FewKeys(KeyMaker):
    """Keys that were drawn before, as long as the service goes on."""

    def __call__(self) -> TokenKey:
        if self._ended.is_set():
            raise LinkFailed("this service is ending")
        return token_key()


def liking(menu: Menu, context: DeviceContext) -> Floats:  # noqa: ARG001 (as `DeviceRates`)
    """Somebody who likes the last candidate best."""
    return np.linspace(0.01, 0.09, len(menu.ads))


class BillingWorld:
    """An ad server and a proxy that reach each other, and devices that reach the proxy."""

    market_text = MARKET

    def __init__(
        self,
        folder: Path,
        *,
        hold_seconds: int = 5,
        offers_per_address: int = 0,
        keep_days: int = 7,
        pacing: PacingSettings | None = None,
        ads_store: str | None = None,
    ) -> None:
        self._pacing = pacing
        self.now = START + 10
        self.proxy_now: int | None = None  # by its own clock, where that is wrong
        self.server_now: int | None = None
        self.folder, self.market = folder, folder / "market.toml"
        self.market.write_text(self.market_text)
        (folder / "contexts.toml").write_text(trial.CONTEXTS)
        self.hierarchy = load_hierarchy(folder / "contexts.toml")
        self._hold_seconds, self._offers, self._keep_days = hold_seconds, offers_per_address, keep_days
        self._ads_store = folder / "ads.sqlite" if ads_store is None else ads_store
        self.open_stores()
        self.signing = {party: SigningKey.derive(secret) for party, secret in SECRETS.items()}
        self.keys = PartyKeys(
            OpeningKey(SECRETS[Party.SERVER]).public, self.signing[Party.SERVER].public,
            self.signing[Party.PROXY].public,
        )  # fmt: skip
        self._loop = Loop()
        self._living: dict[str, AbstractAsyncContextManager[Any]] = {}
        self._apps: dict[str, Starlette] = {}
        self.network = InProcess(self._loop, self._apps)
        self.client = httpx.Client(transport=self.network)
        self.start_proxy()
        self.start_server()

    # The parties.

    def open_stores(self) -> None:
        """With witnesses, which must not be put back with them."""
        folder = self.folder
        self.ads = SqlAdStore.open(self._ads_store, witness=folder / "ads.witness")
        self.reports = SqlBillingProxyStore.open(folder / "reports.sqlite", witness=folder / "reports.witness")

    def clock_of(self, party: Party) -> Callable[[], int]:
        def clock() -> int:
            wrong = {Party.PROXY: self.proxy_now, Party.SERVER: self.server_now}.get(party)
            return self.now if wrong is None else wrong

        return clock

    def calls(self, caller: Party, called: Party, secret: bytes = PAIR) -> SignedClient:
        url = PROXY_URL if called is Party.PROXY else SERVER_URL
        exchange = ExchangeKeys.between(secret, caller=caller, called=called)
        return SignedClient(self.client, url, exchange, entropy=Entropy(), clock=self.clock_of(caller))

    def gate(self, caller: Party, called: Party, secret: bytes = PAIR) -> RequestGate:
        exchange = ExchangeKeys.between(secret, caller=caller, called=called)
        return RequestGate(exchange, tolerance_seconds=60, began=self.clock_of(called)())

    def start_server(self, *, proxy_public: bytes | None = None) -> None:
        """(Re)start the ad server on what its store holds."""
        self.stop(SERVER_HOST)
        clock, keys = self.clock_of(Party.SERVER), FewKeys()
        secret = SECRETS[Party.SERVER]
        self.server = AdServer(
            self.signing[Party.SERVER], OpeningKey(secret), self.ads, Entropy(), make_key=keys,
            proxy_public=proxy_public or self.signing[Party.PROXY].public,
            tokens=None if self._pacing is None else ReservedTokens(SqlPacingStore(self.ads.database)),
        )  # fmt: skip
        self.pacer = None
        if self._pacing is not None:
            self.pacer = Pacer(SqlPacingStore(self.ads.database), self._pacing, clock)
        link = HttpDirectories(self.calls(Party.SERVER, Party.PROXY))
        self.keeper = EpochKeeper(
            self.server, self.ads, link, source=self.source(), clock=clock, keys=keys,
            keep_days=self._keep_days, every_seconds=0.01, pacer=self.pacer,
        )  # fmt: skip
        part = ad_server_part(
            self.server, self.ads, self.keeper, self.gate(Party.PROXY, Party.SERVER),
            self.gate(Party.OPERATOR, Party.SERVER, OPERATOR), signing_workers=2, clock=clock, watched={},
            campaigns=SqlCampaignStore(self.ads.database),
        )  # fmt: skip
        self._start(SERVER_HOST, join_parts([part, *self.more_parts()]))

    def source(self) -> MenuSource:
        """Where menus come from."""
        return MarketFile(self.market, self.ads)

    def more_parts(self) -> list[AppPart]:
        """What else the ad server's app has: none here."""
        return []

    def start_proxy(self) -> None:
        """(Re)start the proxy on what its store holds."""
        self.stop(PROXY_HOST)
        clock, reach = self.clock_of(Party.PROXY), LinkState()
        self.proxy = BillingProxy(
            self.signing[Party.PROXY], self.reports, server_public=self.signing[Party.SERVER].public,
            hold=HoldRule(self._hold_seconds),
        )  # fmt: skip
        link = HttpBatches(self.calls(Party.PROXY, Party.SERVER))

        def drivers() -> list[Any]:
            self.driver = BatchDriver(
                self.proxy, link, reach=reach, clock=clock, entropy=Entropy(), every_seconds=0.01
            )
            return [self.driver, BillingRetention(self.reports, clock=clock, keep_days=self._keep_days)]

        part = billing_proxy_part(
            ReportIntake(self.proxy, self.reports, clock=clock, pace=ServicePace(commit_wait_ms=2)),
            self.reports, OfferRelay(link), self.gate(Party.SERVER, Party.PROXY),
            AddressLimit(self._offers, clock), drivers, clock=clock,
            watched={"billing_link": lambda: reach.works},
        )  # fmt: skip
        self._start(PROXY_HOST, part)

    def _start(self, host: str, part: AppPart) -> None:
        app = Starlette(
            routes=list(part.routes), exception_handlers=HANDLERS, middleware=[Middleware(CatchAllMiddleware)],
            lifespan=partial(run_background, partial(part.all_works, AloneOwner())),
        )  # fmt: skip
        living = app.router.lifespan_context(app)
        self._loop.run(living.__aenter__())
        self._living[host], self._apps[host] = living, app

    def app(self, host: str) -> Starlette:
        """A party's app, for who reaches it by another way."""
        return self._apps[host]

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop.loop

    def stop(self, host: str) -> None:
        if host in self._living:
            self._apps.pop(host)
            self._loop.run(self._living.pop(host).__aexit__(None, None, None))

    def end(self) -> None:
        self.network.meddle = honest
        for host in list(self._living):
            self.stop(host)
        self._loop.end()
        self.ads.close()
        self.reports.close()

    # Devices and operators.

    def channel(self) -> HttpAdChannel:
        return HttpAdChannel(
            self.client, PROXY_URL, entropy=Simulation("pauses"), sleep=lambda _: None, attempts=1
        )

    def device(self, number: int, *, journal: MemoryJournal | None = None, **settings: Any) -> AdDevice:
        """A device whose person agreed, unless it is said otherwise."""
        given = DeviceSettings(
            self.hierarchy, DisclosureLevel((1, 1)), **{"consent": True, "prefetch": 2, **settings}
        )
        kept = MemoryJournal() if journal is None else journal
        return AdDevice(given, self.keys, kept, self.channel(), Simulation(number), simulated=True)

    def operator(self, secret: bytes = OPERATOR) -> HttpBillingOperator:
        return HttpBillingOperator(self.calls(Party.OPERATOR, Party.SERVER, secret))

    def show(self, count: int, context: tuple[str, str] = HERE, first: int = 0) -> list[int]:
        """So many devices show one ad each, and report it; the prices of what they showed."""
        prices = []
        for number in range(first, first + count):
            device = self.device(number)
            prices.append(device.show(context, liking, self.now).price_micros)
            assert device.send_reports(self.now).acked == 1
        return prices

    # Waiting.

    def wait_until(self, done: Callable[[], object]) -> None:
        """Background work has a few seconds."""
        end = time.monotonic() + 10
        while not done():
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.005)

    def wait_for_epoch(self) -> None:
        """Until an epoch is open at both parties by the clock as it is now."""

        def is_open() -> bool:
            try:
                head = EpochHead.from_bytes(self.channel().head())
                return head.epoch in {each.epoch for each in self.keeper.heads()}
            except (TacitError, OSError):
                return False

        self.wait_until(is_open)

    def impressions(self) -> int:
        return sum(line.impressions for line in self.ads.totals())

    def charged_micros(self) -> int:
        return sum(line.total_micros for line in self.ads.totals())

    def bill(self, count: int, left: int = 0) -> None:
        """Let the reports' time pass, and wait until so many impressions were charged in all, and all batches
        were receipted but those that are `left`."""
        self.now += self._hold_seconds
        self.wait_until(lambda: self.impressions() >= count)
        self.wait_until(lambda: len(self.reports.undelivered()) == left)
        assert self.impressions() == count


@contextmanager
def a_billing_world(folder: Path, **options: Any) -> Iterator[BillingWorld]:
    world = BillingWorld(folder, **options)
    try:
        yield world
    finally:
        world.end()
