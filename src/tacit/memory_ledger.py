"""A privacy ledger in memory, for simulations, studies and tests: gone with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tacit.entropy import draw_token
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.book import Attempt, LedgerBook
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Amount, Line, Series
from tacit.privacy.ledger.requests import Request
from tacit.privacy.ledger.rules import Account, Change, Ledger, Reservation


class MemoryLedger(LedgerBook):
    """What a party pays from, by the rules of the durable ledger: `privacy.ledger.rules` decide.

    A `PartyLedger` of gathering, a `RoomLedger` of the clean room and a `TrainingLedger`: what one call decides
    happens as a whole, or not at all. Threads may share it.
    """

    def __init__(self) -> None:
        self.now = Ledger()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"MemoryLedger(lines={len(self.now.accounts)}, reservations={len(self.now.reservations)})"

    def overview(self) -> Ledger:
        """All lines with their totals."""
        return self.now

    @contextmanager
    def once(self, *requests: Request) -> Iterator[Attempt]:
        """Make one release, and never again: reserved before the block, made and spent once it has ended."""
        attempt = Attempt(self, [request.key for request in requests], draw_token())
        deciding = [*(each.decision(new=True) for each in requests), *map(attempt.claiming, attempt.keys)]
        self._decide([each.decide for each in deciding])
        yield attempt
        attempt.commit()

    def _grant(self, line: Line, limit: Budget) -> Account:
        with self._lock:
            self.now = self.now.apply(self.now.grant(line, Amount.limit(limit)))
            return self.now.accounts[line]

    def reserve(self, key: str, line: Line, cost: Guarantee | Budget, purpose: str) -> Reservation:
        return self.reserve_all([Request(key, line, cost, purpose)])[0]

    def reserve_all(self, requests: Sequence[Request]) -> list[Reservation]:
        return self._decide([request.decision().decide for request in requests])

    def claim(self, key: str, attempt: str, *, after: Collection[str] = ()) -> Reservation:
        return self.claim_all([key], attempt, after=after)[0]

    def claim_all(self, keys: Sequence[str], attempt: str, *, after: Collection[str] = ()) -> list[Reservation]:
        return self._decide([partial(Ledger.claim, key=key, attempt=attempt, after=after) for key in keys])

    def make(self, key: str, attempt: str, release: str) -> Reservation:
        return self.make_all([key], attempt, release)[0]

    def make_all(self, keys: Sequence[str], attempt: str, release: str) -> list[Reservation]:
        return self._decide([partial(Ledger.make, key=key, attempt=attempt, release=release) for key in keys])

    def commit(self, key: str, attempt: str | None = None) -> Reservation:
        return self.commit_all([key], attempt)[0]

    def commit_all(self, keys: Sequence[str], attempt: str | None = None) -> list[Reservation]:
        return self._decide([partial(Ledger.commit, key=key, attempt=attempt) for key in keys])

    def abort_all(self, keys: Sequence[str], attempt: str | None = None) -> list[Reservation]:
        return self._decide([partial(Ledger.abort, key=key, attempt=attempt) for key in keys])

    def reservation(self, key: str) -> Reservation | None:
        return self.now.reservations.get(key)

    def account(self, line: Line) -> Account | None:
        return self.now.accounts.get(line)

    def series(self) -> set[Series]:
        """Each that a line was opened of."""
        return {line.series for line in self.now.accounts}

    def around(self, requests: Sequence[Request]) -> Ledger:
        """All that decides about these requests: here, all that there is."""
        del requests
        return self.now

    def _decide(self, decisions: Sequence[Callable[[Ledger], Change]]) -> list[Reservation]:
        made = []
        with self._lock:
            ledger = self.now
            for decide in decisions:
                change = decide(ledger)
                assert change.reservation is not None, "reserving and settling always have one"
                ledger = ledger.apply(change)
                made.append(change.reservation)
            self.now = ledger
        return made
