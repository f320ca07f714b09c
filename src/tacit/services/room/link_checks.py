"""The platform's link to the room of its agreement: who is at the other end, and whether its log holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tacit.cleanroom.platform.link import RoomLink
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.answers import Description
from tacit.cleanroom.wire.audit_log import check_receipt, verify
from tacit.errors import BadInput, RoomError
from tacit.services.room.calling import RemoteRoom
from tacit.services.room.files import Receipts, read_agreement
from tacit.services.room.pace import Patience
from tacit.services.room.settings import PlatformSettings


def terms_of(settings: PlatformSettings) -> Terms:
    """The terms in force in the platform's own copy of the agreement."""
    terms = read_agreement("agreement.file", settings.agreement).in_force
    if settings.identity.name != terms.platform:
        raise BadInput(
            f"tls.certificate: expected that of the agreement's platform, {terms.platform}, got that of "
            f"{settings.identity.name}"
        )
    return terms


def receipts_of(settings: PlatformSettings) -> Receipts:
    steps = read_agreement("agreement.file", settings.agreement).settled
    return Receipts(settings.folder / "receipts.jsonl", [step.terms.room_key for step in steps])


def link_to(
    settings: PlatformSettings,
    terms: Terms,
    waiting: Callable[[str], None] = lambda _: None,
    *,
    patience: Patience | None = None,
) -> RemoteRoom:
    """The room of the agreement; every receipt that it gives is kept. `waiting` hears where it is, and why."""
    return RemoteRoom(
        settings.address,
        terms.room,
        settings.identity,
        patience=patience or settings.patience,
        received=receipts_of(settings).keep,
        waiting=lambda why: waiting(f"waiting for the room at {settings.address}: {why}"),
    )


def described(link: RemoteRoom, terms: Terms) -> Description:
    """What the room says of itself; refuses one with other terms than ours, or that signs with another key."""
    found = link.describe()
    if found.terms.digest != terms.digest:
        raise RoomError(
            "expected a room with the terms of our copy of the agreement, got other terms: exchange the file"
        )
    check_receipt(found.head, terms.room_key)
    return found


def audited(link: RoomLink, settings: PlatformSettings) -> dict[str, Any]:
    """Read the room's whole log and check it against every receipt; raises AuditBroken."""
    receipts = receipts_of(settings).kept()
    entries, after = [], 0
    while portion := link.audit(after):
        entries += portion
        after = portion[-1].sequence
    head = verify(entries, heads=[each.receipt for each in receipts])
    by_sequence = {entry.sequence: entry for entry in entries}
    for each in receipts:
        each.check(by_sequence.get(each.receipt.sequence))
    return {"entries": head.sequence, "receipts": len(receipts), "holds": True}
