"""What each party does before anything of a round leaves it: it adds up, pays, and draws its noise.

The first round of a run pays for all of it. A party's noise is drawn from its own key, and so it is the same
draw for ever for each sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.errors import Refused, ReservationTaken, SelfCheckFailed
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict, expect_bytes
from tacit.gather.protocol.groups import Residues, keystream
from tacit.gather.protocol.messages import HASH_BYTES
from tacit.gather.protocol.rounds import Round
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.rules import Reservation, ReservationState
from tacit.privacy.randomness import WordSource

_LABEL = b"tacit gather noise 1 "


def content_hash(round: Round, ids_hash: bytes, own_total: Residues) -> bytes:
    """Of what a party is about to add noise to: the agreed set, and the party's own sum over it.

    The set alone would not do. Ids say nothing of what stands in reports: a service that was put back to an old
    copy could be given others under the same ids, and the same noise on two sums would show their difference.
    """
    named = expect_bytes("ids_hash", ids_hash, HASH_BYTES) + round.group.to_bytes(own_total)
    return hashlib.sha256(b"tacit gather content 1 " + round.digest + named).digest()


def noise_words(key: SealingKey, role: PartyRole, round: Round, content: bytes) -> WordSource:
    """The words that this party's noise on this sum is made of: the same ones at every call.

    AES-256-CTR under HKDF-SHA256(private key; label, role, round digest, `content_hash`).

    Guarantee:  to whoever lacks the key, as good as uniform words, fresh for each round, set, sum and party. A
                second draw for the same sum, after any crash or from any restored copy, is the first one again:
                asking often averages nothing out.
    Neighbours: none; this is about noise, not about data.
    Assumes:    the private key was drawn uniformly, is this party's alone, and stays secret for as long as
                anybody keeps results: who learns it later can subtract all noise that was made from it. So a
                key that is no longer used is destroyed. The same version of the sampling code: another one may
                make other noise of the same words.
    Source:     HKDF: RFC 5869; AES-256 in counter mode as a pseudo-random generator.
    """
    bound = _LABEL + role.encode() + b" " + round.digest + expect_bytes("content", content, HASH_BYTES)
    stream = keystream(key.derive(bound))

    def words(count: int) -> NDArray[np.uint64]:
        return np.frombuffer(stream(8 * count), "<u8").astype(np.uint64, copy=False)

    return words


def draw_party_noise(round: Round, count: int, words: WordSource) -> Residues:
    """What a party adds to its sum over an agreed set of `count` reports."""
    law = round.noise.server_law(count)
    drawn = np.zeros(round.cells, np.int64) if law is None else law.sample_array(round.cells, words)
    return round.group.residues(drawn)


class ReservationLookup(Protocol):
    """A ledger that can be asked what was reserved under a key."""

    def reservation(self, key: str) -> Reservation | None: ...


class PartyLedger(ReservationLookup, Protocol):
    """A party's own ledger. `tacit.store.ledger.LedgerStore` is one, on disk."""

    def reserve(self, key: str, line: Line, cost: Budget, purpose: str) -> Reservation: ...

    def make(self, key: str, attempt: str, release: str) -> Reservation: ...

    def commit(self, key: str, attempt: str | None = None) -> Reservation: ...


def round_ledger_key(round: Round, role: PartyRole) -> str:
    """What one party's release of one round is called in its ledger."""
    return f"{round.key}/{role}"


def pay_round(ledger: PartyLedger, round: Round, role: PartyRole, key: SealingKey, content: bytes) -> None:
    """Set the round's cost aside for noise on this sum (`content_hash`), and on no other.

    A later round of a run costs next to nothing because the first one paid for all: it is refused unless this
    ledger has that payment, for the same run. (A run whose first round had too few reports has none: it starts
    anew under another name.)

    Guarantee:  one payment leads to one release. The ledger keeps which sum it was made for, before noise is
                drawn: whoever lost what it kept, or runs from a copy, makes the very same release again (its
                noise is the same, `noise_words`), or is refused.
    Neighbours: as of the round.
    Assumes:    the ledger is not put back to an older state together with its witness. What it keeps is a keyed
                digest, which tells nothing of the sum to whoever lacks the party's key.
    Source:     `privacy.ledger.rules.Ledger.make`.
    """
    if round.level:
        expect_first_round_paid(ledger, round, role)
    reservation = ledger.reserve(round_ledger_key(round, role), round.line, round.cost, _purpose(round))
    if reservation.state is ReservationState.ABORTED or reservation.predates_attempts:
        raise SelfCheckFailed(f"{round.key} was released before, and the {role} kept nothing of it: it stops")
    release = key.derive(b"tacit gather release 1 " + role.encode() + b" " + round.digest + content).hex()
    try:
        ledger.make(round_ledger_key(round, role), _attempt(round, role, key), release)
    except ReservationTaken:
        raise SelfCheckFailed(
            f"{round.key} was released before, of other reports than the {role} has now, or settled by hand: "
            "it stops"
        ) from None


def settle_round(ledger: PartyLedger, round: Round, role: PartyRole, key: SealingKey) -> None:
    """What was made is kept, and may leave: it is spent for good. Doing it twice is fine."""
    known = ledger.reservation(round_ledger_key(round, role))
    claimed = known is not None and known.attempt is not None  # not if paid for before there were claims
    ledger.commit(round_ledger_key(round, role), _attempt(round, role, key) if claimed else None)


def _attempt(round: Round, role: PartyRole, key: SealingKey) -> str:
    """The same from every copy of a party, and from nobody else: what copies may make is decided by the sum."""
    return key.derive(b"tacit gather attempt 1 " + role.encode() + b" " + round.digest).hex()


def sum_shares(round: Round, totals: Iterable[bytes]) -> Residues:
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


def expect_first_round_paid(ledger: ReservationLookup, round: Round, role: PartyRole) -> None:
    """Refuse a later round of a run unless this ledger has spent what the run costs, with its first round."""
    first = ledger.reservation(f"{round.run_key}/0/{role}")
    # Reserved is not enough: what has not left can still be given back, and this round would have been free.
    if first is None or first.state is not ReservationState.COMMITTED:
        raise Refused(MessageVerdict.PROMISE_NOT_KEPT, f"{round.key}: the run's first round was never paid for")
    if first.line != round.line or not first.purpose.startswith(f"{_run(round)} "):
        raise Refused(
            MessageVerdict.PROMISE_NOT_KEPT,
            f"{round.key}: what its first round paid for was another run than this",
        )
