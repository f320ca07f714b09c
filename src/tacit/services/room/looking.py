"""A look at a room's own store, whether or not it is running."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import Any

from tacit.cleanroom.room import holding
from tacit.cleanroom.room.auditing import AuditLog
from tacit.cleanroom.room.counting import line_of, release_name
from tacit.cleanroom.room.holding import HeldRun
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.answers import Remaining
from tacit.cleanroom.wire.audit_log import verify
from tacit.cleanroom.wire.signing import private_key
from tacit.errors import AuditBroken, BadInput
from tacit.privacy.ledger.chain import START, Head
from tacit.services.room.files import read_agreement
from tacit.services.room.settings import RoomSettings
from tacit.store.ledger import LedgerStore
from tacit.store.room import SqlRoomStore

AT_ONCE = 1000


def verified(store: SqlRoomStore) -> Head:
    """The head of the store's audit log, checked from its beginning in portions; raises AuditBroken."""
    head = START
    while portion := store.entries(head.sequence, AT_ONCE):
        head = verify(portion, after=head)
    return head


def held_runs(settings: RoomSettings) -> dict[str, HeldRun]:
    """The runs that began under the terms in force, by name."""
    release = release_name(read_agreement("agreement.file", settings.agreement).in_force)
    if not settings.store.exists():
        return {}
    with _opened(settings) as store, store.reading() as looked:
        return holding.runs(looked, release)


def hand_back(settings: RoomSettings, run: str, now: int) -> int:
    """Free what a run has set aside and not used, and write it to the audit log; the room may be running."""
    release = release_name(read_agreement("agreement.file", settings.agreement).in_force)
    unknown = BadInput(f"--hand-back: expected a run that began here, got {run!r}; without it, all are listed")
    if not settings.store.exists():
        raise unknown
    with _opened(settings) as store, store.transaction() as kept:
        if run not in holding.runs(kept, release):
            raise unknown
        given = holding.hand_back(kept, release, run)
        told = {"run": run, "release": release, "releases": given}
        AuditLog(store, private_key(settings.signing)).write(kept, "hand back", now, told)
    return given


def _opened(settings: RoomSettings) -> AbstractContextManager[SqlRoomStore]:
    return closing(SqlRoomStore.open(settings.store, witness=settings.room_witness))


def look(settings: RoomSettings) -> tuple[Terms, Remaining | None, dict[str, Any]]:
    """The terms in force, what is left (None: it never opened), and whether its audit log holds in itself."""
    terms = read_agreement("agreement.file", settings.agreement).in_force
    if not settings.store.exists():
        return terms, None, {"entries": 0, "receipts": 0, "holds": True}
    try:
        with _opened(settings) as store:
            audit: dict[str, Any] = {"entries": verified(store).sequence, "receipts": 0, "holds": True}
    except AuditBroken as broken:
        audit = {"holds": False, "broken": str(broken)}
    ledger = LedgerStore.open(settings.ledger, witness=settings.ledger_witness)
    account = ledger.account(line_of(terms))
    if account is None:
        return terms, None, audit
    left, used = account.remaining.budget, account.used.budget
    return (
        terms,
        Remaining(left.epsilon, left.delta, used.epsilon, used.delta, terms.releases_per_record),
        audit,
    )
