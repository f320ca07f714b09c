"""Starts a party's part of billing from its settings: opens its store, makes what its app is to have more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tacit.bill.protocol.batches import BatchStatement
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.proxy.party import BillingProxy
from tacit.bill.server.party import AdServer
from tacit.bill.server.token_counter import ReservedTokens
from tacit.config import blame_key
from tacit.deliver.server.rate_book import FixedRates, RateBook
from tacit.entropy import Entropy
from tacit.schema.contexts.hierarchy import Hierarchy
from tacit.services.ads.campaign_menus import CampaignMenus, open_market
from tacit.services.ads.learning import LearntMenus, PriorLearner
from tacit.services.ads.pacer import Pacer
from tacit.services.ads.parts import PARTS, Gathering, RunningAds
from tacit.services.ads.versions import RatesInUse
from tacit.services.background import NOTHING_MORE, AppPart, HealthCheck, has_free_disk, join_parts
from tacit.services.billing_clients import HttpBatches, HttpDirectories
from tacit.services.billing_driver import BatchDriver, BillingRetention
from tacit.services.billing_proxy import AddressLimit, OfferRelay, ReportIntake, billing_proxy_part
from tacit.services.billing_server import ad_server_part
from tacit.services.billing_settings import AdServerSettings, BillingProxySettings
from tacit.services.endpoints import Clock
from tacit.services.epochs import EpochKeeper, MenuSource
from tacit.services.http_clients import SignedClient, open_client
from tacit.services.key_maker import KeyMaker
from tacit.services.operations.readings import BatchMeters, look_at_market, look_at_queue
from tacit.services.page.part import proxy_page_part
from tacit.services.page.seen import AdServerSight, ProxySight, SeenMessages
from tacit.services.proxy_driver import LinkState
from tacit.services.settings import PartySettings
from tacit.services.signatures import ExchangeKeys, Party, RequestGate
from tacit.services.statistics_settings import STRENGTH
from tacit.store import billing_ads
from tacit.store import billing_proxy as billing_proxy_store
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit.store.campaigns import SqlCampaignStore
from tacit.store.figures import takes_writes
from tacit.store.pacing import SqlPacingStore
from tacit.store.prior_evidence import SqlEvidenceStore
from tacit.store.schema_revisions import PartySchema, is_served
from tacit.store.versions import SqlVersionStore

OFFER_SECONDS = 10  # a device waits for it
KEY_WORKERS = 2  # threads that draw token keys ahead

Store = TypeVar("Store")


def ad_server_billing(settings: PartySettings, *, clock: Clock, gathering: Gathering | None = None) -> AppPart:
    """What billing adds to the server of these settings; nothing where they have no table [billing]."""
    billing, secrets, entropy = settings.billing, settings.secrets, Entropy()
    if not isinstance(billing, AdServerSettings):
        return NOTHING_MORE
    store = _open_store(partial(SqlAdStore.open, billing.store, witness=billing.witness))
    keys = KeyMaker(KEY_WORKERS)
    limits, is_paced = SqlPacingStore(store.database), billing.pacing.on
    pacer = Pacer(
        limits,
        billing.pacing,
        clock,
        skew_seconds=settings.pace.tolerance_seconds,
        notice_seconds=0 if settings.openrtb is None else settings.openrtb.notice_seconds,
    )
    seen = SeenMessages(clock) if settings.is_demonstration else None
    with blame_key("billing.evidence"):
        learner = PriorLearner(store, SqlEvidenceStore.open(billing.evidence), clock=clock)
    server = AdServer(
        SigningKey.derive(secrets["sealing"]),
        OpeningKey(secrets["sealing"]),
        store,
        entropy,
        proxy_public=billing.proxy_signing_key,
        make_key=keys,
        skew_seconds=settings.pace.tolerance_seconds,
        tokens=ReservedTokens(limits) if is_paced else None,
        onlooker=None if seen is None else AdServerSight(seen),
    )
    source = _open_market(settings, billing, store, clock())
    keeper = EpochKeeper(
        server,
        store,
        HttpDirectories(_calls(settings, Party.PROXY, settings.pace.timeout_seconds, entropy, clock)),
        source=LearntMenus(source, learner),
        clock=clock,
        keys=keys,
        keep_days=billing.keep_days,
        every_seconds=settings.pace.look_every_ms / 1000,
        pacer=pacer if is_paced else None,
    )
    operator_gate = _gate(settings, "operator", Party.OPERATOR, clock, store)
    meters = BatchMeters(clock)
    charging = ad_server_part(
        server,
        store,
        keeper,
        _gate(settings, "pair", Party.PROXY, clock),
        operator_gate,
        signing_workers=billing.signing_workers,
        clock=clock,
        watched=_watched(billing.store, store, billing_ads.SCHEMA),
        note_receipt=meters.note_receipt,
        campaigns=SqlCampaignStore(store.database),
    )
    of_menus = [source.readings] if isinstance(source, CampaignMenus) else []
    figures = AppPart(
        looks=[look_at_market(store.database, keeper, clock), *of_menus],
        meters=[meters.cohorts, meters.judged, meters.last],
    )
    running = RunningAds.of(
        settings, store, server, keeper, operator_gate, entropy, clock, gathering, pacer, seen=seen
    )
    learning = AppPart(owned_works=lambda: [learner.task()])
    return join_parts([*(part(running) for part in PARTS), charging, learning, figures])


def proxy_billing(settings: PartySettings, *, clock: Clock) -> AppPart:
    """What billing adds to the proxy of these settings; nothing where they have no table [billing]."""
    billing, pace, entropy = settings.billing, settings.pace, Entropy()
    if not isinstance(billing, BillingProxySettings):
        return NOTHING_MORE
    store = _open_store(partial(SqlBillingProxyStore.open, billing.store, witness=billing.witness))
    reach = LinkState()
    proxy = BillingProxy(
        SigningKey.derive(settings.secrets["sealing"]),
        store,
        server_public=billing.server_signing_key,
        hold=billing.hold,
    )
    batches, offers = (
        HttpBatches(_calls(settings, Party.SERVER, seconds, entropy, clock))
        for seconds in (pace.timeout_seconds, min(pace.timeout_seconds, OFFER_SECONDS))
    )
    meters = BatchMeters(clock)
    seen = SeenMessages(clock) if settings.is_demonstration else None
    sight = None if seen is None else ProxySight(seen, proxy)

    def note_formed(formed: Sequence[BatchStatement]) -> None:
        meters.note_statements(formed)
        if sight is not None:
            sight.batches(formed)

    taking = billing_proxy_part(
        ReportIntake(proxy, store, clock=clock, pace=pace, onlooker=sight),
        store,
        OfferRelay(offers),
        _gate(settings, "pair", Party.SERVER, clock),
        AddressLimit(billing.offers_per_address, clock),
        lambda: [
            BatchDriver(
                proxy, batches, reach=reach, clock=clock, entropy=entropy,
                every_seconds=pace.look_every_ms / 1000, note_formed=note_formed,
            ),
            BillingRetention(store, clock=clock, keep_days=billing.keep_days),
        ],
        clock=clock,
        watched={
            "billing_link": lambda: reach.works, **_watched(billing.store, store, billing_proxy_store.SCHEMA)
        },
    )  # fmt: skip
    figures = AppPart(looks=[look_at_queue(store.database, clock, time.monotonic)], meters=[meters.cohorts])
    return join_parts([taking, figures, proxy_page_part(seen, settings.other.url)])


def _open_market(settings: PartySettings, billing: AdServerSettings, store: SqlAdStore, now: int) -> MenuSource:
    """Menus of the market's file, or of the campaigns in the store at the rates of the versions in use."""
    campaigns, versions = SqlCampaignStore(store.database), SqlVersionStore(store.database)
    strength = STRENGTH if settings.statistics is None else settings.statistics.strength

    def rates(hierarchy: Hierarchy, default: FixedRates) -> Callable[[], RateBook]:
        return RatesInUse(versions, hierarchy, campaigns, strength=strength, default=default).book

    return open_market(billing.market, store, campaigns, rates, now=now)


