"""The end of a round: both parties name the set of reports, the proxy sends its noisy share, the sum is out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.wire.encoding import Kind, decode, encode, malformed, reading, sized
from tacit.gather.wire.rounds import DIGEST_BYTES, LATEST, MOST_CELLS, REPORT_ID_BYTES

HASH_BYTES = 32
_LABEL = b"tacit gather report set 1 "


def set_hash(digest: bytes, sorted_ids: Iterable[bytes]) -> bytes:
    """SHA-256 over the round and its report ids in rising order: equal for equal sets only.

    A sum or an exclusive-or of hashes would not do: other sets with the same one can be found by algebra.
    """
    found = hashlib.sha256(_LABEL + sized("digest", digest, DIGEST_BYTES))
    before = b""
    for each in sorted_ids:
        if len(each) != REPORT_ID_BYTES or each <= before:
            raise BadInput("expected report ids in rising order, each once, got others")
        found.update(each)
        before = each
    return found.digest()


@dataclass(frozen=True)
class Agreement:
    """The set of reports that a party would release."""

    digest: bytes
    count: int
    ids_hash: bytes

    def __post_init__(self) -> None:
        sized("digest", self.digest, DIGEST_BYTES)
        _counted(self.count)
        sized("ids_hash", self.ids_hash, HASH_BYTES)

    def to_bytes(self) -> bytes:
        return encode(Kind.AGREEMENT, self.digest, self.count, self.ids_hash)

    @classmethod
    def from_bytes(cls, data: bytes) -> Agreement:
        fields = decode(Kind.AGREEMENT, data, bytes, int, bytes)
        with reading():
            return cls(*fields)


@dataclass(frozen=True)
class NoisyShare:
    """The proxy's share of the sum over the agreed set, with the proxy's noise in it."""

    digest: bytes
    ids_hash: bytes
    share: bytes  # the group's bytes of (cells,)

    def __post_init__(self) -> None:
        sized("digest", self.digest, DIGEST_BYTES)
        sized("ids_hash", self.ids_hash, HASH_BYTES)
        if type(self.share) is not bytes or not 4 <= len(self.share) <= 8 * MOST_CELLS:
            raise BadInput("expected a share of a round's size, got another")

    def to_bytes(self) -> bytes:
        return encode(Kind.NOISY_SHARE, self.digest, self.ids_hash, self.share)

    @classmethod
    def from_bytes(cls, data: bytes) -> NoisyShare:
        fields = decode(Kind.NOISY_SHARE, data, bytes, bytes, bytes)
        with reading():
            return cls(*fields)


@dataclass(frozen=True)
class Receipt:
    """The server's word that it has the proxy's share of this set and has released the sum."""

    digest: bytes
    ids_hash: bytes
    accepted: bool

    def __post_init__(self) -> None:
        sized("digest", self.digest, DIGEST_BYTES)
        sized("ids_hash", self.ids_hash, HASH_BYTES)
        if type(self.accepted) is not bool:
            raise BadInput("expected accepted to be True or False, got something else")

    def to_bytes(self) -> bytes:
        return encode(Kind.RECEIPT, self.digest, self.ids_hash, self.accepted)

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        fields = decode(Kind.RECEIPT, data, bytes, bytes, bool)
        with reading():
            return cls(*fields)


@dataclass(frozen=True, eq=False)
class Result:
    """What a round released: the sum over the agreed set, with the noise of both parties."""

    digest: bytes
    count: int  # aggregated reports
    values: NDArray[np.int64]  # (cells,) noisy, so some may be negative
    noise_variance: float  # of each value

    def __post_init__(self) -> None:
        sized("digest", self.digest, DIGEST_BYTES)
        _counted(self.count)
        if self.values.dtype != np.int64 or self.values.ndim != 1 or not 1 <= len(self.values) <= MOST_CELLS:
            raise BadInput("expected a row of int64 values, got others")
        variance = self.noise_variance
        if type(variance) is not float or not math.isfinite(variance) or variance < 0:
            raise BadInput("expected noise_variance to be a finite float >= 0, got something else")

    def to_bytes(self) -> bytes:
        return encode(
            Kind.RESULT, self.digest, self.count, self.values.astype("<i8").tobytes(), self.noise_variance
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Result:
        digest, count, values, variance = decode(Kind.RESULT, data, bytes, int, bytes, float)
        if len(values) % 8:
            malformed("expected values of 8 bytes each")
        with reading():
            return cls(digest, count, np.frombuffer(values, "<i8").astype(np.int64), variance)


def _counted(count: int) -> None:
    if expect.whole("count", count, at_least=0) > LATEST:
        raise BadInput(f"expected count <= {LATEST}, got {count}")
