"""An ad server that asks by schedule, a proxy, and devices that answer: billing and gathering in one process.

world = StatisticsWorld(tmp_path)
world.wait_for_epoch()
world.rounds.look()                        # opens the period's round
device = world.counting_device(1)
...
world.now += OPEN_SECONDS + 60
world.wait_for_result()
world.rounds.look()                        # a version of statistics
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from tacit.deliver.campaigns.campaign import AdCampaign
from tacit.deliver.campaigns.creatives import check_creative
from tacit.deliver.campaigns.store import MACHINE, Advertiser, Author
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import MemoryJournal
from tacit.deliver.device.settings import DeviceSettings, StatisticsConsent
from tacit.deliver.device.shown_log import MemoryShownLog
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.entropy import Entropy, Simulation
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.rounds import check_key_hash
from tacit.gather.proxy.party import Proxy
from tacit.gather.server.party import Server
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.services import proxy as proxy_service
from tacit.services import server as server_service
from tacit.services import trial
from tacit.services.ads.campaign_menus import CampaignMenus
from tacit.services.ads.parts import PARTS, Gathering, RunningAds
from tacit.services.ads.statistics import ScheduledRounds, statistics_part
from tacit.services.ads.versions import RatesInUse
from tacit.services.background import AppPart
from tacit.services.device_rounds import CountingDevice
from tacit.services.epochs import MenuSource
from tacit.services.http_clients import HttpLink, HttpRounds, HttpUploads, PublicKeys
from tacit.services.rounds import QuestionFiles
from tacit.services.server import OwnRounds
from tacit.services.settings import ServicePace, load_parties, load_settings
from tacit.services.signatures import Party
from tacit.store.campaigns import SqlCampaignStore
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tacit.store.versions import SqlVersionStore
from tests.support.ads_services import AdsWorld
from tests.support.billing_services import SERVER_HOST
from tests.support.service_worlds import CHECK, ENROLMENT, OPERATOR, PROXY_URL

OPEN_SECONDS, EVERY_SECONDS = 1_800, 3_600
EPSILON = 400.0
"""So that noise is hardly ever more than 0."""
LINE = Line("menu rates", Unit(UnitKind.DEVICE), Relation.ZERO_OUT)
TABLE = f"""
[statistics]
every_hours = 1
open_hours = 0.5
devices = 100
smallest_batch = 3
epsilon = {EPSILON}
events = 10
"""


class StatisticsWorld(AdsWorld):
    """Both parties with both of their works. `rounds` is the schedule, which looks when it is told to.

    With a `market` in TOML menus are made of the campaigns in the store, at the rates of the versions in use;
    `campaigns` are put there first.
    """

    rounds: ScheduledRounds

    def __init__(
        self,
        folder: Path,
        *,
        granted: float = 100 * EPSILON,
        table: str = TABLE,
        market: str | None = None,
        campaigns: Sequence[AdCampaign] = (),
        **more: Any,
    ) -> None:
        trial_folder = folder / "trial"
        trial.write_trial(trial_folder, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
        with (trial_folder / "server.toml").open("a") as settings:
            settings.write(table)
        self._settings = {party: load_settings(trial_folder / f"{party}.toml", party) for party in self.PARTIES}
        self.parties = load_parties(trial_folder / "parties.toml")
        self.ledgers = {party: LedgerStore.open(each.ledger) for party, each in self._settings.items()}
        for ledger in self.ledgers.values():
            if granted:
                ledger.grant(LINE, Budget.of(granted))
        self.server_rounds = SqlServerStore.open(self._settings[Party.SERVER].gathered)
        self.proxy_rounds = SqlProxyStore.open(self._settings[Party.PROXY].gathered)
        self._uploads = QuestionFiles(folder / "questions")
        self._campaign_market, self._campaigns = market, tuple(campaigns)
        super().__init__(folder, **more)

    PARTIES = (Party.PROXY, Party.SERVER)

    def sealing(self, party: Party) -> SealingKey:
        return SealingKey.from_bytes(self._settings[party].secrets["sealing"])

    def source(self) -> MenuSource:
        if self._campaign_market is None:
            return super().source()
        self.market.write_text(self._campaign_market)
        store, by = SqlCampaignStore(self.ads.database), Author(MACHINE, self.now)
        for each in self._campaigns:
            store.put_advertiser(Advertiser(each.advertiser), by)
            store.add_campaign(each, by)
            record = {"kind": "text", "title": each.title, "address": "https://ads.example"}
            store.add_creative(*check_creative(record, each.number, lambda markup, _: markup), by)
        versions = SqlVersionStore(self.ads.database)
        return CampaignMenus(
            self.market, store, lambda nodes, default: RatesInUse(versions, nodes, store, default=default).book
        )

    def more_parts(self) -> list[AppPart]:
        self.counting = Server(
            self.sealing(Party.SERVER), self.server_rounds, self.ledgers[Party.SERVER], check_key=CHECK
        )
        opener = HttpRounds(self.calls(Party.SERVER, Party.PROXY))
        own = OwnRounds(self.counting, self.ledgers[Party.SERVER], opener)
        gathering = Gathering(self.server_rounds, self.ledgers[Party.SERVER], own, check_key_hash(CHECK))
        clock = self.clock_of(Party.SERVER)
        self.running = RunningAds.of(
            self._settings[Party.SERVER], self.ads, self.server, self.keeper,
            self.gate(Party.OPERATOR, Party.SERVER, OPERATOR), Entropy(), clock, gathering,
        )  # fmt: skip
        self.rounds = scheduled(self.running)
        return [part(self.running) for part in PARTS if part is not statistics_part]

    def _app(self, host: str, part: AppPart) -> Starlette:
        pace = ServicePace(commit_wait_ms=2, look_every_ms=5)
        if host == SERVER_HOST:
            return server_service.create_app(
                self.counting, self.server_rounds, self.ledgers[Party.SERVER],
                HttpRounds(self.calls(Party.SERVER, Party.PROXY)), self.gate(Party.PROXY, Party.SERVER),
                self.gate(Party.OPERATOR, Party.SERVER, OPERATOR), clock=self.clock_of(Party.SERVER),
                keep_days=30, watched={}, billing=part,
            )  # fmt: skip
        proxy = Proxy(
            self.sealing(Party.PROXY), self.proxy_rounds, self.ledgers[Party.PROXY],
            enrolment_secret=ENROLMENT, check_key=CHECK,
        )  # fmt: skip
        return proxy_service.create_app(
            proxy, self.proxy_rounds, self.ledgers[Party.PROXY], self._uploads,
            HttpLink(self.calls(Party.PROXY, Party.SERVER)), self.gate(Party.SERVER, Party.PROXY),
            enrolment_secret=ENROLMENT, clock=self.clock_of(Party.PROXY), timer=lambda: float(self.now),
            entropy=Simulation("pauses"), pace=pace, keep_days=30, watched={}, billing=part,
        )  # fmt: skip

    def _start(self, host: str, part: AppPart) -> None:
        app = self._app(host, part)
        living = app.router.lifespan_context(app)
        self._loop.run(living.__aenter__())
        self._living[host], self._apps[host] = living, app

    def end(self) -> None:
        super().end()
        self.server_rounds.close()
        self.proxy_rounds.close()

    # Devices

    def asking_device(self, number: int, questions: tuple[str, ...] | None = None, **more: Any) -> AdDevice:
        """A device whose person agreed to choices and to counting, of all or of some families of rounds."""
        consent = StatisticsConsent(allowed=True, per_round=Fraction(EPSILON), questions=questions)
        settings = DeviceSettings(
            self.hierarchy, DisclosureLevel((1, 1)), consent=True, prefetch=2, **{"statistics": consent, **more}
        )
        return AdDevice(
            settings, self.keys, MemoryJournal(), self.channel(), Simulation(number), log=MemoryShownLog(),
            simulated=True,
        )  # fmt: skip

    def counting_device(self, number: int, device: AdDevice) -> CountingDevice:
        name = number.to_bytes(16, "little")
        keys = PublicKeys(self.parties.proxy.public_key, self.parties.server.public_key)
        memory = MemoryDeviceStore()
        reporter = Reporter(
            name, credentials.issue_device_key(ENROLMENT, name), Simulation(number), memory,
            proxy_key=keys.proxy, server_key=keys.server, simulated=True,
        )  # fmt: skip
        uploads = HttpUploads(
            self.client, PROXY_URL, reporter, keys, entropy=Simulation(number), sleep=lambda _: None, attempts=1
        )
        return CountingDevice(
            device, uploads, memory, Simulation(f"chosen {number}"), clock=lambda: self.now
        )  # fmt: skip

    def wait_for_result(self, count: int = 1) -> None:
        """Until so many rounds are settled at the server."""

        def settled() -> int:
            phases = [str(each.phase) for each in self.server_rounds.rounds()]
            return sum(phase in ("released", "too-few") for phase in phases)

        self.wait_until(lambda: settled() >= count)


def scheduled(running: RunningAds) -> ScheduledRounds:
    """The schedule that the ad server's part runs."""
    [look] = statistics_part(running).looks
    found = getattr(look, "__self__", None)
    assert isinstance(found, ScheduledRounds)
    return found
