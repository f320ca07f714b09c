"""Reads a room's own store for its operator, whether or not the room is running."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import Any

from tacit.cleanroom.protocol.answers import RemainingBudget
from tacit.cleanroom.protocol.audit_log import verify_log
from tacit.cleanroom.protocol.signatures import private_key
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room import quotas
from tacit.cleanroom.room.payment import budget_line, release_name
from tacit.cleanroom.room.quotas import RunQuota
from tacit.cleanroom.room.store import AuditLog
from tacit.errors import AuditBroken, BadInput
from tacit.privacy.ledger.chain import START, ChainHead
from tacit.services.room.receipts import read_agreement
from tacit.services.room.settings import RoomSettings
from tacit.store.ledger import LedgerStore
from tacit.store.room import SqlRoomStore

ENTRIES_PER_PORTION = 1000


def verify_stored_log(store: SqlRoomStore) -> ChainHead:
    """The head of the store's audit log, checked from its beginning in portions; raises AuditBroken."""
    head = START
    while portion := store.entries(head.sequence, ENTRIES_PER_PORTION):
        head = verify_log(portion, after=head)
    return head


def held_runs(settings: RoomSettings) -> dict[str, RunQuota]:
    """The runs that began under the terms in force, by name."""
    release = release_name(read_agreement("agreement.file", settings.agreement).in_force)
    if not settings.store.exists():
        return {}
    with _open_store(settings) as store, store.reading() as view:
        return quotas.run_quotas(view, release)


def hand_back_run(settings: RoomSettings, run: str, now: int) -> int:
    """Free what a run has set aside and not used, and write it to the audit log; the room may be running."""
    release = release_name(read_agreement("agreement.file", settings.agreement).in_force)
    unknown = BadInput(f"--hand-back: expected a run that began here, got {run!r}; without it, all are listed")
    if not settings.store.exists():
        raise unknown
    with _open_store(settings) as store, store.transaction() as transaction:
        if run not in quotas.run_quotas(transaction, release):
            raise unknown
        given = quotas.return_quota(transaction, release, run)
        told = {"run": run, "release": release, "releases": given}
        AuditLog(store, private_key(settings.signing)).write(transaction, "hand back", now, told)
    return given


def _open_store(settings: RoomSettings) -> AbstractContextManager[SqlRoomStore]:
    return closing(SqlRoomStore.open(settings.store, witness=settings.room_witness))


def inspect_room(settings: RoomSettings) -> tuple[Terms, RemainingBudget | None, dict[str, Any]]:
    """The terms in force, what is left (None: it never opened), and whether its audit log holds in itself."""
    terms = read_agreement("agreement.file", settings.agreement).in_force
    if not settings.store.exists():
        return terms, None, {"entries": 0, "receipts": 0, "holds": True}
    try:
        with _open_store(settings) as store:
            audit: dict[str, Any] = {"entries": verify_stored_log(store).sequence, "receipts": 0, "holds": True}
    except AuditBroken as broken:
        audit = {"holds": False, "broken": str(broken)}
    ledger = LedgerStore.open(settings.ledger, witness=settings.ledger_witness)
    account = ledger.account(budget_line(terms))
    if account is None:
        return terms, None, audit
    left, used = account.remaining.budget, account.used.budget
    return (
        terms,
        RemainingBudget(left.epsilon, left.delta, used.epsilon, used.delta, terms.releases_per_record),
        audit,
    )
