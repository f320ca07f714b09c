"""Parts of the ad server's app beside billing itself: each a function from what they share to an `AppPart`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from starlette.types import ASGIApp

from tacit.bill.server.party import AdServer
from tacit.deliver.server.pacing import PacingSettings
from tacit.entropy import Entropy
from tacit.services.ads.access import AccessGate, AccessLimits, AddressBuckets, PacedEndpoint
from tacit.services.ads.api import AdsApi, description_route
from tacit.services.ads.campaign_api import campaign_part
from tacit.services.ads.console.part import console_part
from tacit.services.ads.console.verification import InvoiceCheck
from tacit.services.ads.menu_board import MenuBoard, menu_part
from tacit.services.ads.notices import SendReport
from tacit.services.ads.openrtb import openrtb_part
from tacit.services.ads.pacer import Pacer
from tacit.services.ads.pacing_part import pacing_part
from tacit.services.ads.packs import pack_part
from tacit.services.ads.reports import report_part
from tacit.services.ads.statistics import RoundsParty, statistics_part
from tacit.services.ads.versions import version_part
from tacit.services.background import AppPart
from tacit.services.billing_settings import AdServerSettings
from tacit.services.endpoints import Clock
from tacit.services.epochs import EpochKeeper
from tacit.services.page.device_files import device_part
from tacit.services.page.part import page_part
from tacit.services.page.seen import SeenMessages
from tacit.services.settings import PartySettings
from tacit.services.signatures import RequestGate
from tacit.store.billing_ads import SqlAdStore
from tacit.store.campaigns import SqlCampaignStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tacit.store.pacing import SqlPacingStore
from tacit.store.versions import SqlVersionStore


@dataclass(frozen=True, eq=False)
class Gathering:
    """What the same server keeps of statistics: its rounds, and the ledger that they are paid from.

    party  opens rounds by itself, and tells what they released; None where it only looks
    check  the hash of the key that both parties check proofs by
    """

    rounds: SqlServerStore
    ledger: LedgerStore
    party: RoundsParty | None = None
    check: bytes = b""


@dataclass(frozen=True, eq=False)
class RunningAds:
    """What the parts of an ad server share.

    campaigns  what it sells, in the database of `store`
    board      the menus that are offered now
    pacer      what campaigns can be over their budgets
    gate, api  who asks by an access key, and the operations that such keys are for
    gathering  rounds and ledger, where the server gathers statistics too
    send_report  hands a report to the proxy, as a device does; None: over HTTP, by the settings
    seen       the messages that it got last, in a demonstration
    """

    settings: PartySettings
    store: SqlAdStore
    server: AdServer
    keeper: EpochKeeper
    operator_gate: RequestGate
    entropy: Entropy
    clock: Clock
    campaigns: SqlCampaignStore
    board: MenuBoard
    gate: AccessGate
    api: AdsApi
    pacer: Pacer
    gathering: Gathering | None = None
    send_report: SendReport | None = None
    seen: SeenMessages | None = None

    @cached_property
    def versions(self) -> SqlVersionStore:
        """Statistics and models, in the database of `store`."""
        return SqlVersionStore(self.store.database)

    @cached_property
    def invoice_check(self) -> InvoiceCheck:
        """The auditor's check of all invoices, whoever begins it."""
        return InvoiceCheck(self.store, lambda: self.server.public_keys, self.clock)

    @cached_property
    def limits(self) -> AccessLimits:
        """How often keys and addresses may ask, by the settings."""
        return _limits(self.settings)

    @cached_property
    def _keyless(self) -> AddressBuckets:
        return AddressBuckets(self.limits.menus_per_address)

    def paced(self, endpoint: ASGIApp) -> ASGIApp:
        """An endpoint that needs no key, for each address as often as it may ask all such ones together."""
        return PacedEndpoint(endpoint, self._keyless) if self.limits.menus_per_address else endpoint

    @classmethod
    def of(
        cls,
        settings: PartySettings,
        store: SqlAdStore,
        server: AdServer,
        keeper: EpochKeeper,
        operator_gate: RequestGate,
        entropy: Entropy,
        clock: Clock,
        gathering: Gathering | None = None,
        pacer: Pacer | None = None,
        send_report: SendReport | None = None,
        seen: SeenMessages | None = None,
    ) -> RunningAds:
        """With what follows from the rest."""
        if pacer is None:
            pacer = Pacer(SqlPacingStore(store.database), PacingSettings(on=False), clock)
        campaigns = SqlCampaignStore(store.database)
        gate = AccessGate(campaigns, clock, _limits(settings))
        board = MenuBoard(server, keeper, clock)
        return cls(
            settings, store, server, keeper, operator_gate, entropy, clock, campaigns, board, gate,
            AdsApi(gate, clock), pacer, gathering, send_report, seen,
        )  # fmt: skip

    @property
    def is_synthetic(self) -> bool:
        """Whether its settings say that the market is made up."""
        billing = self.settings.billing
        return isinstance(billing, AdServerSettings) and billing.synthetic


def _limits(settings: PartySettings) -> AccessLimits:
    billing = settings.billing
    if not isinstance(billing, AdServerSettings):
        return AccessLimits()
    return AccessLimits(
        billing.requests_per_key,
        billing.failures_per_address,
        menus_per_address=billing.menus_per_address,
    )


def description_part(running: RunningAds) -> AppPart:
    """What OpenAPI clients read, of all parts."""
    return AppPart(routes=[description_route(running.api)])


PARTS: tuple[Callable[[RunningAds], AppPart], ...] = (
    menu_part, openrtb_part, pack_part, pacing_part, campaign_part, report_part, console_part,
    statistics_part, version_part, description_part, device_part, page_part,
)  # fmt: skip
"""In the order of their routes."""
