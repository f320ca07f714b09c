"""The room's audit log: every answer, and refusals as far as they do not flood it. It never holds a label."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tacit.cleanroom.room.store import Kept, RoomStore
from tacit.cleanroom.wire.answers import Receipt
from tacit.cleanroom.wire.audit_log import append, receipt
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.signing import PrivateKey

REFUSALS_A_MINUTE = 30
LONGEST_NAME = 128

Event = Mapping[str, Any]


class AuditLog:
    """Writes entries and signs heads. Refusals beyond a number a minute are counted, and told with the next."""

    def __init__(self, store: RoomStore, key: PrivateKey) -> None:
        self._store, self._key = store, key
        self._lock = threading.Lock()
        self._minute, self._written, self._passed_over = -1, 0, 0

    def write(self, kept: Kept, kind: str, now: int, event: Event) -> Receipt:
        """One more entry, within the caller's transaction."""
        entry = append(kept.head(), {"kind": kind, "at": now, **event})
        kept.append(entry)
        return receipt(entry.head, self._key)

    def head(self) -> Receipt:
        """Where the log stands, signed."""
        with self._store.transaction() as kept:
            return receipt(kept.head(), self._key)

    def refused(self, reason: Refusal, now: int, peer: str, event: Event) -> None:
        """Write a refusal down, unless there were many in this minute already."""
        with self._lock:
            if now // 60 != self._minute:
                self._minute, self._written = now // 60, 0
            if self._written >= REFUSALS_A_MINUTE:
                self._passed_over += 1
                return
            self._written += 1
            missed, self._passed_over = self._passed_over, 0
        told = {"peer": shortened(peer), "reason": str(reason), **event}
        with self._store.transaction() as kept:
            self.write(kept, "refused", now, {**told, "passed_over": missed} if missed else told)


def shortened(name: str) -> str:
    """A name that somebody else chose, as far as a log should hold it."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:LONGEST_NAME])
