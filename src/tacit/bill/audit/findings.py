"""What an auditor found: each thing that does not hold, with its place, and what every invoice comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.bill.protocol.encoding import BillVerdict
from tacit.display import brief
from tacit.expect import Choice

MOST_FINDINGS = 1_000
"""Findings that are kept one by one; of all others their number is."""

LIMITS = (
    "Impressions that nobody saw: an ad server can sign tokens for devices of its own, whose reports look like "
    "all others. Hold the counts against what publishers measured.",
    "Reports that never became part of a signed batch: the proxy can drop them. Batches that the ad server "
    "leaves out show only beside the proxy's own statements (--statements), of every epoch that there was.",
    "Why a report was rejected as unopenable, wrongly opened, expired or of no entry: that takes the ad "
    "server's key. How many those were is said here. An ad server that tells you of other rejections than it "
    "told the proxy shows only beside the receipts that the proxy was given (--receipts).",
    "Whether a bid, a public rate or the setter of a price is true: prices are those of the menus that all "
    "devices were shown, and how these were made is not derived again.",
    "Who a campaign belongs to, which charges are held for want of money, and whether an advertiser was sent "
    "the invoice that stands here: nobody signed these. Advertisers know them.",
)
"""What a folder cannot show, however honest it is."""


class FindingKind(Choice):
    """What does not hold."""

    MISSING_FILE = "missing-file"
    CHANGED_FILE = "changed-file"
    UNLISTED_FILE = "unlisted-file"
    DAMAGED = "damaged"
    UNSIGNED_HEAD = "unsigned-head"
    MISPLACED_EPOCH = "misplaced-epoch"
    SECOND_ROOT = "second-root"
    OTHER_DIRECTORY = "other-directory"
    MISSING_MENU = "missing-menu"
    UNLISTED_MENU = "unlisted-menu"
    UNSIGNED_BATCH = "unsigned-batch"
    MISPLACED_BATCH = "misplaced-batch"
    BATCH_TWICE = "batch-twice"
    CHANGED_REPORTS = "changed-reports"
    UNSIGNED_RECEIPT = "unsigned-receipt"
    OTHER_RECEIPT = "other-receipt"
    FORGED_TOKEN = "forged-token"
    FOREIGN_REPORT = "foreign-report"
    WRONG_OPENING = "wrong-opening"
    NO_SUCH_ENTRY = "no-such-entry"
    WRONG_PRICE = "wrong-price"
    WRONG_CAMPAIGN = "wrong-campaign"
    NOT_CHARGED = "not-charged"
    CHARGED_THOUGH_REJECTED = "charged-though-rejected"
    CHARGED_TWICE = "charged-twice"
    CHARGE_WITHOUT_REPORT = "charge-without-report"
    WRONGLY_REJECTED = "wrongly-rejected"
    WRONGLY_INVOICED = "wrongly-invoiced"
    UNKNOWN_INVOICE = "unknown-invoice"
    INVOICE_TWICE = "invoice-twice"
    LINE_DIFFERS = "line-differs"
    TOTAL_DIFFERS = "total-differs"
    UNKNOWN_CAMPAIGN = "unknown-campaign"
    WRONG_ADVERTISER = "wrong-advertiser"
    BATCH_LEFT_OUT = "batch-left-out"
    OTHER_STATEMENT = "other-statement"
    SECOND_RECEIPT = "second-receipt"
    STORE_PUT_BACK = "store-put-back"


@dataclass(frozen=True)
class Finding:
    """One thing that does not hold: in which file, of which epoch, batch and report, and what was expected.

    batch  its id, in hexadecimal
    place  of the report in its batch, from 0
    """

    kind: FindingKind
    file: str
    words: str
    epoch: int | None = None
    batch: str | None = None
    place: int | None = None

    def __str__(self) -> str:
        batch = "" if self.batch is None else f", batch {self.batch}"
        place = "" if self.place is None else f", report {self.place}"
        return f"{self.kind}: {self.file}{batch}{place}: {self.words}"

    def as_json(self) -> dict[str, Any]:
        return {"kind": str(self.kind), "file": self.file, "epoch": self.epoch, "batch": self.batch,
                "place": self.place, "words": self.words}  # fmt: skip


def printable(text: str) -> str:
    """The same on one line, without what could move a terminal: whoever wrote the folder chose its names."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


