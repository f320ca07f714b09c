"""Terms in force in a room: the labels they are about, and how tokens lead to records.

A record is what a label, a flip and a count are kept under. Keyed tokens are records as they stand; under
private set intersection a record is what the room's mask makes of a point.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Join
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.protocol.tokens import (
    POINT_BYTES,
    TOKEN_BYTES,
    PointMask,
    PointOffer,
    Points,
    match_points,
    offer_points,
)
from tacit.cleanroom.room.labels import LabelTable, Records
from tacit.cleanroom.room.payment import grant_agreed_budget, release_ledger_key, release_name
from tacit.cleanroom.room.store import RoomLedger, RoomStore, WriteTransaction
from tacit.entropy import KeyedEntropy
from tacit.errors import BadInput, RoomError, RoomRefused
from tacit.privacy.randomness import Source


class RecordJoin(Protocol):
    """How long a token is, and which record it names; different tokens may name the same one."""

    token_bytes: int

    def records(self, tokens: NDArray[np.uint8]) -> Records:
        """(n, 16)."""


class TokenJoin:
    """Keyed tokens: each is a record's name as it stands."""

    token_bytes = TOKEN_BYTES

    def records(self, tokens: NDArray[np.uint8]) -> Records:
        return tokens


class PointJoin:
    """Private set intersection over the keyed tokens: a record is what the room's mask makes of a point.

    The mask, the padding and the order of the offer come from the room's secret and what they are for, so that
    they are the same after a restart.
    """

    token_bytes = POINT_BYTES

    def __init__(self, secret: bytes, release: str) -> None:
        label = b"tacit room, intersection\n" + release.encode()
        self._mask = PointMask.new(KeyedEntropy(secret, label + b"\nmask"))
        self._order = KeyedEntropy(secret, label + b"\norder")

    def records(self, tokens: NDArray[np.uint8]) -> Records:
        return _records(self._mask.mask_again(tokens))

    def offer(self, table: LabelTable, most_ids: int) -> PointOffer:
        """The room's side of the exchange. Call it once: its order is drawn from one stream."""
        return offer_points(self._mask, [each.tobytes() for each in table.records], most_ids, self._order)


def rename_records(table: LabelTable, made: PointOffer, answered: bytes, most_ids: int) -> LabelTable:
    """The labels under the records that the platform's tokens will lead to, once its answer has come."""
    return table.with_records(_records(match_points(made.places, parse_points(answered, most_ids), most_ids)))


def parse_points(data: bytes, most_ids: int) -> Points:
    """The points that these bytes are; refused unless they are exactly `most_ids`."""
    if len(data) != most_ids * POINT_BYTES:
        raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected {most_ids} points of {POINT_BYTES} bytes")
    return np.frombuffer(data, np.uint8).reshape(-1, POINT_BYTES)


def _records(identities: Points) -> Records:
    spelled = b"".join(hashlib.sha256(each.tobytes()).digest()[:TOKEN_BYTES] for each in identities)
    return np.frombuffer(spelled, np.uint8).reshape(-1, TOKEN_BYTES)


@dataclass(frozen=True)
class JoinShare:
    """Of the records that a run asked about, each as often as it did: how many have a label in the table.

    Where a table lists conversions alone, it is their rate: for the room's operator and nobody else, and kept
    in no store.
    """

    asked: int
    found: int

    @property
    def share(self) -> float:
        return self.found / self.asked if self.asked else 0.0


STORE_KEY, STORE_ID_BYTES = "store", 16


