"""What is asked of a ledger: reservations to be made, as rules to be applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.errors import ReservationTaken
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line, check_ledger_name
from tacit.privacy.ledger.rules import Change, Ledger, cost_on


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
