"""Protocols of the room's store and of the ledger that it pays from, the audit log, and a store in memory.

Both Protocols are satisfied by `tacit.store`. `MemoryRoomStore` is for attacks, studies and tests: it is gone
with the process. The audit log has every answer, and refusals as far as they do not flood it. It never holds a
label.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tacit.cleanroom.protocol.answers import AuditReceipt
from tacit.cleanroom.protocol.audit_log import AuditEntry, next_entry, sign_receipt
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.signatures import PrivateKey
from tacit.cleanroom.protocol.tokens import TOKEN_BYTES
from tacit.cleanroom.room.labels import Records
from tacit.errors import RoomError
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import START, ChainHead
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

    def write_refusal(self, reason: RoomRefusal, now: int, peer: str, event: Event) -> None:
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


@dataclass
class _State:
    """All that is kept. A transaction works on changes of its own and adds them at its end."""

    values: dict[str, bytes] = field(default_factory=dict)
    answered: dict[tuple[str, str, int], StoredAnswer] = field(default_factory=dict)
    counts: dict[str, dict[bytes, int]] = field(default_factory=dict)  # by release, then by record
    held: dict[tuple[str, str], dict[bytes, tuple[int, int]]] = field(default_factory=dict)  # left, and used
    entries: list[AuditEntry] = field(default_factory=list)


class _Transaction:
    def __init__(self, state: _State) -> None:
        self._state, self.changes = state, _State()

    def get(self, key: str) -> bytes | None:
        return self.changes.values.get(key, self._state.values.get(key))

    def put(self, key: str, value: bytes) -> None:
        self.changes.values[key] = value

    def get_answer(self, release: str, run: str, number: int) -> StoredAnswer | None:
        name = (release, run, number)
        return self.changes.answered.get(name, self._state.answered.get(name))

    def put_answer(self, release: str, run: str, number: int, answered: StoredAnswer) -> None:
        if self.get_answer(release, run, number) is not None:
            raise RoomError("expected a run and number without an answer, got one that has it")
        self.changes.answered[release, run, number] = answered

    def has_releases_left(self, release: str, records: Records, most: int) -> bool:
        counted = self.changes.counts.get(release, {})
        before = self._state.counts.get(release, {})
        return all(counted.get(each, before.get(each, 0)) < most for each in _each(records))

    def count(self, release: str, records: Records, most: int) -> bool:
        within = True
        for record in _each(records):
            within &= self._add_count(release, record, 1) <= most
        return within

    def most_used(self, release: str, records: Records) -> int:
        counted, before = self.changes.counts.get(release, {}), self._state.counts.get(release, {})
        return max((counted.get(each, before.get(each, 0)) for each in _each(records)), default=0)

    def has_quota(self, release: str, run: str, records: Records) -> bool:
        return all(self._held_counts((release, run), each)[0] > 0 for each in _each(records))

    def reserve_quota(self, release: str, run: str, records: Records, releases: int, most: int) -> bool:
        within, changed = True, self.changes.held.setdefault((release, run), {})
        for record in _each(records):
            left, used = self._held_counts((release, run), record)
            within &= self._add_count(release, record, releases - used - left) <= most
            changed[record] = (releases - used, used)
        return within

    def use_quota(self, release: str, run: str, records: Records) -> bool:
        within, changed = True, self.changes.held.setdefault((release, run), {})
        for record in _each(records):
            left, used = self._held_counts((release, run), record)
            within &= left > 0
            changed[record] = (left - 1, used + 1)
        return within

    def return_quota(self, release: str, run: str) -> int:
        given, changed = 0, self.changes.held.setdefault((release, run), {})
        for record in {**self._state.held.get((release, run), {}), **changed}:
            left, used = self._held_counts((release, run), record)
            self._add_count(release, record, -left)
            changed[record] = (0, used)
            given += left
        return given

    def _held_counts(self, run: tuple[str, str], record: bytes) -> tuple[int, int]:
        """What the run has left of the record, and has used."""
        before = self._state.held.get(run, {})
        return self.changes.held.get(run, {}).get(record, before.get(record, (0, 0)))

    def _add_count(self, release: str, record: bytes, more: int) -> int:
        counted, before = self.changes.counts.setdefault(release, {}), self._state.counts.get(release, {})
        counted[record] = counted.get(record, before.get(record, 0)) + more
        return counted[record]

    def head(self) -> ChainHead:
        entries = self.changes.entries or self._state.entries
        return entries[-1].head if entries else START

    def append(self, entry: AuditEntry) -> None:
        if (entry.sequence - 1, entry.previous) != (self.head().sequence, self.head().hash):
            raise RoomError("expected the entry that follows the last one, got another")
        self.changes.entries.append(entry)


def _each(records: Records) -> Iterator[bytes]:
    spelled = records.tobytes()
    return (spelled[start : start + TOKEN_BYTES] for start in range(0, len(spelled), TOKEN_BYTES))


class MemoryRoomStore:
    """A `RoomStore` that lasts as long as its process."""

    def __init__(self) -> None:
        self._state = _State()
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[WriteTransaction]:
        with self._lock:
            transaction = _Transaction(self._state)
            yield transaction
            changes = transaction.changes
            self._state.values |= changes.values
            self._state.answered |= changes.answered
            for release, counted in changes.counts.items():
                self._state.counts.setdefault(release, {}).update(counted)
            for run, held in changes.held.items():
                self._state.held.setdefault(run, {}).update(held)
            self._state.entries += changes.entries

    @contextmanager
    def reading(self) -> Iterator[ReadTransaction]:
        with self._lock:
            yield _Transaction(self._state)

    def entries(self, after: int, most: int) -> list[AuditEntry]:
        with self._lock:
            return self._state.entries[after : after + most]

    def everything(self) -> object:
        """A copy of all that is kept, to compare."""
        with self._lock:
            flat = {
                (release, record): used
                for release, counted in self._state.counts.items()
                for record, used in counted.items()
            }
            return {**copy.deepcopy(vars(self._state)), "counts": flat}
