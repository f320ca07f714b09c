"""What each party does before anything of a round leaves it: pay, once for the whole run, and add up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from tacit.errors import Refused, ReservationTaken, SelfCheckFailed
from tacit.gather.wire.groups import Residues
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import Role, SealingKey
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Reservation, State


class Paid(Protocol):
    """A ledger that can be asked what was reserved under a key."""

    def reservation(self, key: str) -> Reservation | None: ...


class Payer(Paid, Protocol):
    """A party's own ledger. `tacit.store.ledger.LedgerStore` is one, on disk."""

    def reserve(self, key: str, line: Line, cost: Budget, purpose: str) -> Reservation: ...

    def make(self, key: str, attempt: str, release: str) -> Reservation: ...

    def commit(self, key: str, attempt: str | None = None) -> Reservation: ...


def ledger_key(round: Round, role: Role) -> str:
    """What one party's release of one round is called in its ledger."""
    return f"{round.key}/{role}"


def pay(ledger: Payer, round: Round, role: Role, key: SealingKey, content: bytes) -> None:
    """Set the round's cost aside for noise on this sum (`drawing.content_hash`), and on no other.

    A later round of a run costs next to nothing because the first one paid for all: it is refused unless this
    ledger has that payment, for the same run. (A run whose first round had too few reports has none: it starts
    anew under another name.)

    Guarantee:  one payment leads to one release. The ledger keeps which sum it was made for, before noise is
                drawn: whoever lost what it kept, or runs from a copy, makes the very same release again (its
                noise is the same, `drawing.noise_words`), or is refused.
    Neighbours: as of the round.
    Assumes:    the ledger is not put back to an older state together with its witness. What it keeps is a keyed
                digest, which tells nothing of the sum to whoever lacks the party's key.
    Source:     `privacy.ledger.rules.Ledger.make`.
    """
    if round.level:
        expect_first_paid(ledger, round, role)
    reservation = ledger.reserve(ledger_key(round, role), round.line, round.cost, _purpose(round))
    if reservation.state is State.ABORTED or reservation.predates_attempts:
        raise SelfCheckFailed(f"{round.key} was released before, and the {role} kept nothing of it: it stops")
    release = key.derived(b"tacit gather release 1 " + role.encode() + b" " + round.digest + content).hex()
    try:
        ledger.make(ledger_key(round, role), _attempt(round, role, key), release)
    except ReservationTaken:
        raise SelfCheckFailed(
            f"{round.key} was released before, of other reports than the {role} has now, or settled by hand: "
            "it stops"
        ) from None


def settle(ledger: Payer, round: Round, role: Role, key: SealingKey) -> None:
    """What was made is kept, and may leave: it is spent for good. Doing it twice is fine."""
    known = ledger.reservation(ledger_key(round, role))
    claimed = (
        known is not None and known.attempt is not None
    )  # not where it was paid for before there were claims
    ledger.commit(ledger_key(round, role), _attempt(round, role, key) if claimed else None)


def _attempt(round: Round, role: Role, key: SealingKey) -> str:
    """The same from every copy of a party, and from nobody else: what copies may make is decided by the sum."""
    return key.derived(b"tacit gather attempt 1 " + role.encode() + b" " + round.digest).hex()


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
