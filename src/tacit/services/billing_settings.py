"""The table [billing] of a party's settings: with it, the party bills impressions beside gathering statistics.

Of the ad server, which is the server with this table:

    [billing]
    store = "ads.sqlite"                 # a path, or postgresql+psycopg://...
    witness = "/witness/ads"             # notices an old copy of the store that was put back: keep it where a
                                         # restored backup or snapshot of the store does not bring it back, too
    evidence = "priors.sqlite"           # what charges say of devices' scores; by default beside the store
    market = "market.toml"               # campaigns, contexts and bids: see `market_file`
    proxy_signing_key = "64 hexadecimal digits"
    signing_workers = 2                  # threads that sign tokens
    keep_days = 7                        # days after its end for which an epoch's private keys are kept
    synthetic = false                    # whether the market is made up: the console says so, and on this very
                                         # machine the demonstration's page is served (`page`)
    parties = "parties.toml"             # what devices are told of both parties; by default beside these
                                         # settings, where it is there
    requests_per_key = 6000              # of the API, per minute and access key; 0: no limit
    failures_per_address = 60            # requests per minute from one address whose access key, or exchange's
                                         # key, does not hold; 0: no limit
    menus_per_address = 6000             # requests per minute from one address for menus and packs; 0: no limit

    [pacing]                             # beside it: how far over budget campaigns can go at worst
    on = true
    share = 0.02                         # of its budget, and of its daily one, by which a campaign may be over
    even = true                          # daily budgets are spread over the hours in which a campaign runs
    first_tokens = 256                   # forecast for a menu of which nothing is known yet
    room = 2                             # tokens that a menu is given, times its forecast
    late_seconds = 600                   # after an epoch's expiry, in which its batches are still awaited

Of the proxy:

    [billing]
    store = "reports.sqlite"
    witness = "/witness/reports"         # as the ad server's; by default beside the store
    server_signing_key = "64 hexadecimal digits"
    hold_seconds = 60                    # reports of a menu may leave after so long, where they are enough;
                                         # without this key, which hides best, when their epoch expires
    batch_most = 10000                   # reports that leave together
    offers_per_address = 0               # requests for offers per minute from one address; 0: no limit
    keep_days = 30                       # days after its end for which an epoch's statements are kept
    synthetic = false                    # whether the market is made up: on this very machine the page of
                                         # the demonstration is told what the proxy saw last

A party's own signing key follows from its sealing key. Both signing keys stand in parties.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tacit.bill.protocol.batches import MOST_REPORTS
from tacit.bill.proxy.party import HoldRule
from tacit.config import ConfigTable
from tacit.deliver.server.pacing import PacingSettings
from tacit.errors import BadInput
from tacit.sealing import KEY_BYTES
from tacit.services.signatures import Party

MOST_WORKERS = 64
MOST_DAYS = 36_500
MOST_PER_MINUTE = 1_000_000
REQUESTS_PER_KEY, FAILURES_PER_ADDRESS, MENUS_PER_ADDRESS = 6_000, 60, 6_000
KEYS = {
    Party.SERVER: (
        "store", "witness", "evidence", "market", "proxy_signing_key", "signing_workers", "keep_days",
        "synthetic", "requests_per_key", "failures_per_address", "parties",
        "menus_per_address",
    ),
    Party.PROXY: (
        "store", "witness", "server_signing_key", "hold_seconds", "batch_most", "offers_per_address",
        "keep_days", "synthetic",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class AdServerSettings:
    """How the server bills. `keep_days`: for so long a batch that is late can still be opened and charged."""

    store: str
    evidence: str
    market: Path
    proxy_signing_key: bytes
    signing_workers: int = 2
    keep_days: int = 7
    synthetic: bool = False
    pacing: PacingSettings = field(default_factory=PacingSettings)
    requests_per_key: int = REQUESTS_PER_KEY
    failures_per_address: int = FAILURES_PER_ADDRESS
    witness: Path | None = None
    parties: Path | None = None
    menus_per_address: int = MENUS_PER_ADDRESS


@dataclass(frozen=True)
class BillingProxySettings:
    """How the proxy takes and releases reports. `keep_days`: for so long a device can ask for its cohort."""

    store: str
    server_signing_key: bytes
    hold: HoldRule
    offers_per_address: int = 0
    keep_days: int = 30
    witness: Path | None = None
    synthetic: bool = False


BillingSettings = AdServerSettings | BillingProxySettings


def read_billing(
    record: Mapping[str, Any], party: Party, folder: Path, *, others: Mapping[str, str], behind_tls: bool
) -> BillingSettings | None:
    """The table [billing] of a party's settings, if there is one; `others` are its other stores, by key."""
    if "pacing" in record and not ("billing" in record and party is Party.SERVER):
        raise BadInput("pacing: expected no such table but beside [billing] of an ad server, got one")
    if "billing" not in record:
        return None
    table = ConfigTable.under(record, "billing", KEYS[party], folder)
    store = table.place("store")
    for key, place in others.items():
        if store == place and "://" not in store:  # a PostgreSQL database holds tables of several kinds
            raise BadInput(f"billing.store: expected a place of its own, got that of {key}")
    if party is Party.SERVER:
        evidence = table.place("evidence") if "evidence" in table else _beside(store)
        for key, place in {**others, "billing.store": store}.items():
            if evidence == place and "://" not in evidence:
                raise BadInput(f"billing.evidence: expected a place of its own, got that of {key}")
        return AdServerSettings(
            store,
            evidence,
            table.file("market"),
            read_public_key(table, "proxy_signing_key"),
            table.whole("signing_workers", 2, at_least=1, at_most=MOST_WORKERS),
            table.whole("keep_days", 7, at_least=1, at_most=MOST_DAYS),
            table.flag("synthetic"),
            _read_pacing(record),
            table.whole("requests_per_key", REQUESTS_PER_KEY, at_most=MOST_PER_MINUTE),
            _per_address(table, "failures_per_address", FAILURES_PER_ADDRESS, behind_tls=behind_tls),
            _read_witness(table, record, party, folder),
            _read_parties(table, folder),
            _per_address(table, "menus_per_address", MENUS_PER_ADDRESS, behind_tls=behind_tls),
        )
    offers = _per_address(table, "offers_per_address", 0, behind_tls=behind_tls)
    return BillingProxySettings(
        store,
        read_public_key(table, "server_signing_key"),
        HoldRule(
            table.whole("hold_seconds", at_most=86_400) if "hold_seconds" in table else None,
            table.whole("batch_most", 10_000, at_least=1, at_most=MOST_REPORTS),
        ),
        offers,
        table.whole("keep_days", 30, at_most=MOST_DAYS),
        _read_witness(table, record, party, folder),
        table.flag("synthetic"),
    )


