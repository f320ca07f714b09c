"""A ledger in memory: the rules of `tacit.privacy.ledger.rules`, and nothing that lasts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Amount, Line, Series
from tacit.privacy.ledger.requests import Request
from tacit.privacy.ledger.rules import Change, Ledger, Reservation


class MemoryLedger:
    """A `TrainingLedger`: what one call decides happens as a whole, or not at all."""

    def __init__(self) -> None:
        self.now = Ledger()

    def grant(self, line: Line, limit: Budget) -> None:
        self.now = self.now.apply(self.now.grant(line, Amount.limit(limit)))

    def around(self, requests: Sequence[Request]) -> Ledger:
        del requests
        return self.now

    def reserve_all(self, requests: Sequence[Request]) -> list[Reservation]:
        return self._decide([request.decision().decide for request in requests])

    def reservation(self, key: str) -> Reservation | None:
        return self.now.reservations.get(key)

    def claim_all(self, keys: Sequence[str], attempt: str, *, after: Collection[str] = ()) -> list[Reservation]:
        return self._decide([partial(Ledger.claim, key=key, attempt=attempt, after=after) for key in keys])

    def make_all(self, keys: Sequence[str], attempt: str, release: str) -> list[Reservation]:
        return self._decide([partial(Ledger.make, key=key, attempt=attempt, release=release) for key in keys])

    def commit_all(self, keys: Sequence[str], attempt: str | None = None) -> list[Reservation]:
        return self._decide([partial(Ledger.commit, key=key, attempt=attempt) for key in keys])

    def abort_all(self, keys: Sequence[str], attempt: str | None = None) -> list[Reservation]:
        return self._decide([partial(Ledger.abort, key=key, attempt=attempt) for key in keys])

    def series(self) -> set[Series]:
        return {line.series for line in self.now.accounts}

    def _decide(self, decisions: Sequence[Callable[[Ledger], Change]]) -> list[Reservation]:
        ledger, made = self.now, []
        for decide in decisions:
            change = decide(ledger)
            assert change.reservation is not None
            ledger = ledger.apply(change)
            made.append(change.reservation)
        self.now = ledger
        return made
