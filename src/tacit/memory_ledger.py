"""A privacy ledger in memory, for simulations, studies and tests: gone with the process."""

from __future__ import annotations

import threading
from collections.abc import Collection

from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Amount, Line
from tacit.privacy.ledger.rules import Account, Change, Ledger, Reservation, cost_on


class MemoryLedger:
    """What a party pays from, by the rules of the durable ledger: `privacy.ledger.rules` decide.

    A `PartyLedger` of gathering, and a `RoomLedger` of the clean room. Threads may share it.
    """

    def __init__(self) -> None:
        self.now = Ledger()
        self._lock = threading.Lock()

    def grant(self, line: Line, limit: Budget) -> Account:
        with self._lock:
            self.now = self.now.apply(self.now.grant(line, Amount.limit(limit)))
            return self.now.accounts[line]

    def reserve(self, key: str, line: Line, cost: Guarantee | Budget, purpose: str) -> Reservation:
        with self._lock:
            return self._settled(self.now.reserve(key, line, cost_on(line, cost), purpose))

    def claim(self, key: str, attempt: str, *, after: Collection[str] = ()) -> Reservation:
        with self._lock:
            return self._settled(self.now.claim(key, attempt, after=after))

    def make(self, key: str, attempt: str, release: str) -> Reservation:
        with self._lock:
            return self._settled(self.now.make(key, attempt, release))

    def commit(self, key: str, attempt: str | None = None) -> Reservation:
        with self._lock:
            return self._settled(self.now.commit(key, attempt))

    def reservation(self, key: str) -> Reservation | None:
        return self.now.reservations.get(key)

    def account(self, line: Line) -> Account | None:
        return self.now.accounts.get(line)

    def _settled(self, change: Change) -> Reservation:
        assert change.reservation is not None, "reserving and committing always have one"
        self.now = self.now.apply(change)
        return change.reservation
