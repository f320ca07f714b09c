"""The messages between proxy and server: jobs and their replies, the agreed set of reports, the result.

The proxy hands on the server's sealed parts of some reports in a job, and the server gives a verdict on each.
Entries travel by column: all ids, then all seals, then all messages; those of one job have one size each. At
the end of a round both parties name the set of reports, the proxy sends its noisy share, and the sum is out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.protocol.encoding import (
    MessageKind,
    MessageVerdict,
    decode_message,
    encode_message,
    expect_bytes,
    malformed_if_refused,
    refuse_malformed,
)
from tacit.gather.protocol.rounds import DIGEST_BYTES, LATEST, MOST_CELLS, REPORT_ID_BYTES, Round
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.sealing import SEAL_OVERHEAD

MOST_ENTRIES = 4096
HASH_BYTES = 32
_REFUSAL_CODES = bytes(map(int, MessageVerdict))


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
        expect_bytes("digest", self.digest, DIGEST_BYTES)
        _check_number(self.number)
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
        return encode_message(
            MessageKind.JOB,
            self.digest,
            self.number,
            ids,
            seals,
            b"".join(each.message for each in self.entries),
        )

    def to_bytes(self) -> bytes:
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Job:
        digest, number, ids, seals, messages = decode_message(
            MessageKind.JOB, data, bytes, int, bytes, bytes, bytes
        )
        count = len(ids) // REPORT_ID_BYTES
        columns = (_split_column(ids, count), _split_column(seals, count), _split_column(messages, count))
        with malformed_if_refused():
            found = cls(digest, number, tuple(map(JobEntry, *columns)))
        vars(found)["_bytes"] = data  # its one spelling, so nothing needs to be written again
        return found

    def expect_sizes(self, round: Round) -> None:
        """Refused(MALFORMED) unless the entries have the sizes of this round's reports."""
        scheme, first = sharing_scheme(round), self.entries[0]
        sizes = scheme.server_bytes + SEAL_OVERHEAD, scheme.message_bytes
        if (len(first.sealed), len(first.message)) != sizes:
            refuse_malformed("expected parts and messages of the round's sizes")

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
    verdicts: bytes  # a MessageVerdict per report
    messages: tuple[bytes, ...]  # one per report, of one size, empty without a proof; no meaning where refused

    def __post_init__(self) -> None:
        expect_bytes("digest", self.digest, DIGEST_BYTES)
        _check_number(self.number)
        expect_bytes("job_hash", self.job_hash, HASH_BYTES)
        if type(self.verdicts) is not bytes or not 1 <= len(self.verdicts) <= MOST_ENTRIES:
            raise BadInput(f"expected 1 to {MOST_ENTRIES} verdicts, got others")
        if self.verdicts.translate(None, _REFUSAL_CODES):
            raise BadInput("expected verdicts that are MessageVerdict codes, got others")
        if len(self.messages) != len(self.verdicts):
            raise BadInput(f"expected {len(self.verdicts)} messages, got {len(self.messages)}")
        _same_size("message", self.messages, len(self.messages[0]))

    def to_bytes(self) -> bytes:
        return encode_message(
            MessageKind.JOB_REPLY,
            self.digest,
            self.number,
            self.job_hash,
            self.verdicts,
            b"".join(self.messages),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> JobReply:
        digest, number, job_hash, verdicts, messages = decode_message(
            MessageKind.JOB_REPLY, data, bytes, int, bytes, bytes, bytes
        )
        with malformed_if_refused():
            return cls(digest, number, job_hash, verdicts, tuple(_split_column(messages, len(verdicts))))


def _check_number(number: int) -> None:
    if expect.whole("number", number, at_least=0) > LATEST:
        raise BadInput(f"expected number <= {LATEST}, got {number}")


def _same_size(name: str, column: Sequence[bytes], size: int) -> None:
    if any(type(each) is not bytes for each in column) or set(map(len, column)) != {size}:
        raise BadInput(f"expected every {name} to be {size} bytes, got others")


def _split_column(column: bytes, count: int) -> list[bytes]:
    """The column in `count` pieces of one size."""
    if not count or len(column) % count:
        refuse_malformed("expected columns of as many entries")
    size = len(column) // count
    return [column[size * row : size * (row + 1)] for row in range(count)]


_LABEL = b"tacit gather report set 1 "


def report_set_hash(digest: bytes, sorted_ids: Iterable[bytes]) -> bytes:
    """SHA-256 over the round and its report ids in rising order: equal for equal sets only.

    A sum or an exclusive-or of hashes would not do: other sets with the same one can be found by algebra.
    """
    found = hashlib.sha256(_LABEL + expect_bytes("digest", digest, DIGEST_BYTES))
    before = b""
    for each in sorted_ids:
        if len(each) != REPORT_ID_BYTES or each <= before:
            raise BadInput("expected report ids in rising order, each once, got others")
        found.update(each)
        before = each
    return found.digest()


@dataclass(frozen=True)
class ReportSet:
    """The set of reports that a party would release."""

    digest: bytes
    count: int
    ids_hash: bytes

    def __post_init__(self) -> None:
        expect_bytes("digest", self.digest, DIGEST_BYTES)
        _check_count(self.count)
        expect_bytes("ids_hash", self.ids_hash, HASH_BYTES)

    def to_bytes(self) -> bytes:
        return encode_message(MessageKind.AGREEMENT, self.digest, self.count, self.ids_hash)

    @classmethod
    def from_bytes(cls, data: bytes) -> ReportSet:
        fields = decode_message(MessageKind.AGREEMENT, data, bytes, int, bytes)
        with malformed_if_refused():
            return cls(*fields)


@dataclass(frozen=True)
class NoisyShare:
    """The proxy's share of the sum over the agreed set, with the proxy's noise in it."""

    digest: bytes
    ids_hash: bytes
    share: bytes  # the group's bytes of (cells,)

    def __post_init__(self) -> None:
        expect_bytes("digest", self.digest, DIGEST_BYTES)
        expect_bytes("ids_hash", self.ids_hash, HASH_BYTES)
        if type(self.share) is not bytes or not 4 <= len(self.share) <= 8 * MOST_CELLS:
            raise BadInput("expected a share of a round's size, got another")

    def to_bytes(self) -> bytes:
        return encode_message(MessageKind.NOISY_SHARE, self.digest, self.ids_hash, self.share)

    @classmethod
    def from_bytes(cls, data: bytes) -> NoisyShare:
        fields = decode_message(MessageKind.NOISY_SHARE, data, bytes, bytes, bytes)
        with malformed_if_refused():
            return cls(*fields)


@dataclass(frozen=True)
class ShareReceipt:
    """The server's word that it has the proxy's share of this set and has released the sum."""

    digest: bytes
    ids_hash: bytes
    accepted: bool

    def __post_init__(self) -> None:
        expect_bytes("digest", self.digest, DIGEST_BYTES)
        expect_bytes("ids_hash", self.ids_hash, HASH_BYTES)
        if type(self.accepted) is not bool:
            raise BadInput("expected accepted to be True or False, got something else")

    def to_bytes(self) -> bytes:
        return encode_message(MessageKind.RECEIPT, self.digest, self.ids_hash, self.accepted)

    @classmethod
    def from_bytes(cls, data: bytes) -> ShareReceipt:
        fields = decode_message(MessageKind.RECEIPT, data, bytes, bytes, bool)
        with malformed_if_refused():
            return cls(*fields)


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What a round released: the sum over the agreed set, with the noise of both parties."""

    digest: bytes
    count: int  # aggregated reports
    values: NDArray[np.int64]  # (cells,) noisy, so some may be negative
    noise_variance: float  # of each value

    def __post_init__(self) -> None:
        expect_bytes("digest", self.digest, DIGEST_BYTES)
        _check_count(self.count)
        if self.values.dtype != np.int64 or self.values.ndim != 1 or not 1 <= len(self.values) <= MOST_CELLS:
            raise BadInput("expected a row of int64 values, got others")
        variance = self.noise_variance
        if type(variance) is not float or not math.isfinite(variance) or variance < 0:
            raise BadInput("expected noise_variance to be a finite float >= 0, got something else")

    def to_bytes(self) -> bytes:
        return encode_message(
            MessageKind.RESULT,
            self.digest,
            self.count,
            self.values.astype("<i8").tobytes(),
            self.noise_variance,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> RoundResult:
        digest, count, values, variance = decode_message(MessageKind.RESULT, data, bytes, int, bytes, float)
        if len(values) % 8:
            refuse_malformed("expected values of 8 bytes each")
        with malformed_if_refused():
            return cls(digest, count, np.frombuffer(values, "<i8").astype(np.int64), variance)


def _check_count(count: int) -> None:
    if expect.whole("count", count, at_least=0) > LATEST:
        raise BadInput(f"expected count <= {LATEST}, got {count}")
