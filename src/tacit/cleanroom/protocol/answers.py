"""Answers of the room: numbers behind a small header, each with a receipt of the room's audit log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol import encoding
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.requests import LabelsRequest, StatisticRequest, StepRequest
from tacit.cleanroom.protocol.terms import Terms
from tacit.errors import BadInput, RoomRefused
from tacit.privacy.budget import Budget

CHUNK_BYTES = 2**20
SIGNATURE_BYTES = 64
MOST_HEADER_BYTES = 4096

_DIGITS = re.compile(r"[0-9]{1,200}(/[1-9][0-9]{0,199})?", re.ASCII)


@dataclass(frozen=True)
class AuditReceipt:
    """The head of the room's audit log after a release, signed by the room (Ed25519)."""

    sequence: int
    hash: str
    signature: bytes

    def __post_init__(self) -> None:
        encoding.check_whole("sequence", self.sequence, at_least=0)
        encoding.check_digest("hash", self.hash)
        if not isinstance(self.signature, bytes) or len(self.signature) != SIGNATURE_BYTES:
            raise BadInput(f"expected signature to be {SIGNATURE_BYTES} bytes, got another")

    def as_json(self) -> dict[str, Any]:
        return {"sequence": self.sequence, "hash": self.hash, "signature": self.signature.hex()}

    @classmethod
    def from_json(cls, value: Any) -> AuditReceipt:
        told = encoding.check_keys(value, ("sequence", "hash", "signature"))
        spelled = told["signature"]
        if not isinstance(spelled, str) or len(spelled) != 2 * SIGNATURE_BYTES:
            raise RoomRefused(
                RoomRefusal.MALFORMED, f"expected signature to be {2 * SIGNATURE_BYTES} hex digits"
            )
        return encoding.build_or_refuse(lambda: cls(told["sequence"], told["hash"], _from_hex(spelled)))


@dataclass(frozen=True, eq=False)
class StepAnswer:
    """The sum over the batch, flat; the platform divides by its rows. `noise_stddev` 0: no noise was added."""

    sum: NDArray[np.float32]  # (layout.parameters,)
    rows: int
    noise_stddev: float
    receipt: AuditReceipt

    def __post_init__(self) -> None:
        _expect_flat("sum", self.sum, np.float32)
        encoding.check_whole("rows", self.rows, at_least=1)
        encoding.check_finite("noise_stddev", self.noise_stddev, at_least=0)

    def to_chunks(self) -> Iterator[bytes]:
        """A header, then the numbers, little-endian, at most 1 MB at a time."""
        told = {"rows": self.rows, "noise_stddev": float(self.noise_stddev), "receipt": self.receipt.as_json()}
        yield from _chunks("step", told, self.sum.astype("<f4", copy=False))

    @classmethod
    def from_chunks(cls, chunks: Iterable[bytes], request: StepRequest) -> StepAnswer:
        """The answer to this request: of its size, about its rows."""
        keys = ("rows", "noise_stddev", "receipt")
        told, values = _read_chunks("step", chunks, keys, request.layout.parameters, "<f4")
        if told["rows"] != request.rows:
            raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected an answer about {request.rows} rows")
        receipt = AuditReceipt.from_json(told["receipt"])
        return encoding.build_or_refuse(
            lambda: cls(values.astype(np.float32), told["rows"], told["noise_stddev"], receipt)
        )


@dataclass(frozen=True, eq=False)
class StatisticAnswer:
    """Sums by cell, then by feature."""

    sums: NDArray[np.float64]  # (cells + features,)
    noise_stddev: float
    receipt: AuditReceipt

    def __post_init__(self) -> None:
        _expect_flat("sums", self.sums, np.float64)
        encoding.check_finite("noise_stddev", self.noise_stddev, at_least=0)

    def to_chunks(self) -> Iterator[bytes]:
        told = {"noise_stddev": float(self.noise_stddev), "receipt": self.receipt.as_json()}
        yield from _chunks("statistic", told, self.sums.astype("<f8", copy=False))

    @classmethod
    def from_chunks(cls, chunks: Iterable[bytes], request: StatisticRequest) -> StatisticAnswer:
        sums = request.cells + request.features
        told, values = _read_chunks("statistic", chunks, ("noise_stddev", "receipt"), sums, "<f8")
        receipt = AuditReceipt.from_json(told["receipt"])
        return encoding.build_or_refuse(lambda: cls(values.astype(np.float64), told["noise_stddev"], receipt))


@dataclass(frozen=True, eq=False)
class LabelsAnswer:
    """A flipped label for every record that was asked for, in its order."""

    labels: NDArray[np.uint8]  # (rows,)
    receipt: AuditReceipt

    def __post_init__(self) -> None:
        _expect_flat("labels", self.labels, np.uint8)
        if len(self.labels) and self.labels.max() > 1:
            raise BadInput("expected labels of 0 or 1, got another")

    def to_chunks(self) -> Iterator[bytes]:
        yield from _chunks("labels", {"receipt": self.receipt.as_json()}, self.labels)

    @classmethod
    def from_chunks(cls, chunks: Iterable[bytes], request: LabelsRequest) -> LabelsAnswer:
        told, values = _read_chunks("labels", chunks, ("receipt",), request.rows, "u1")
        receipt = AuditReceipt.from_json(told["receipt"])
        return encoding.build_or_refuse(lambda: cls(values, receipt))


