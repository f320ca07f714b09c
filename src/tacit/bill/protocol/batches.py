"""Batches: shuffled reports of one menu, which the proxy signs; receipts, which the ad server signs.

A batch's statement says of which menu it is, how many reports it has, and a digest of them in their order: what
an auditor holds charges against. How many of them the ad server accepted is a statement of its own: what
devices settle their privacy by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from tacit import expect
from tacit.bill.protocol.encoding import (
    BillVerdict,
    Reader,
    begin_message,
    expect_bytes,
    expect_size,
    read_message,
    refuse_malformed,
)
from tacit.bill.protocol.keys import SIGNATURE_BYTES, SigningKey, check_signature
from tacit.bill.protocol.reports import REPORT_BYTES
from tacit.display import brief
from tacit.errors import BadInput

BATCH_ID_BYTES = 16
MOST_REPORTS = 100_000  # in one batch
_STATEMENT, _COHORT, _RECEIPT = b"tacit/batch/1", b"tacit/cohort/1", b"tacit/receipt/1"
_ON_RECEIPTS = frozenset(BillVerdict) - {BillVerdict.OVER_BUDGET}
_AS_OTHERS_KNOW = bytes.maketrans(bytes([BillVerdict.OVER_BUDGET]), bytes([BillVerdict.ACCEPTED]))
COHORT_BYTES = 1 + BATCH_ID_BYTES + 32 + 4 + 4 + SIGNATURE_BYTES
STATEMENT_BYTES = 1 + BATCH_ID_BYTES + 32 + 4 + 4 + 32 + SIGNATURE_BYTES


@dataclass(frozen=True)
class BatchStatement:
    """Which reports left the proxy together, signed by it."""

    batch_id: bytes
    menu_id: bytes
    epoch: int
    reports: int
    digest: bytes
    signature: bytes

    def __post_init__(self) -> None:
        expect_size("a batch's id", self.batch_id, BATCH_ID_BYTES)
        expect_size("a menu's id", self.menu_id, 32)
        expect_size("a digest", self.digest, 32)
        expect_size("a signature", self.signature, SIGNATURE_BYTES)
        if not 0 <= expect.integer("epoch", self.epoch) < 2**32:
            raise BadInput("expected an epoch in 0..2^32-1, got another number")
        if not 1 <= expect.integer("reports", self.reports) <= MOST_REPORTS:
            raise BadInput(f"expected 1 to {MOST_REPORTS} reports in a batch, got {self.reports}")

    def __repr__(self) -> str:
        return brief(self, batch=self.batch_id.hex(), epoch=self.epoch, reports=self.reports)

    @classmethod
    def sign(
        cls, key: SigningKey, batch_id: bytes, menu_id: bytes, epoch: int, reports: Sequence[bytes]
    ) -> BatchStatement:
        unsigned = cls(batch_id, menu_id, epoch, len(reports), reports_digest(reports), bytes(SIGNATURE_BYTES))
        signature = key.sign(_STATEMENT, unsigned.body)
        return cls(batch_id, menu_id, epoch, len(reports), unsigned.digest, signature)

    @property
    def body(self) -> bytes:
        writer = begin_message().raw(self.batch_id, BATCH_ID_BYTES).raw(self.menu_id, 32)
        return writer.number("I", self.epoch).number("I", self.reports).raw(self.digest, 32).to_bytes()

    def check(self, proxy: bytes) -> None:
        """BillRefused(UNAUTHENTICATED) unless the proxy with this public key signed it."""
        check_signature(proxy, _STATEMENT, self.body, self.signature)

    def to_bytes(self) -> bytes:
        return self.body + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> BatchStatement:
        return read_message(data, "batch statement", cls._parse)

    @classmethod
    def _parse(cls, reader: Reader) -> BatchStatement:
        batch_id, menu_id = reader.raw(BATCH_ID_BYTES), reader.raw(32)
        epoch, reports = reader.number("I"), reader.number("I")
        return cls(batch_id, menu_id, epoch, reports, reader.raw(32), reader.raw(SIGNATURE_BYTES))


@dataclass(frozen=True)
class CohortStatement:
    """How many reports of a batch the ad server accepted, signed by the proxy once it has the receipt.

    What devices settle their privacy by. Reports that were rejected hide nobody: the ad server saw that they
    were none.
    """

    batch_id: bytes
    menu_id: bytes
    epoch: int
    reports: int
    signature: bytes

    def __post_init__(self) -> None:
        expect_size("a batch's id", self.batch_id, BATCH_ID_BYTES)
        expect_size("a menu's id", self.menu_id, 32)
        expect_size("a signature", self.signature, SIGNATURE_BYTES)
        if not 0 <= expect.integer("epoch", self.epoch) < 2**32:
            raise BadInput("expected an epoch in 0..2^32-1, got another number")
        if not 0 <= expect.integer("reports", self.reports) <= MOST_REPORTS:
            raise BadInput(f"expected 0 to {MOST_REPORTS} accepted reports, got {self.reports}")

    def __repr__(self) -> str:
        return brief(self, batch=self.batch_id.hex(), epoch=self.epoch, reports=self.reports)

    @classmethod
    def sign(cls, key: SigningKey, statement: BatchStatement, accepted: int) -> CohortStatement:
        named = statement.batch_id, statement.menu_id, statement.epoch, accepted
        unsigned = cls(*named, bytes(SIGNATURE_BYTES))
        return cls(*named, key.sign(_COHORT, unsigned.body))

    @property
    def body(self) -> bytes:
        writer = begin_message().raw(self.batch_id, BATCH_ID_BYTES).raw(self.menu_id, 32)
        return writer.number("I", self.epoch).number("I", self.reports).to_bytes()

    def check(self, proxy: bytes) -> None:
        """BillRefused(UNAUTHENTICATED) unless the proxy with this public key signed it."""
        check_signature(proxy, _COHORT, self.body, self.signature)

    def to_bytes(self) -> bytes:
        return self.body + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> CohortStatement:
        return read_message(data, "cohort statement", cls._parse)

    @classmethod
    def _parse(cls, reader: Reader) -> CohortStatement:
        batch_id, menu_id = reader.raw(BATCH_ID_BYTES), reader.raw(32)
        return cls(batch_id, menu_id, reader.number("I"), reader.number("I"), reader.raw(SIGNATURE_BYTES))


def reports_digest(reports: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(reports)).digest()


@dataclass(frozen=True)
class Batch:
    """A statement and its reports, in the order in which it has them."""

    statement: BatchStatement
    reports: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if len(self.reports) != self.statement.reports or reports_digest(self.reports) != self.statement.digest:
            raise BadInput("expected the reports that the statement is of, got others")

    def __repr__(self) -> str:
        return brief(self, statement=self.statement)

    def to_bytes(self) -> bytes:
        return self.statement.to_bytes() + b"".join(self.reports)

    @classmethod
    def from_bytes(cls, data: bytes) -> Batch:
        statement = BatchStatement.from_bytes(expect_bytes(data)[:STATEMENT_BYTES])
        rest = data[STATEMENT_BYTES:]
        if len(rest) != statement.reports * REPORT_BYTES:
            refuse_malformed("expected as many reports as the statement says")
        try:
            return cls(
                statement, tuple(rest[at : at + REPORT_BYTES] for at in range(0, len(rest), REPORT_BYTES))
            )
        except BadInput as wrong:
            refuse_malformed(str(wrong))


@dataclass(frozen=True)
class Receipt:
    """What became of each report of a batch, signed by the ad server; the same for ever.

    verdicts  one byte per report, in the batch's order: charged, a duplicate, or why it was rejected

    It is for the proxy, which knows who sent each report and must not learn what was shown. So it says no sum
    of prices, and of a report whose campaign has no money left it says that it was charged: the charge is
    made, now or later, and only the ad server knows which campaigns are out of money.
    """

    batch_id: bytes
    verdicts: bytes
    signature: bytes = bytes(SIGNATURE_BYTES)

    def __post_init__(self) -> None:
        expect_size("a batch's id", self.batch_id, BATCH_ID_BYTES)
        expect_size("a signature", self.signature, SIGNATURE_BYTES)
        if not 1 <= len(self.verdicts) <= MOST_REPORTS or not _ON_RECEIPTS.issuperset(self.verdicts):
            raise BadInput("expected a verdict for each report, got others")

    @classmethod
    def sign(cls, key: SigningKey, batch_id: bytes, verdicts: bytes) -> Receipt:
        """As the ad server signs it: what it holds for want of money is charged, as far as others know."""
        unsigned = cls(batch_id, verdicts.translate(_AS_OTHERS_KNOW))
        return cls(batch_id, unsigned.verdicts, key.sign(_RECEIPT, unsigned.body))

    def __repr__(self) -> str:
        return brief(self, charged=self.charged, duplicate=self.duplicate, rejected=self.rejected)

    @property
    def received(self) -> int:
        return len(self.verdicts)

    @property
    def charged(self) -> int:
        return self.verdicts.count(BillVerdict.ACCEPTED)

    @property
    def duplicate(self) -> int:
        return self.verdicts.count(BillVerdict.DUPLICATE)

    @property
    def rejected(self) -> int:
        return self.received - self.charged - self.duplicate

    @property
    def body(self) -> bytes:
        return begin_message().raw(self.batch_id, BATCH_ID_BYTES).blob(self.verdicts, "I").to_bytes()

    def check(self, server: bytes) -> None:
        check_signature(server, _RECEIPT, self.body, self.signature)

    def to_bytes(self) -> bytes:
        return self.body + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        return read_message(data, "receipt", cls._parse)

    @classmethod
    def _parse(cls, reader: Reader) -> Receipt:
        return cls(reader.raw(BATCH_ID_BYTES), reader.blob("I"), reader.raw(SIGNATURE_BYTES))