class Findings:
    """Collects what does not hold: the first ones as they are, and how many there are of each kind."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[FindingKind] = Counter()

    def __repr__(self) -> str:
        return brief(self, findings=self.counts.total())

    def add(
        self,
        kind: FindingKind,
        file: str,
        words: str,
        *,
        epoch: int | None = None,
        batch: bytes | None = None,
        place: int | None = None,
    ) -> None:
        self.counts[kind] += 1
        if len(self.kept) < MOST_FINDINGS:
            shown = None if batch is None else batch.hex()
            self.kept.append(Finding(kind, printable(file), printable(words), epoch, shown, place))


@dataclass(frozen=True)
class AuditedInvoice:
    """An invoice as it is stated, and what the charges prove of it."""

    number: int
    advertiser: str
    closed_at: int
    stated_micros: int
    proven_micros: int

    def as_json(self) -> dict[str, Any]:
        return {"invoice": self.number, "advertiser": self.advertiser, "closed_at": self.closed_at,
                "stated_micros": self.stated_micros, "proven_micros": self.proven_micros}  # fmt: skip


@dataclass
class Amount:
    """How many impressions, and what they cost in all."""

    impressions: int = 0
    micros: int = 0

    def add(self, price_micros: int) -> None:
        self.impressions += 1
        self.micros += price_micros

    def as_json(self) -> dict[str, int]:
        return {"impressions": self.impressions, "micros": self.micros}


@dataclass(frozen=True)
class VerificationReport:
    """What became of an audit: whether everything holds, what does not, and what the charges add up to.

    findings    the first of what does not hold; `counts` has how many there are of each kind
    charged     impressions that were shown, proven, and charged; `nothing` were charged 0 for showing nothing
    uninvoiced  of them, by campaign, what is on no invoice yet; `held` what campaigns could not pay so far
    rejected    reports that were not charged, by the receipt's verdict
    statements  how many of the proxy's own statements the batches were held against; None without any
    receipts    how many receipts that the proxy was given they were held against; None without any
    later       batches that the proxy signed and that its statements, which are older, do not have yet
    """

    epochs: int
    menus: int
    batches: int
    reports: int
    charged: Amount
    nothing: int
    uninvoiced: Mapping[int, Amount]
    held: Mapping[int, Amount]
    rejected: Mapping[BillVerdict, int]
    invoices: tuple[AuditedInvoice, ...]
    findings: tuple[Finding, ...] = field(repr=False)
    counts: Mapping[FindingKind, int]
    statements: int | None = None
    receipts: int | None = None
    later: int = 0

    def __repr__(self) -> str:
        return brief(
            self, holds=self.holds, findings=self.found, invoices=len(self.invoices), reports=self.reports
        )

    @property
    def holds(self) -> bool:
        """Whether every invoice follows from what devices, proxy and ad server signed."""
        return not self.counts

    @property
    def found(self) -> int:
        """How many things do not hold."""
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "found": self.found,
            "counts": {str(kind): count for kind, count in self.counts.items()},
            "findings": [each.as_json() for each in self.findings],
            "invoices": [each.as_json() for each in self.invoices],
            "epochs": self.epochs,
            "menus": self.menus,
            "batches": self.batches,
            "reports": self.reports,
            "charged": self.charged.as_json(),
            "nothing_shown": self.nothing,
            "uninvoiced": {str(campaign): each.as_json() for campaign, each in self.uninvoiced.items()},
            "held": {str(campaign): each.as_json() for campaign, each in self.held.items()},
            "rejected": {verdict.name.lower(): count for verdict, count in self.rejected.items()},
            "statements": self.statements,
            "receipts": self.receipts,
            "later_batches": self.later,
            "not_shown": list(LIMITS),
        }