def _read_pacing(record: Mapping[str, Any]) -> PacingSettings:
    known = [each.name for each in fields(PacingSettings)]
    table = ConfigTable.under(record, "pacing", known)
    try:
        return PacingSettings(**table.everything())
    except BadInput as wrong:
        raise BadInput(f"pacing.{wrong}") from None


def _per_address(table: ConfigTable, key: str, default: int, *, behind_tls: bool) -> int:
    """A limit per address and minute, which nothing can be behind a reverse proxy."""
    limit = table.whole(key, 0 if behind_tls else default, at_most=MOST_PER_MINUTE)
    if behind_tls and limit:
        raise BadInput(
            f"billing.{key}: expected 0 with behind_tls = true, got a limit: requests then have the reverse "
            "proxy's address, and it has to limit those of others"
        )
    return limit


def _read_witness(table: ConfigTable, record: Mapping[str, Any], party: Party, folder: Path) -> Path:
    """By default beside a store in a file; of one in PostgreSQL beside the ledger's witness or the settings."""
    found = table.optional_file("witness")
    if found is not None:
        return found
    store = table.place("store")
    if "://" not in store:
        return Path(f"{store}.witness")
    beside = ConfigTable.under(record, "store", tuple(record["store"]), folder).optional_file("witness")
    return (folder if beside is None else beside.parent) / f"{party}-billing.witness"


def _read_parties(table: ConfigTable, folder: Path) -> Path | None:
    """As given; by default beside the settings, where such a file is there."""
    found, beside = table.optional_file("parties"), folder / "parties.toml"
    return beside if found is None and beside.is_file() else found


def _beside(store: str) -> str:
    """In the database of the store, or in a file beside its own."""
    return store if "://" in store else str(Path(store).with_name("priors.sqlite"))


def read_public_key(table: ConfigTable, key: str) -> bytes:
    """A public key of 32 bytes, in hexadecimal digits."""
    try:
        found = bytes.fromhex(table.text(key))
    except ValueError:
        found = b""
    if len(found) != KEY_BYTES:
        raise BadInput(f"{table.name(key)}: expected {2 * KEY_BYTES} hexadecimal digits, got another text")
    return found
