"""How a collaboration stands: the terms in force, what is left of the budget, whether the audit log holds.

The room reads its own store, and need not be running. A platform asks the room, and checks what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.cleanroom.protocol.answers import RemainingBudget
from tacit.cleanroom.protocol.modes import UNDER_THESE, Signer, budget_summary
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.payment import budget_line
from tacit.errors import AuditBroken
from tacit.services.room.agreement_file import read_agreement
from tacit.services.room.operation import open_store, verify_stored_log
from tacit.services.room.remote_room import check_audit_log, check_description, open_link, terms_in_force
from tacit.services.room.settings import (
    PlatformSettings,
    RoomSettings,
    load_platform_settings,
    load_room_settings,
    settings_role,
)
from tacit.store.ledger import LedgerStore


@dataclass(frozen=True)
class RoomStatus:
    """What one party can say of a room. `remaining` is None where the room never opened."""

    role: Signer
    terms: Terms
    remaining: RemainingBudget | None
    audit: dict[str, Any]  # whether it holds, and how many entries and receipts, or what is broken

    @property
    def holds(self) -> bool:
        """Whether the audit log does."""
        return bool(self.audit["holds"])

    def as_json(self, now: int) -> dict[str, Any]:
        """`now`, in seconds, decides whether the terms are open."""
        return {
            "role": str(self.role),
            "terms": self.terms.as_json(),
            "digest": self.terms.digest,
            "open": self.terms.is_open(now),
            "closed": self.terms.why_closed(now),
            "remaining": None if self.remaining is None else self.remaining.as_json(),
            "audit": self.audit,
            "statement": self.terms.statement().as_json(),
        }

    def as_text(self) -> str:
        """What was paid so far, and what the terms promise, in plain words."""
        so_far = "" if self.remaining is None else f"{budget_summary(self.terms, self.remaining)}\n\n"
        return f"{so_far}{self.terms.statement().as_text(UNDER_THESE)}"


def read_status(path: Path, waiting: Callable[[str], None] = lambda _: None) -> RoomStatus:
    """Of the party whose settings these are, room.toml or platform.toml; `waiting` hears why a room is not
    reached yet."""
    if settings_role(path) is Signer.PLATFORM:
        return ask_room(load_platform_settings(path), waiting)
    return inspect_room(load_room_settings(path))


def ask_room(settings: PlatformSettings, waiting: Callable[[str], None] = lambda _: None) -> RoomStatus:
    """What the room says of itself, its log checked against every receipt that this platform was given."""
    terms = terms_in_force(settings)
    with open_link(settings, terms, waiting, patience=settings.patience.at_first) as link:
        remaining = check_description(link, terms).remaining
        try:
            audit = check_audit_log(link, settings)
        except AuditBroken as broken:
            audit = {"holds": False, "broken": str(broken)}
    return RoomStatus(Signer.PLATFORM, terms, remaining, audit)


def inspect_room(settings: RoomSettings) -> RoomStatus:
    """What the room's own store and ledger say, and whether its audit log holds in itself."""
    terms = read_agreement("agreement.file", settings.agreement).in_force
    if not settings.store.exists():
        return RoomStatus(Signer.ROOM, terms, None, {"entries": 0, "receipts": 0, "holds": True})
    try:
        with open_store(settings) as store:
            audit: dict[str, Any] = {"entries": verify_stored_log(store).sequence, "receipts": 0, "holds": True}
    except AuditBroken as broken:
        audit = {"holds": False, "broken": str(broken)}
    ledger = LedgerStore.open(settings.ledger, witness=settings.ledger_witness)
    account = ledger.account(budget_line(terms))
    if account is None:
        return RoomStatus(Signer.ROOM, terms, None, audit)
    left, used = account.remaining.budget, account.used.budget
    remaining = RemainingBudget(left.epsilon, left.delta, used.epsilon, used.delta, terms.releases_per_record)
    return RoomStatus(Signer.ROOM, terms, remaining, audit)
