"""How far a party's rounds are, by its store and its ledger, and giving one up; it need not be running."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from tacit.errors import BadInput, GatherError
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.rounds import Round
from tacit.gather.proxy.store import ProxyPhase
from tacit.gather.server.store import ServerPhase
from tacit.services.problems import NotGranted
from tacit.services.rounds import expect_granted
from tacit.services.settings import PartySettings
from tacit.services.signatures import Party
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore

UNRELEASED = ("open", "closed", "agreed")
"""Phases of a round whose release is still to be paid for."""

STOPPABLE = ("open", "closed")
"""Phases in which nothing of a round has left."""


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
    with closing(_open_store(settings)) as store:
        return [
            _round_status(settings, store, Round.from_bytes(each.body), str(each.phase))
            for each in store.rounds()
        ]


def _open_store(settings: PartySettings) -> SqlProxyStore | SqlServerStore:
    kind: type[SqlProxyStore | SqlServerStore] = (
        SqlProxyStore if settings.party is Party.PROXY else SqlServerStore
    )
    return kind.open(settings.gathered)


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


def stop_round(settings: PartySettings, task: str, level: int) -> str:
    """Give a round up at one party, before anything of it has left; the phase that it is in then.

    The service may run: it looks at the phase before every step. Nothing was paid for it, and nothing will be.
    A server has one word for a round without a result, too-few.
    """
    with closing(_open_store(settings)) as store:
        rounds = {Round.from_bytes(each.body): str(each.phase) for each in store.rounds()}
        named = [round for round in rounds if (round.task, round.level) == (task, level)]
        if not named:
            known = ", ".join(sorted({round.task for round in rounds})[:5]) or "none"
            raise BadInput(
                f"expected a round of the {settings.party}, got {task} {level}: its tasks are {known}"
            )
        digest, before = named[0].digest, rounds[named[0]]
        if before not in STOPPABLE:
            raise GatherError(
                f"expected {task} {level} to be open or closed, got {before}: what is agreed may have left, "
                "and what is settled is over"
            )
        if isinstance(store, SqlProxyStore):
            given_up = frozenset({ProxyPhase.OPEN, ProxyPhase.CLOSED})
            store.set_phase(digest, ProxyPhase.STOPPED, only_from=given_up)
            return str(ProxyPhase.STOPPED)
        store.set_phase(digest, ServerPhase.TOO_FEW, only_from=frozenset({ServerPhase.OPEN}))
        return str(ServerPhase.TOO_FEW)