def _open_store(opened: Callable[[], Store]) -> Store:
    with blame_key("billing.store"):
        return opened()


def _watched(
    place: str, store: SqlAdStore | SqlBillingProxyStore, schema: PartySchema
) -> dict[str, HealthCheck]:
    checks: dict[str, HealthCheck] = {
        "billing_store": partial(takes_writes, store.database),
        "revision": partial(is_served, store.database, schema),
    }
    if "://" not in place:
        checks["billing_disk"] = partial(has_free_disk, Path(place))
    return checks


def _calls(
    settings: PartySettings, called: Party, seconds: float, entropy: Entropy, clock: Clock
) -> SignedClient:
    exchange = ExchangeKeys.between(settings.secrets["pair"], caller=settings.party, called=called)
    client = open_client(settings.other.trust, seconds)
    return SignedClient(client, settings.other.url, exchange, entropy=entropy, clock=clock)


def _gate(
    settings: PartySettings, secret: str, caller: Party, clock: Clock, shared: SqlAdStore | None = None
) -> RequestGate:
    """A gate of its own: a flood of requests for offers leaves gathering's nonces alone."""
    exchange = ExchangeKeys.between(settings.secrets[secret], caller=caller, called=settings.party)
    return RequestGate(
        exchange, tolerance_seconds=settings.pace.tolerance_seconds, began=clock(), shared=shared
    )
