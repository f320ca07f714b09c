"""In-memory store of a room, for attacks, studies and tests: gone with the process."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tacit.cleanroom.protocol.audit_log import AuditEntry
from tacit.cleanroom.protocol.tokens import TOKEN_BYTES
from tacit.cleanroom.room.labels import Records
from tacit.cleanroom.room.store import ReadTransaction, StoredAnswer, WriteTransaction
from tacit.errors import RoomError
from tacit.privacy.ledger.chain import START, ChainHead


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
            within &= self._counted(release, record, 1) <= most
        return within

    def most_used(self, release: str, records: Records) -> int:
        counted, before = self.changes.counts.get(release, {}), self._state.counts.get(release, {})
        return max((counted.get(each, before.get(each, 0)) for each in _each(records)), default=0)

    def has_quota(self, release: str, run: str, records: Records) -> bool:
        return all(self._held((release, run), each)[0] > 0 for each in _each(records))

    def reserve_quota(self, release: str, run: str, records: Records, releases: int, most: int) -> bool:
        within, changed = True, self.changes.held.setdefault((release, run), {})
        for record in _each(records):
            left, used = self._held((release, run), record)
            within &= self._counted(release, record, releases - used - left) <= most
            changed[record] = (releases - used, used)
        return within

    def use_quota(self, release: str, run: str, records: Records) -> bool:
        within, changed = True, self.changes.held.setdefault((release, run), {})
        for record in _each(records):
            left, used = self._held((release, run), record)
            within &= left > 0
            changed[record] = (left - 1, used + 1)
        return within

    def return_quota(self, release: str, run: str) -> int:
        given, changed = 0, self.changes.held.setdefault((release, run), {})
        for record in {**self._state.held.get((release, run), {}), **changed}:
            left, used = self._held((release, run), record)
            self._counted(release, record, -left)
            changed[record] = (0, used)
            given += left
        return given

    def _held(self, run: tuple[str, str], record: bytes) -> tuple[int, int]:
        """What the run has left of the record, and has used."""
        before = self._state.held.get(run, {})
        return self.changes.held.get(run, {}).get(record, before.get(record, (0, 0)))

    def _counted(self, release: str, record: bytes, more: int) -> int:
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
