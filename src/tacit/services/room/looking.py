"""A look at a room's own store, whether or not it is running."""

from __future__ import annotations

from typing import Any

from tacit.cleanroom.room.counting import line_of
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.answers import Remaining
from tacit.cleanroom.wire.audit_log import verify
from tacit.errors import AuditBroken
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


def look(settings: RoomSettings) -> tuple[Terms, Remaining | None, dict[str, Any]]:
    """The terms in force, what is left (None: it never opened), and whether its audit log holds in itself."""
    terms = read_agreement("agreement.file", settings.agreement).in_force
    if not settings.store.exists():
        return terms, None, {"entries": 0, "receipts": 0, "holds": True}
    store = SqlRoomStore.open(settings.store, witness=settings.room_witness)
    try:
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
