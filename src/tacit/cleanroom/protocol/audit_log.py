"""Hash chain of what a room did: each entry carries the hash of the one before, and the room signs its heads.

The room hands out a receipt (a signed head) with every answer. A party that keeps receipts can later ask for
the log and see that nothing up to them was edited, removed, inserted or reordered; a room that shows another
log has signed against itself. What comes after the last kept receipt is only as good as the room's word.
Source: hash-linked logs: Haber, Stornetta 1991; Schneier, Kelsey 1999, section 3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from tacit.cleanroom.protocol import signatures
from tacit.cleanroom.protocol.answers import AuditReceipt
from tacit.cleanroom.protocol.encoding import canonical_json
from tacit.errors import AuditBroken, BadInput
from tacit.privacy.ledger.chain import START, ChainEntry, ChainHead

MOST_CONTENTS = 2**16
_PURPOSE = "audit log head"


class HasHead(Protocol):
    """A head, or a receipt of one."""

    @property
    def sequence(self) -> int: ...
    @property
    def hash(self) -> str: ...


class AuditEntry(ChainEntry):
    """One event in its place; `contents` is the event in canonical JSON."""

    @property
    def event(self) -> dict[str, Any]:
        """What happened; raises AuditBroken where the contents are not an event in its one spelling."""
        try:
            found = json.loads(self.contents)
            fine = isinstance(found, dict) and canonical_json(found).decode() == self.contents
        except (ValueError, RecursionError):
            fine = False
        if not fine:
            raise AuditBroken(f"entry {self.sequence}: expected an event as canonical JSON, got something else")
        return dict(found)

    def as_json(self) -> dict[str, Any]:
        return {
            "sequence": self.sequence,
            "previous": self.previous,
            "contents": self.contents,
            "hash": self.hash,
        }

    @classmethod
    def from_json(cls, record: object) -> AuditEntry:
        """An entry as it was written; whether it holds is for `verify_log`."""
        keys = {"sequence": int, "previous": str, "contents": str, "hash": str}
        if not isinstance(record, dict) or record.keys() != keys.keys():
            raise AuditBroken(f"expected an entry with the keys {', '.join(keys)}, got another record")
        for key, kind in keys.items():
            if type(record[key]) is not kind:
                raise AuditBroken(f"expected {key} of an entry as {kind.__name__}, got another kind")
        return cls(**record)


def next_entry(head: HasHead, event: Mapping[str, Any]) -> AuditEntry:
    """The entry that follows `head`. The event says its kind and never holds a label."""
    if not isinstance(event.get("kind"), str):
        raise BadInput("expected an event with its kind, got none")
    contents = canonical_json(dict(event)).decode()
    if len(contents) > MOST_CONTENTS:
        raise BadInput(f"expected an event of at most {MOST_CONTENTS} characters, got {len(contents)}")
    sequence = head.sequence + 1
    return AuditEntry(sequence, head.hash, contents, _hash(sequence, head.hash, contents))


def verify_log(
    entries: Iterable[AuditEntry], *, heads: Iterable[HasHead] = (), after: ChainHead = START
) -> ChainHead:
    """The head of a log that holds; raises AuditBroken at the first entry that does not.

    `heads` are kept receipts: each must be an entry of this very log. With `after`, the entries are those that
    follow a head that was verified before, and receipts from before it are refused as a mistake.
    """
    kept: dict[int, list[str]] = {}
    for each in heads:
        if each.sequence < after.sequence:
            raise BadInput(f"expected receipts from entry {after.sequence} on, got one of {each.sequence}")
        kept.setdefault(each.sequence, []).append(each.hash)
    head = after
    _expect_kept(kept, head)
    for entry in entries:
        if (entry.sequence, entry.previous) != (head.sequence + 1, head.hash):
            raise AuditBroken(
                f"entry {head.sequence + 1} does not follow entry {head.sequence}: "
                "something was edited, removed, inserted or moved"
            )
        if entry.hash != _hash(entry.sequence, entry.previous, entry.contents):
            raise AuditBroken(f"entry {entry.sequence} is not what its hash says: it was edited")
        if "kind" not in entry.event:
            raise AuditBroken(f"entry {entry.sequence} does not say what kind of event it is")
        head = entry.head
        _expect_kept(kept, head)
    if kept:
        raise AuditBroken(f"the log ends at entry {head.sequence}, but there is a receipt of entry {min(kept)}")
    return head


def answer_hash(answer: NDArray[Any]) -> str:
    """What the log says of an answer: a hash of its values, as they are sent."""
    return hashlib.sha256(answer.astype(answer.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest()


def sign_receipt(head: HasHead, key: signatures.PrivateKey) -> AuditReceipt:
    """The head, signed by the room."""
    return AuditReceipt(head.sequence, head.hash, signatures.sign(key, _PURPOSE, _record(head)))


def check_receipt(given: AuditReceipt, room_key: str) -> None:
    """Refuse a receipt that the room of this public key did not sign."""
    if not signatures.is_signed(room_key, given.signature, _PURPOSE, _record(given)):
        raise AuditBroken(f"the receipt of entry {given.sequence} is not signed by the room of the agreement")


def _expect_kept(kept: dict[int, list[str]], head: ChainHead) -> None:
    if any(each != head.hash for each in kept.pop(head.sequence, ())):
        raise AuditBroken(f"entry {head.sequence} is not the one of a kept receipt: the log was rewritten")


def _record(head: HasHead) -> dict[str, Any]:
    return {"sequence": head.sequence, "hash": head.hash}


def _hash(sequence: int, previous: str, contents: str) -> str:
    # JSON escapes line breaks, so the parts cannot run into each other.
    told = f"tacit room audit 1\n{sequence}\n{previous}\n{contents}"
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
