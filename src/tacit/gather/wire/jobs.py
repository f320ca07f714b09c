"""What the proxy hands on: the server's sealed parts of some reports; and what the server says of each.

Entries travel by column: all ids, then all seals, then all messages. Those of one job have one size each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.wire.encoding import Kind, decode, encode, malformed, reading, sized
from tacit.gather.wire.forms import form_of
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import DIGEST_BYTES, LATEST, REPORT_ID_BYTES, Round
from tacit.gather.wire.sealing import SEAL_OVERHEAD

MOST_ENTRIES = 4096
HASH_BYTES = 32
_KNOWN = bytes(map(int, Refusal))


@dataclass(frozen=True)
class JobEntry:
    """One report, as the server sees it."""

    report_id: bytes
    sealed: bytes  # the server's part, still sealed
    message: bytes = b""  # what the proxy says of the proof; empty without one


@dataclass(frozen=True)
class Job:
    """Some reports of one round; the number names the job within it."""

    digest: bytes
    number: int
    entries: tuple[JobEntry, ...]

    def __post_init__(self) -> None:
        sized("digest", self.digest, DIGEST_BYTES)
        _numbered(self.number)
        if not 1 <= len(self.entries) <= MOST_ENTRIES:
            raise BadInput(f"expected 1 to {MOST_ENTRIES} entries, got {len(self.entries)}")
        _same_size("report_id", [each.report_id for each in self.entries], REPORT_ID_BYTES)
        _same_size("sealed", [each.sealed for each in self.entries], len(self.entries[0].sealed))
        _same_size("message", [each.message for each in self.entries], len(self.entries[0].message))
        if len(self.entries[0].sealed) <= SEAL_OVERHEAD:
            raise BadInput(f"expected sealed parts of more than {SEAL_OVERHEAD} bytes, got fewer")

    @cached_property
    def _bytes(self) -> bytes:
        ids = b"".join(each.report_id for each in self.entries)
        seals = b"".join(each.sealed for each in self.entries)
        return encode(
            Kind.JOB, self.digest, self.number, ids, seals, b"".join(each.message for each in self.entries)
        )

    def to_bytes(self) -> bytes:
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Job:
        digest, number, ids, seals, messages = decode(Kind.JOB, data, bytes, int, bytes, bytes, bytes)
        count = len(ids) // REPORT_ID_BYTES
        columns = (_cut(ids, count), _cut(seals, count), _cut(messages, count))
        with reading():
            found = cls(digest, number, tuple(map(JobEntry, *columns)))
        vars(found)["_bytes"] = data  # its one spelling, so nothing needs to be written again
        return found

    def expect_sizes(self, round: Round) -> None:
        """Refused(MALFORMED) unless the entries have the sizes of this round's reports."""
        form, first = form_of(round), self.entries[0]
        if (len(first.sealed), len(first.message)) != (form.server_bytes + SEAL_OVERHEAD, form.message_bytes):
            malformed("expected parts and messages of the round's sizes")

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 of the bytes: what tells a retry from another job of the same number."""
        return hashlib.sha256(self._bytes).digest()


@dataclass(frozen=True)
class JobReply:
    """What the server says of each report of a job, in the job's order."""

    digest: bytes
    number: int
    job_hash: bytes
    verdicts: bytes  # a Refusal a report
    messages: tuple[bytes, ...]  # one a report, of one size, empty without a proof; no meaning where refused

    def __post_init__(self) -> None:
        sized("digest", self.digest, DIGEST_BYTES)
        _numbered(self.number)
        sized("job_hash", self.job_hash, HASH_BYTES)
        if type(self.verdicts) is not bytes or not 1 <= len(self.verdicts) <= MOST_ENTRIES:
            raise BadInput(f"expected 1 to {MOST_ENTRIES} verdicts, got others")
        if self.verdicts.translate(None, _KNOWN):
            raise BadInput("expected verdicts that are Refusal codes, got others")
        if len(self.messages) != len(self.verdicts):
            raise BadInput(f"expected {len(self.verdicts)} messages, got {len(self.messages)}")
        _same_size("message", self.messages, len(self.messages[0]))

    def to_bytes(self) -> bytes:
        return encode(
            Kind.JOB_REPLY, self.digest, self.number, self.job_hash, self.verdicts, b"".join(self.messages)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> JobReply:
        digest, number, job_hash, verdicts, messages = decode(
            Kind.JOB_REPLY, data, bytes, int, bytes, bytes, bytes
        )
        with reading():
            return cls(digest, number, job_hash, verdicts, tuple(_cut(messages, len(verdicts))))


def _numbered(number: int) -> None:
    if expect.whole("number", number, at_least=0) > LATEST:
        raise BadInput(f"expected number <= {LATEST}, got {number}")


def _same_size(name: str, column: Sequence[bytes], size: int) -> None:
    if any(type(each) is not bytes for each in column) or set(map(len, column)) != {size}:
        raise BadInput(f"expected every {name} to be {size} bytes, got others")


def _cut(column: bytes, count: int) -> list[bytes]:
    """The column in so many pieces of one size."""
    if not count or len(column) % count:
        malformed("expected columns of as many entries")
    size = len(column) // count
    return [column[size * row : size * (row + 1)] for row in range(count)]
