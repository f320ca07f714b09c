"""What is asked of a ledger store: reservations to be made, rules to be applied, and one release made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.entropy import draw_token
from tacit.errors import ReservationTaken
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line, check_ledger_name
from tacit.privacy.ledger.rules import Change, Ledger, cost_on

if TYPE_CHECKING:
    from tacit.store.ledger import LedgerStore

NOT_NAMED = "made, and not named"


@dataclass(frozen=True)
class Decision:
    """A rule to apply, and what of the ledger it needs to see."""

    decide: Callable[[Ledger], Change]
    key: str | None = None
    line: Line | None = None


@dataclass(frozen=True)
class Request:
    """One reservation to be made: what a release costs on one line."""

    key: str
    line: Line
    cost: Guarantee | Budget
    purpose: str

    def decision(self, *, new: bool = False) -> Decision:
        """To reserve it; with `new`, only where the key was never used."""
        amount, key = cost_on(self.line, self.cost), check_ledger_name("key", self.key)

        def decide(ledger: Ledger) -> Change:
            change = ledger.reserve(key, self.line, amount, self.purpose)
            if new and not change.events:
                raise ReservationTaken(
                    f"expected a key that the ledger does not know, got {key}: its release was begun before, "
                    "and drawing it again would be another one"
                )
            return change

        return Decision(decide, key, self.line)


class Attempt:
    """One attempt at a release in `LedgerStore.once`; `made` says what came of it, if the end should not."""

    def __init__(self, ledger: LedgerStore, keys: Sequence[str]) -> None:
        self.keys, self._ledger, self._token = keys, ledger, draw_token()
        self._made = False

    def claiming(self, key: str) -> Decision:
        return Decision(lambda ledger: ledger.claim(key, self._token), key)

    def made(self, release: str) -> None:
        """The digest of the release, before it leaves."""
        self._ledger.make_all(self.keys, self._token, release)
        self._made = True

    def commit(self) -> None:
        if not self._made:
            self.made(NOT_NAMED)
        self._ledger.commit_all(self.keys, self._token)
