"""What the room needs kept, and the ledger that it pays from: two Protocols. `tacit.store` satisfies both."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tacit.cleanroom.room.labels import Records
from tacit.cleanroom.wire.audit_log import Entry
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import Head
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Account, Reservation


@dataclass(frozen=True)
class Answered:
    """A release that was made: digests of all that was asked, and what was answered."""

    asked: bytes  # of the request and its slabs up to the first, up to the second, and so on, one after another
    answer: bytes  # as it left


class Looked(Protocol):
    """A look at what is kept, at one moment."""

    def find(self, key: str) -> bytes | None:
        """What is kept under this key."""

    def answered(self, release: str, run: str, number: int) -> Answered | None: ...

    def has_left(self, release: str, records: Records, most: int) -> bool:
        """Whether each of these records could be counted once more without having more than `most`."""

    def most_used(self, release: str, records: Records) -> int:
        """Of the record that was counted most: how often, with what is set aside for runs."""

    def holds(self, release: str, run: str, records: Records) -> bool:
        """Whether the run has at least one of each of these records left of what was set aside for it."""


class Kept(Looked, Protocol):
    """One transaction. All that it changes is kept together when it ends well, and nothing of it otherwise."""

    def keep(self, key: str, value: bytes) -> None:
        """Keep this under the key, in place of what was there."""

    def remember(self, release: str, run: str, number: int, answered: Answered) -> None:
        """Keep what was answered under this run and number. Nothing may be there yet."""

    def count(self, release: str, records: Records, most: int) -> bool:
        """Count one more release for each of these distinct records.

        False where one of them would have more than `most`: then the transaction must be given up, by raising.
        """

    def hold(self, release: str, run: str, records: Records, releases: int, most: int) -> bool:
        """Set aside for a run so many releases of each of these distinct records, less those it has used: they
        are counted now.

        False where one of them would have more than `most`: then the transaction must be given up, by raising.
        """

    def use(self, release: str, run: str, records: Records) -> bool:
        """Take one release of each of these distinct records from what was set aside for the run.

        False where one of them has none: then the transaction must be given up, by raising.
        """

    def hand_back(self, release: str, run: str) -> int:
        """No longer count what a run has set aside and not used; how many releases of single records it is."""

    def head(self) -> Head:
        """Where the audit log stands."""

    def append(self, entry: Entry) -> None:
        """Write the next entry of the audit log."""


class RoomStore(Protocol):
    """The room's state. Threads and processes may share it."""

    def transaction(self) -> AbstractContextManager[Kept]:
        """Alone in the store until it ends; durable when it has ended well, undone if it raises."""

    def reading(self) -> AbstractContextManager[Looked]:
        """A look that changes nothing and holds nobody up."""

    def entries(self, after: int, most: int) -> list[Entry]:
        """The audit log's entries after a sequence number, in order, at most so many."""


class Ledger(Protocol):
    """`tacit.store.ledger.LedgerStore`, as far as the room needs it."""

    def grant(self, line: Line, limit: Budget) -> Account: ...
    def reserve(self, key: str, line: Line, cost: Guarantee | Budget, purpose: str) -> Reservation: ...
    def claim(self, key: str, attempt: str, *, after: Collection[str] = ()) -> Reservation: ...
    def make(self, key: str, attempt: str, release: str) -> Reservation: ...
    def commit(self, key: str, attempt: str | None = None) -> Reservation: ...
    def account(self, line: Line) -> Account | None: ...
    def reservation(self, key: str) -> Reservation | None: ...
