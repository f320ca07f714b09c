"""Protocols of the room's store and of the ledger that it pays from, and the audit log kept in the store.

Both Protocols are satisfied by `tacit.store`, and by `memory_store` for as long as a process lives. The audit
log has every answer, and refusals as far as they do not flood it. It never holds a label.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from tacit.cleanroom.protocol.answers import AuditReceipt
from tacit.cleanroom.protocol.audit_log import AuditEntry, next_entry, sign_receipt
from tacit.cleanroom.protocol.refusals import Refusal
from tacit.cleanroom.protocol.signatures import PrivateKey
from tacit.cleanroom.room.labels import Records
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import ChainHead
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Account, Reservation


@dataclass(frozen=True)
class StoredAnswer:
    """A release that was made: digests of all that was asked, and what was answered."""

    asked: bytes  # of the request and its slabs up to the first, up to the second, and so on, one after another
    answer: bytes  # as it left


class ReadTransaction(Protocol):
    """A look at what is kept, at one moment."""

    def get(self, key: str) -> bytes | None:
        """What is kept under this key."""

    def get_answer(self, release: str, run: str, number: int) -> StoredAnswer | None: ...

    def has_releases_left(self, release: str, records: Records, most: int) -> bool:
        """Whether each of these records could be counted once more without having more than `most`."""

    def most_used(self, release: str, records: Records) -> int:
        """Of the record that was counted most: how often, with what is set aside for runs."""

    def has_quota(self, release: str, run: str, records: Records) -> bool:
        """Whether the run has at least one of each of these records left of what was set aside for it."""


class WriteTransaction(ReadTransaction, Protocol):
    """One transaction. All that it changes is kept together when it ends well, and nothing of it otherwise."""

    def put(self, key: str, value: bytes) -> None:
        """Keep this under the key, in place of what was there."""

    def put_answer(self, release: str, run: str, number: int, answered: StoredAnswer) -> None:
        """Keep what was answered under this run and number. Nothing may be there yet."""

    def count(self, release: str, records: Records, most: int) -> bool:
        """Count one more release for each of these distinct records.

        False where one of them would have more than `most`: then the transaction must be given up, by raising.
        """

    def reserve_quota(self, release: str, run: str, records: Records, releases: int, most: int) -> bool:
        """Set aside for a run `releases` of each of these distinct records, less those it has used: they are
        counted now.

        False where one of them would have more than `most`: then the transaction must be given up, by raising.
        """

    def use_quota(self, release: str, run: str, records: Records) -> bool:
        """Take one release of each of these distinct records from what was set aside for the run.

        False where one of them has none: then the transaction must be given up, by raising.
        """

    def return_quota(self, release: str, run: str) -> int:
        """No longer count what a run has set aside and not used; how many releases of single records it is."""

    def head(self) -> ChainHead:
        """Where the audit log stands."""

    def append(self, entry: AuditEntry) -> None:
        """Write the next entry of the audit log."""


class RoomStore(Protocol):
    """The room's state. Threads and processes may share it."""

    def transaction(self) -> AbstractContextManager[WriteTransaction]:
        """Alone in the store until it ends; durable when it has ended well, undone if it raises."""

    def reading(self) -> AbstractContextManager[ReadTransaction]:
        """A look that changes nothing and holds nobody up."""

    def entries(self, after: int, most: int) -> list[AuditEntry]:
        """The audit log's entries after a sequence number, in order, at most `most` of them."""


class RoomLedger(Protocol):
    """`tacit.store.ledger.LedgerStore`, as far as the room needs it."""

    def grant(self, line: Line, limit: Budget) -> Account: ...
    def reserve(self, key: str, line: Line, cost: Guarantee | Budget, purpose: str) -> Reservation: ...
    def claim(self, key: str, attempt: str, *, after: Collection[str] = ()) -> Reservation: ...
    def make(self, key: str, attempt: str, release: str) -> Reservation: ...
    def commit(self, key: str, attempt: str | None = None) -> Reservation: ...
    def account(self, line: Line) -> Account | None: ...
    def reservation(self, key: str) -> Reservation | None: ...


REFUSALS_A_MINUTE = 30
LONGEST_NAME = 128

Event = Mapping[str, Any]


class AuditLog:
    """Writes entries and signs heads. Refusals beyond some per minute are counted, and told with the next."""

    def __init__(self, store: RoomStore, key: PrivateKey) -> None:
        self._store, self._key = store, key
        self._lock = threading.Lock()
        self._minute, self._written, self._passed_over = -1, 0, 0

    def write(self, transaction: WriteTransaction, kind: str, now: int, event: Event) -> AuditReceipt:
        """One more entry, within the caller's transaction."""
        entry = next_entry(transaction.head(), {"kind": kind, "at": now, **event})
        transaction.append(entry)
        return sign_receipt(entry.head, self._key)

    def head(self) -> AuditReceipt:
        """Where the log stands, signed."""
        with self._store.transaction() as transaction:
            return sign_receipt(transaction.head(), self._key)

    def write_refusal(self, reason: Refusal, now: int, peer: str, event: Event) -> None:
        """Write a refusal down, unless there were many in this minute already."""
        with self._lock:
            if now // 60 != self._minute:
                self._minute, self._written = now // 60, 0
            if self._written >= REFUSALS_A_MINUTE:
                self._passed_over += 1
                return
            self._written += 1
            missed, self._passed_over = self._passed_over, 0
        told = {"peer": shorten_name(peer), "reason": str(reason), **event}
        with self._store.transaction() as transaction:
            self.write(transaction, "refused", now, {**told, "passed_over": missed} if missed else told)


def shorten_name(name: str) -> str:
    """A name that somebody else chose, as far as a log should hold it."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:LONGEST_NAME])
