"""The state of a simulated round of counting on disk: both parties' stores and ledgers in one folder."""

from __future__ import annotations

from pathlib import Path

from tacit.errors import BadInput
from tacit.gather.protocol.rounds import Round
from tacit.gather.simulate.rounds import PartyStores
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore


def stores_in_folder(folder: Path, round: Round) -> PartyStores:
    """In a folder that is empty or not there yet; both ledgers have room for this round."""
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"expected an empty folder, got {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    ledgers = [LedgerStore.open(folder / f"{party}-ledger.sqlite") for party in ("proxy", "server")]
    for each in ledgers:
        each.grant(round.line, round.cost)
    return PartyStores(
        SqlProxyStore.open(folder / "proxy.sqlite"), SqlServerStore.open(folder / "server.sqlite"), *ledgers
    )
