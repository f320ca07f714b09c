"""What to do where the ledger is not there, or has no line for what is asked: the exact command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.errors import LedgerError, LedgerRolledBack, UnknownLine
from tacit.privacy.budget import format_rounded_up

if TYPE_CHECKING:
    from tacit.privacy.ledger.guarantee import Guarantee
    from tacit.store.ledger import LedgerStore
    from tacit.train.config import LedgerSettings

DAY = 86_400


@dataclass(frozen=True)
class Asker:
    """How whoever asks calls a ledger's place, and how one may do without a ledger."""

    place: str
    instead: str | None = None


def open_paying_ledger(ledger: LedgerSettings, cost: Guarantee, asker: Asker) -> LedgerStore:
    """The ledger that pays; where there is none, how to begin one with room for this."""
    from tacit.store.database import ledger_database
    from tacit.store.ledger import LedgerStore

    assert ledger.path is not None, "nobody pays without a ledger"
    try:
        return LedgerStore.open_existing(ledger.path, witness=ledger.witness)
    except LedgerRolledBack:
        raise
    except LedgerError:
        place = ledger_database(ledger.path)
        if place.exists():
            raise
        instead = "" if asker.instead is None else f"; {asker.instead}"
        raise LedgerError(
            f"{asker.place}: there is no ledger at {place.name}{instead}; begin one with room for this with: "
            f"{grant_command(ledger, cost)}"
        ) from None


@contextmanager
def suggest_grant(command: str) -> Iterator[None]:
    """A line that nobody has granted anything on is said with the command that does."""
    try:
        yield
    except UnknownLine as problem:
        raise UnknownLine(
            f"{str(problem).removesuffix('; grant one first')}; grant one with: {command}"
        ) from None


def grant_command(ledger: LedgerSettings, cost: Guarantee) -> str:
    """The command that grants as much as this costs, which is the least that pays for it."""
    from tacit.store.database import ledger_database

    assert ledger.path is not None, "nobody pays without a ledger"
    unit, budget = cost.unit, cost.budget
    words = ["tacit", "ledger", "grant", "--ledger", ledger_database(ledger.path).name]  # without a password
    words += ["--witness", ledger.witness] if ledger.witness is not None else []
    words += ["--scope", str(ledger.scope), "--unit", str(unit.kind)]
    words += ["--relation", str(ledger.relation or cost.relation)]
    words += ["--epsilon", format_rounded_up(float(budget.epsilon))]
    words += ["--delta", format_rounded_up(float(budget.delta), 3)] if budget.delta else []
    if unit.window is not None:
        words += ["--window-days", str(unit.window.seconds // DAY)]
        words += ["--window-origin", str(unit.window.origin)] if unit.window.origin else []
    words += ["--ad-tech", unit.ad_tech] if unit.ad_tech is not None else []
    return shlex.join(words)