@dataclass(frozen=True)
class BeginAnswer:
    """A run has `releases` of each of its records to itself, those that it has used among them."""

    releases: int
    receipt: AuditReceipt

    def to_bytes(self) -> bytes:
        return encoding.canonical_json(
            {"kind": "begun", "releases": self.releases, "receipt": self.receipt.as_json()}
        )

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> BeginAnswer:
        told = encoding.read_message(data, ("kind", "releases", "receipt"), most=MOST_HEADER_BYTES)
        if told["kind"] != "begun":
            raise RoomRefused(RoomRefusal.MALFORMED, "expected an answer of kind begun")
        releases = encoding.build_or_refuse(
            lambda: encoding.check_whole("releases", told["releases"], at_least=1)
        )
        return cls(releases, AuditReceipt.from_json(told["receipt"]))


@dataclass(frozen=True)
class RemainingBudget:
    """What of the agreed budget is left. Nothing here depends on labels, or on which records were used."""

    epsilon_left: Fraction
    delta_left: Fraction
    epsilon_spent: Fraction
    delta_spent: Fraction
    releases_per_record: int

    @property
    def spent(self) -> Budget:
        return Budget(self.epsilon_spent, self.delta_spent)

    @property
    def left(self) -> Budget:
        return Budget(self.epsilon_left, self.delta_left)

    def as_json(self) -> dict[str, Any]:
        amounts = {key: str(getattr(self, key)) for key in _AMOUNTS}
        return {**amounts, "releases_per_record": self.releases_per_record}

    @classmethod
    def from_json(cls, value: Any) -> RemainingBudget:
        told = encoding.check_keys(value, (*_AMOUNTS, "releases_per_record"))
        releases = encoding.build_or_refuse(
            lambda: encoding.check_whole("releases_per_record", told["releases_per_record"], at_least=1)
        )
        left, delta_left, spent, delta_spent = (_amount(key, told[key]) for key in _AMOUNTS)
        return cls(left, delta_left, spent, delta_spent, releases)


_AMOUNTS = ("epsilon_left", "delta_left", "epsilon_spent", "delta_spent")


@dataclass(frozen=True)
class RoomDescription:
    """What a room is for, what is left, and where its audit log stands."""

    terms: Terms
    remaining: RemainingBudget
    head: AuditReceipt
    room_version: str

    def to_bytes(self) -> bytes:
        return encoding.canonical_json(
            {
                "terms": self.terms.as_json(),
                "remaining": self.remaining.as_json(),
                "head": self.head.as_json(),
                "room_version": self.room_version,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> RoomDescription:
        told = encoding.read_message(data, ("terms", "remaining", "head", "room_version"))
        terms = encoding.build_or_refuse(lambda: Terms.from_json(told["terms"]))
        version = encoding.build_or_refuse(lambda: encoding.check_name("room_version", told["room_version"]))
        return cls(
            terms, RemainingBudget.from_json(told["remaining"]), AuditReceipt.from_json(told["head"]), version
        )


def _chunks(kind: str, told: dict[str, Any], values: NDArray[Any]) -> Iterator[bytes]:
    yield encoding.canonical_json({**told, "kind": kind})
    step = CHUNK_BYTES // values.itemsize
    for start in range(0, len(values), step):
        yield values[start : start + step].tobytes()


def _read_chunks(
    kind: str, chunks: Iterable[bytes], keys: tuple[str, ...], count: int, dtype: str
) -> tuple[dict[str, Any], NDArray[Any]]:
    """The header and exactly `count` finite numbers; memory grows only with what really came."""
    given = iter(chunks)
    told = encoding.read_message(next(given, b""), (*keys, "kind"), most=MOST_HEADER_BYTES)
    if told["kind"] != kind:
        raise RoomRefused(RoomRefusal.MALFORMED, f"expected an answer of kind {kind}")
    expected, data = count * np.dtype(dtype).itemsize, bytearray()
    for chunk in given:
        if len(data) + len(chunk) > expected:
            raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected {expected} bytes of numbers, got more")
        data += chunk
    if len(data) != expected:
        raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected {expected} bytes of numbers, got {len(data)}")
    values = np.frombuffer(data, dtype)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise RoomRefused(RoomRefusal.NOT_FINITE, "expected finite numbers in an answer")
    return told, values


def _amount(key: str, spelled: Any) -> Fraction:
    # Only digits: Fraction itself also reads 1e999999999, and would work at it for hours.
    if isinstance(spelled, str) and _DIGITS.fullmatch(spelled) and str(amount := Fraction(spelled)) == spelled:
        return amount
    raise RoomRefused(RoomRefusal.MALFORMED, f"expected {key} as a fraction >= 0 in lowest terms")


def _from_hex(spelled: str) -> bytes:
    try:
        value = bytes.fromhex(spelled)
    except ValueError:
        value = b""
    if value.hex() != spelled:
        raise BadInput("expected signature in lower-case hex digits, got another spelling")
    return value


def _expect_flat(key: str, array: NDArray[Any], dtype: type) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
        raise BadInput(f"expected {key} as a flat array of {np.dtype(dtype)}, got another")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadInput(f"expected finite numbers in {key}, got one that is not")
