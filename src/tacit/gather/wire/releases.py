"""What each party does before anything of a round leaves it: pay, once for the whole run, and add up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from tacit.errors import Refused, SelfCheckFailed
from tacit.gather.wire.groups import Residues
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import Role
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Reservation, State


class Paid(Protocol):
    """A ledger that can be asked what was reserved under a key."""

    def reservation(self, key: str) -> Reservation | None: ...


class Payer(Paid, Protocol):
    """A party's own ledger. `tacit.store.ledger.LedgerStore` is one, on disk."""

    def reserve(self, key: str, line: Line, cost: Budget, purpose: str) -> Reservation: ...

    def commit(self, key: str) -> Reservation: ...


def ledger_key(round: Round, role: Role) -> str:
    """What one party's release of one round is called in its ledger."""
    return f"{round.key}/{role}"


def pay(ledger: Payer, round: Round, role: Role) -> None:
    """Set the round's cost aside, or find it set aside by an attempt that died before it kept its noise.

    A later round of a run costs next to nothing because the first one paid for all: it is refused unless this
    ledger has that payment, for the same run. (A run whose first round had too few reports has none: it starts
    anew under another name.)

    Only who has nothing kept of this release calls it. If it was settled all the same, what was kept is lost
    and has left: for the same reports the noise would be the same again, but nobody can tell that they are.
    """
    if round.level:
        expect_first_paid(ledger, round, role)
    reservation = ledger.reserve(ledger_key(round, role), round.line, round.cost, _purpose(round))
    if reservation.state is not State.RESERVED:
        raise SelfCheckFailed(f"{round.key} was released before, and the {role} kept nothing of it: it stops")


def summed(round: Round, totals: Iterable[bytes]) -> Residues:
    """The sum of a party's partial sums, one at a time."""
    group, cells = round.group, round.cells
    total = group.residues(np.zeros(cells, np.int64))
    for each in totals:
        total = group.add(total, group.from_bytes(each, cells))
    return total


def _purpose(round: Round) -> str:
    return f"{_run(round)} round {round.digest.hex()}"


def _run(round: Round) -> str:
    return f"run {round.run_digest.hex()}"


def expect_first_paid(ledger: Paid, round: Round, role: Role) -> None:
    """Refuse a later round of a run unless this ledger has spent what the run costs, with its first round."""
    first = ledger.reservation(f"{round.run_key}/0/{role}")
    # Reserved is not enough: what has not left can still be given back, and this round would have been free.
    if first is None or first.state is not State.COMMITTED:
        raise Refused(Refusal.PROMISE_NOT_KEPT, f"{round.key}: the run's first round was never paid for")
    if first.line != round.line or not first.purpose.startswith(f"{_run(round)} "):
        raise Refused(
            Refusal.PROMISE_NOT_KEPT, f"{round.key}: what its first round paid for was another run than this"
        )
