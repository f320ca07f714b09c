"""The table [billing] of a party's settings: with it, the party bills impressions beside gathering statistics.

Of the ad server, which is the server with this table:

    [billing]
    store = "ads.sqlite"                 # a path, or postgresql+psycopg://...
    evidence = "priors.sqlite"           # what charges say of devices' scores; by default beside the store
    market = "market.toml"               # campaigns, contexts and bids: see `market_file`
    proxy_signing_key = "64 hexadecimal digits"
    signing_workers = 2                  # threads that sign tokens
    keep_days = 7                        # days after its end for which an epoch's private keys are kept

Of the proxy:

    [billing]
    store = "reports.sqlite"
    server_signing_key = "64 hexadecimal digits"
    hold_seconds = 60                    # reports of a menu may leave after so long, where they are enough;
                                         # without this key, which hides best, when their epoch expires
    batch_most = 10000                   # reports that leave together
    offers_per_address = 0               # requests for offers per minute from one address; 0: no limit
    keep_days = 30                       # days after its end for which an epoch's statements are kept

A party's own signing key follows from its sealing key. Both signing keys stand in parties.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.bill.protocol.batches import MOST_REPORTS
from tacit.bill.proxy.party import HoldRule
from tacit.config import ConfigTable
from tacit.errors import BadInput
from tacit.sealing import KEY_BYTES
from tacit.services.signatures import Party

MOST_WORKERS = 64
MOST_DAYS = 36_500
KEYS = {
    Party.SERVER: ("store", "evidence", "market", "proxy_signing_key", "signing_workers", "keep_days"),
    Party.PROXY: (
        "store", "server_signing_key", "hold_seconds", "batch_most", "offers_per_address", "keep_days"
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


@dataclass(frozen=True)
class BillingProxySettings:
    """How the proxy takes and releases reports. `keep_days`: for so long a device can ask for its cohort."""

    store: str
    server_signing_key: bytes
    hold: HoldRule
    offers_per_address: int = 0
    keep_days: int = 30


BillingSettings = AdServerSettings | BillingProxySettings


def read_billing(
    record: Mapping[str, Any], party: Party, folder: Path, *, others: Mapping[str, str], behind_tls: bool
) -> BillingSettings | None:
    """The table [billing] of a party's settings, if there is one; `others` are its other stores, by key."""
    if "billing" not in record:
        return None
    table = ConfigTable.under(record, "billing", KEYS[party], folder)
    store = table.place("store")
    for key, place in others.items():
        if store == place:
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
        )
    offers = table.whole("offers_per_address", 0, at_most=1_000_000)
    if behind_tls and offers:
        raise BadInput(
            "billing.offers_per_address: expected 0 with behind_tls = true, got a limit: requests then have "
            "the reverse proxy's address, and it has to limit those of others"
        )
    return BillingProxySettings(
        store,
        read_public_key(table, "server_signing_key"),
        HoldRule(
            table.whole("hold_seconds", at_most=86_400) if "hold_seconds" in table else None,
            table.whole("batch_most", 10_000, at_least=1, at_most=MOST_REPORTS),
        ),
        offers,
        table.whole("keep_days", 30, at_most=MOST_DAYS),
    )


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
