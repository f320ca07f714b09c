"""Whether a party's ledger can pay for a round: asked before it opens, not after its reports have come."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from tacit.gather.wire.releases import expect_first_paid, ledger_key
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import Role
from tacit.privacy.ledger.amount import NOTHING, Amount
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Account, Reservation
from tacit.services.problems import NotGranted


class Accounts(Protocol):
    """What is looked up of a ledger. `tacit.store.ledger.LedgerStore` is one."""

    def account(self, line: Line) -> Account | None: ...

    def reservation(self, key: str) -> Reservation | None: ...


def expect_granted(accounts: Accounts, round: Round, role: Role) -> None:
    """NotGranted if the line has too little left for the round, or for the whole run if it is its first.
    Refused, if it is a later one, unless the first was paid for.

    Nothing is set aside: of two rounds that are open at once the second may still find too little.
    """
    if accounts.reservation(ledger_key(round, role)) is not None:
        return
    if round.level:
        expect_first_paid(accounts, round, role)
    cost = Amount.spending(round.cost if round.level else round.promise.cost)
    account = accounts.account(round.line)
    needed = cost if account is None else account.used + cost
    if account is None or not needed.fits(account.limit):
        limit = Amount(  # what the line has in plenty, it keeps
            max(needed.epsilon_nanos, (NOTHING if account is None else account.limit).epsilon_nanos),
            max(needed.delta_attos, (NOTHING if account is None else account.limit).delta_attos),
        )
        raise NotGranted(
            str(role), round.scope, _decimal(limit.epsilon_nanos, 9), _decimal(limit.delta_attos, 18)
        )


def _decimal(parts: int, places: int) -> str:
    """The number itself, as a command line takes it."""
    return f"{Decimal(parts).scaleb(-places).normalize():f}" if parts else "0"