class ActiveTerms:
    """Terms in force, the labels they are about, and how records are found."""

    def __init__(self, agreement: Agreement, terms: Terms, table: LabelTable, secret: bytes) -> None:
        self.agreement, self.terms, self.table, self.secret = agreement, terms, table, secret
        self._joined = table if terms.join is Join.TOKENS else None
        self._registered = False  # whether the store is known to hold these labels' digest

    @cached_property
    def release(self) -> str:
        return release_name(self.terms)

    @cached_property
    def label_digests(self) -> dict[str, bytes]:
        """Of the labels of each agreed task, by the key that they are registered under."""
        found = {}
        for task in self.terms.tasks:
            alone = self.table.labels[:, [self.table.tasks.index(task)]]
            key = f"labels/{self.terms.name}/{self.terms.window}/{self.terms.label_version}/{task}"
            found[key] = replace(self.table, labels=alone, tasks=(task,)).digest(self.secret)
        return found

    @cached_property
    def record_join(self) -> TokenJoin | PointJoin:
        return PointJoin(self.secret, self.release) if self.terms.join is Join.PSI else TokenJoin()

    @cached_property
    def offer(self) -> PointOffer:
        """The room's points, for private set intersection."""
        assert self.terms.most_ids is not None, "it goes with this way of joining"
        return PointJoin(self.secret, self.release).offer(self.table, self.terms.most_ids)

    @property
    def exchange_key(self) -> str:
        return f"exchange/{self.release}"

    def draws_digest(self, transaction: WriteTransaction) -> str:
        """A digest of what flips are drawn from: the labels, and under which names records go. Without the
        room's secret it tells nothing."""
        digests = b"".join(self.label_digests[key] for key in sorted(self.label_digests))
        return hashlib.sha256(digests + (transaction.get(self.exchange_key) or b"")).hexdigest()

    def joined_labels(self, store: RoomStore) -> LabelTable:
        """The labels by record, as the platform's tokens lead to them; refused before points were exchanged."""
        if self._joined is not None and self._registered:  # neither is ever kept otherwise again
            return self._joined
        with store.transaction() as transaction:
            self.refuse_changed_labels(transaction)
            answered = transaction.get(self.exchange_key)
        if self._joined is None:
            if answered is None:
                raise RoomRefused(RoomRefusal.NOT_AGREED, "expected points to be exchanged first")
            assert self.terms.most_ids is not None, "it goes with this way of joining"
            self._joined = rename_records(self.table, self.offer, answered, self.terms.most_ids)
        return self._joined

    def refuse_changed_labels(self, transaction: WriteTransaction) -> None:
        found = {key: transaction.get(key) for key in self.label_digests}
        if any(known not in (None, self.label_digests[key]) for key, known in found.items()):
            raise RoomRefused(RoomRefusal.LABELS_CHANGED, "changed labels need a new version, agreed by both")
        self._registered = None not in found.values()

    def register_labels(self, transaction: WriteTransaction) -> None:
        """Remember the labels that this window and version stand for, from the first that leaves on."""
        self.refuse_changed_labels(transaction)
        if not self._registered:
            for key, digest in self.label_digests.items():
                transaction.put(key, digest)

    def refuse_replaced(self, transaction: WriteTransaction) -> None:
        """Refuse to go on under these terms once others have come into force."""
        if transaction.get(self._terms_key) != self.terms.digest.encode():
            raise RoomRefused(RoomRefusal.UNKNOWN_AGREEMENT, "other terms came into force meanwhile")

    def put_in_force(self, transaction: WriteTransaction) -> None:
        if transaction.get(self._terms_key) != self.terms.digest.encode():
            transaction.put(self._terms_key, self.terms.digest.encode())

    @property
    def agreement_keys(self) -> tuple[str, str]:
        """By its name and by its first terms: one of them may change, and an old file must not come back."""
        return f"agreement/{self.terms.name}", f"agreement/{self.agreement.steps[0].digest}"

    @property
    def _terms_key(self) -> str:
        return f"terms/{self.agreement.steps[0].digest}"


def activate_terms(agreement: Agreement, table: LabelTable, secret: bytes) -> ActiveTerms:
    """What is in force, checked against the labels that are there."""
    terms = agreement.in_force
    for task in terms.tasks:
        if task not in table.tasks:
            raise BadInput(f"expected labels of the agreed task {task}, got a table without them")
    if terms.most_ids is not None and len(table) > terms.most_ids:
        raise BadInput(f"expected at most most_ids = {terms.most_ids} records with labels, got more")
    return ActiveTerms(agreement, terms, table, secret)


def store_identity(transaction: WriteTransaction, entropy: Source) -> str:
    """The store's own id, drawn when it is first used: what one store counted, another does not know of."""
    known = transaction.get(STORE_KEY)
    if known is None:
        known = entropy.bytes(STORE_ID_BYTES).hex().encode()
        transaction.put(STORE_KEY, known)
    return known.decode()


def adopt_agreement(active: ActiveTerms, transaction: WriteTransaction, ledger: RoomLedger, store: str) -> bool:
    """Keep the agreement and grant what is agreed; whether it is another than the one that was kept.

    An agreement that does not continue the kept one is refused: an old file would undo a tightening. So is a
    store that does not know of a release that was paid for from it: it was put back, and counts are lost.
    """
    spelled, known = active.agreement.to_bytes(), [transaction.get(key) for key in active.agreement_keys]
    for each in known:
        if each is not None and not active.agreement.extends(Agreement.from_bytes(each)):
            raise RoomRefused(
                RoomRefusal.CONFLICT, "expected an agreement that continues the one in force here"
            )
    begun = f"begun/{active.release}"
    if transaction.get(begun) is None:
        if ledger.reservation(release_ledger_key(active.terms, store)) is not None:
            raise RoomError(
                "the ledger has paid for a release that this store knows nothing of: its counts were lost. "
                "Restore the store, or agree on a new label version, to be paid again"
            )
        transaction.put(begun, b"")
    grant_agreed_budget(active.agreement, transaction, ledger, store)
    active.put_in_force(transaction)
    for key in active.agreement_keys:
        transaction.put(key, spelled)
    return known != [spelled, spelled]
