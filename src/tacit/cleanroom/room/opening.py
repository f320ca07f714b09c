"""Taking up an agreement: what a room makes ready for the terms in force, and keeps of their history."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property

from tacit.cleanroom.room.counting import ledger_key, release_name
from tacit.cleanroom.room.granting import grant
from tacit.cleanroom.room.joining import ByPoint, ByToken, renamed
from tacit.cleanroom.room.labels import LabelTable
from tacit.cleanroom.room.store import Kept, Ledger, RoomStore
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.amending import Agreement
from tacit.cleanroom.wire.intersection import Offer
from tacit.cleanroom.wire.modes import Join
from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import BadInput, RoomError, RoomRefused
from tacit.privacy.randomness import Source

STORE_KEY, STORE_ID_BYTES = "store", 16


class Opened:
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
    def joining(self) -> ByToken | ByPoint:
        return ByPoint(self.secret, self.release) if self.terms.join is Join.PSI else ByToken()

    @cached_property
    def offer(self) -> Offer:
        """The room's points, for private set intersection."""
        assert self.terms.most_ids is not None, "it goes with this way of joining"
        return ByPoint(self.secret, self.release).offer(self.table, self.terms.most_ids)

    @property
    def exchange_key(self) -> str:
        return f"exchange/{self.release}"

    def drawn_from(self, kept: Kept) -> str:
        """A digest of what flips are drawn from: the labels, and under which names records go. Without the
        room's secret it tells nothing."""
        digests = b"".join(self.label_digests[key] for key in sorted(self.label_digests))
        return hashlib.sha256(digests + (kept.find(self.exchange_key) or b"")).hexdigest()

    def joined(self, store: RoomStore) -> LabelTable:
        """The labels by record, as the platform's tokens lead to them; refused before points were exchanged."""
        if self._joined is not None and self._registered:  # neither is ever kept otherwise again
            return self._joined
        with store.transaction() as kept:
            self.refuse_changed_labels(kept)
            answered = kept.find(self.exchange_key)
        if self._joined is None:
            if answered is None:
                raise RoomRefused(Refusal.NOT_AGREED, "expected points to be exchanged first")
            assert self.terms.most_ids is not None, "it goes with this way of joining"
            self._joined = renamed(self.table, self.offer, answered, self.terms.most_ids)
        return self._joined

    def refuse_changed_labels(self, kept: Kept) -> None:
        found = {key: kept.find(key) for key in self.label_digests}
        if any(known not in (None, self.label_digests[key]) for key, known in found.items()):
            raise RoomRefused(Refusal.LABELS_CHANGED, "changed labels need a new version, agreed by both")
        self._registered = None not in found.values()

    def register_labels(self, kept: Kept) -> None:
        """Remember the labels that this window and version stand for, from the first that leaves on."""
        self.refuse_changed_labels(kept)
        if not self._registered:
            for key, digest in self.label_digests.items():
                kept.keep(key, digest)

    def refuse_replaced(self, kept: Kept) -> None:
        """Refuse to go on under these terms once others have come into force."""
        if kept.find(self._terms_key) != self.terms.digest.encode():
            raise RoomRefused(Refusal.UNKNOWN_AGREEMENT, "other terms came into force meanwhile")

    def put_in_force(self, kept: Kept) -> None:
        if kept.find(self._terms_key) != self.terms.digest.encode():
            kept.keep(self._terms_key, self.terms.digest.encode())

    @property
    def agreement_keys(self) -> tuple[str, str]:
        """By its name and by its first terms: one of them may change, and an old file must not come back."""
        return f"agreement/{self.terms.name}", f"agreement/{self.agreement.steps[0].digest}"

    @property
    def _terms_key(self) -> str:
        return f"terms/{self.agreement.steps[0].digest}"


def opened(agreement: Agreement, table: LabelTable, secret: bytes) -> Opened:
    """What is in force, checked against the labels that are there."""
    terms = agreement.in_force
    for task in terms.tasks:
        if task not in table.tasks:
            raise BadInput(f"expected labels of the agreed task {task}, got a table without them")
    if terms.most_ids is not None and len(table) > terms.most_ids:
        raise BadInput(f"expected at most most_ids = {terms.most_ids} records with labels, got more")
    return Opened(agreement, terms, table, secret)


def identity(kept: Kept, entropy: Source) -> str:
    """The store's own id, drawn when it is first used: what one store counted, another does not know of."""
    known = kept.find(STORE_KEY)
    if known is None:
        known = entropy.bytes(STORE_ID_BYTES).hex().encode()
        kept.keep(STORE_KEY, known)
    return known.decode()


def take_up(now: Opened, kept: Kept, ledger: Ledger, store: str) -> bool:
    """Keep the agreement and grant what is agreed; whether it is another than the one that was kept.

    An agreement that does not continue the kept one is refused: an old file would undo a tightening. So is a
    store that does not know of a release that was paid for from it: it was put back, and counts are lost.
    """
    spelled, known = now.agreement.to_bytes(), [kept.find(key) for key in now.agreement_keys]
    for each in known:
        if each is not None and not now.agreement.extends(Agreement.from_bytes(each)):
            raise RoomRefused(Refusal.CONFLICT, "expected an agreement that continues the one in force here")
    begun = f"begun/{now.release}"
    if kept.find(begun) is None:
        if ledger.reservation(ledger_key(now.terms, store)) is not None:
            raise RoomError(
                "the ledger has paid for a release that this store knows nothing of: its counts were lost. "
                "Restore the store, or agree on a new label version, to be paid again"
            )
        kept.keep(begun, b"")
    grant(now.agreement, kept, ledger, store)
    now.put_in_force(kept)
    for key in now.agreement_keys:
        kept.keep(key, spelled)
    return known != [spelled, spelled]
