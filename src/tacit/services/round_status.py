"""How far a party's rounds are, from its store and its ledger; the party need not be running."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.rounds import Round
from tacit.services.problems import NotGranted
from tacit.services.rounds import expect_granted
from tacit.services.settings import PartySettings
from tacit.services.signatures import Party
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore

UNRELEASED = ("open", "closed", "agreed")
"""Phases of a round whose release is still to be paid for."""


@dataclass(frozen=True)
class RoundStatus:
    """One round at one party. `waiting` are uploads that the proxy has not settled; a server knows of none."""

    task: str
    level: int
    phase: str
    closes: int
    waiting: int | None
    accepted: int
    smallest_batch: int
    needs: str | None  # what keeps it from its release, as far as this party's ledger can tell
    digest: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def round_statuses(settings: PartySettings) -> list[RoundStatus]:
    """Every round in the store of the party with these settings."""
    kind: type[SqlProxyStore | SqlServerStore] = (
        SqlProxyStore if settings.party is Party.PROXY else SqlServerStore
    )
    with closing(kind.open(settings.gathered)) as store:
        return [
            _round_status(settings, store, Round.from_bytes(each.body), str(each.phase))
            for each in store.rounds()
        ]


def _round_status(
    settings: PartySettings, store: SqlProxyStore | SqlServerStore, round: Round, phase: str
) -> RoundStatus:
    return RoundStatus(
        task=round.task,
        level=round.level,
        phase=phase,
        closes=round.closes,
        waiting=store.waiting_count(round.digest) if isinstance(store, SqlProxyStore) else None,
        accepted=store.accepted_count(round.digest),
        smallest_batch=round.smallest_batch,
        needs=_missing_grant(settings, round) if phase in UNRELEASED else None,
        digest=round.digest.hex(),
    )


def _missing_grant(settings: PartySettings, round: Round) -> str | None:
    ledger = LedgerStore.open(settings.ledger, witness=settings.witness)
    try:
        expect_granted(ledger, round, PartyRole(str(settings.party)))
    except NotGranted as missing:
        return f"a grant of epsilon {missing.epsilon}, delta {missing.delta} on scope {missing.scope}"
    return None
