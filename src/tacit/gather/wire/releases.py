"""What each party does before anything of a round leaves it: pay, then add noise that the other cannot know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from tacit.errors import SelfCheckFailed
from tacit.gather.wire.groups import Residues
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import Role
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Reservation, State
from tacit.privacy.randomness import Words


class Payer(Protocol):
    """A party's own ledger. `tacit.store.ledger.LedgerStore` is one, on disk."""

    def reserve(self, key: str, line: Line, cost: Budget, purpose: str) -> Reservation: ...

    def commit(self, key: str) -> Reservation: ...


def ledger_key(round: Round, role: Role) -> str:
    """What one party's release of one round is called in its ledger."""
    return f"{round.key}/{role}"


def pay(ledger: Payer, round: Round, role: Role) -> None:
    """Set the round's cost aside, or find it set aside by an attempt that died before it kept its noise.

    Only who has nothing kept of this release calls it. If it was settled all the same, what was kept is lost,
    and noise drawn now would be the second on one sum: whoever has both halves its variance by averaging.
    """
    reservation = ledger.reserve(ledger_key(round, role), round.line, round.cost, f"round {round.digest.hex()}")
    if reservation.state is not State.RESERVED:
        raise SelfCheckFailed(f"{round.key} was released before, and the {role} kept nothing of it: it stops")


def summed(round: Round, totals: Iterable[bytes]) -> Residues:
    """The sum of a party's partial sums, one at a time."""
    group, cells = round.group, round.cells
    total = group.residues(np.zeros(cells, np.int64))
    for each in totals:
        total = group.add(total, group.from_bytes(each, cells))
    return total


def own_noise(round: Round, count: int, words: Words) -> Residues:
    """What this party adds, if so many reports were agreed on. Drawn once for each round, and kept."""
    law = round.noise.server_law(count)
    drawn = np.zeros(round.cells, np.int64) if law is None else law.sample_array(round.cells, words)
    return round.group.residues(drawn)
