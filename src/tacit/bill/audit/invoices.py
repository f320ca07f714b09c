"""Invoices: what they state, line by line and in all, held against what charges prove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tacit.bill.audit.charges import LINE, PROVEN, STATED, AuditTally
from tacit.bill.audit.findings import AuditedInvoice, FindingKind
from tacit.bill.audit.folder import (
    CAMPAIGNS,
    INVOICE_LINES,
    INVOICES,
    AuditFolder,
    Complain,
    InvoiceRow,
)
from tacit.errors import BadInput

_Line = tuple[bytes, int, int, int, int, int, int]


class StatedInvoices:
    """What a folder states: who pays for each campaign, and each invoice with its lines added up."""

    def __init__(self, folder: AuditFolder, tally: AuditTally) -> None:
        self._tally, self._findings = tally, tally.findings
        self.advertisers: dict[int, str] = {}
        self.invoices: dict[int, InvoiceRow] = {}
        self._line_micros: Counter[int] = Counter()
        self._line_impressions: Counter[int] = Counter()
        self._strangers: set[int] = set()
        with self._reading(CAMPAIGNS) as complain:
            for campaign, advertiser in folder.campaigns(complain):
                if self.advertisers.setdefault(campaign, advertiser) != advertiser:
                    words = f"expected one advertiser of campaign {campaign}, got two"
                    self._findings.add(FindingKind.WRONG_ADVERTISER, CAMPAIGNS, words)
        with self._reading(INVOICES) as complain:
            for row in folder.invoices(complain):
                if self.invoices.setdefault(row.invoice, row) is not row:
                    words = f"expected each invoice once, got {row.invoice} again"
                    self._findings.add(FindingKind.INVOICE_TWICE, INVOICES, words)
        with self._reading(INVOICE_LINES) as complain:
            for line in folder.invoice_lines(complain):
                self._line_micros[line.invoice] += line.price_micros * line.impressions
                self._line_impressions[line.invoice] += line.impressions
                fields = line.menu_id, line.index, line.invoice, STATED, line.campaign, line.price_micros
                tally.lines.add(LINE.pack(*fields, line.impressions))

    def compare(self) -> tuple[AuditedInvoice, ...]:
        """Say which lines and totals do not follow from the charges; every invoice with what they prove."""
        for alike in self._tally.lines.groups():
            rows: list[_Line] = [LINE.unpack(row) for row in alike]
            proven = [row for row in rows if row[3] == PROVEN]  # one: a menu is of one epoch
            self._compare_line(proven, rows[len(proven) :])
        for campaign in {**self._tally.uninvoiced, **self._tally.held}:
            self._check_campaign(campaign, None)
        return tuple(self._compare_total(row) for row in self.invoices.values())

    def _compare_line(self, proven: list[_Line], stated: list[_Line]) -> None:
        menu, index, number, _, campaign, price, count = (proven or stated)[0]
        line = f"invoice {number}, menu {menu.hex()[:16]}, index {index}"
        invoice = self.invoices.get(number)
        if invoice is None:
            words = f"{line}: expected an invoice that is in {INVOICES}, got none of this number"
            self._findings.add(FindingKind.UNKNOWN_INVOICE, INVOICE_LINES, words)
        else:
            self._check_campaign(campaign, invoice)
        said = " and ".join(f"{row[6]} at {row[5]} micros for campaign {row[4]}" for row in stated)
        if not proven:
            words = f"{line}: expected no line, since no charge proves it, got {said}"
        elif [row[4:] for row in stated] != [(campaign, price, count)]:
            words = (
                f"{line}: expected {count} at {price} micros for campaign {campaign}, as charges prove, got "
            )
            words += said or "no line"
        else:
            return
        self._findings.add(FindingKind.LINE_DIFFERS, INVOICE_LINES, words)

    def _check_campaign(self, campaign: int, invoice: InvoiceRow | None) -> None:
        advertiser = self.advertisers.get(campaign)
        if advertiser is None:
            if campaign not in self._strangers:
                self._strangers.add(campaign)
                words = f"expected the advertiser of campaign {campaign}, which is charged, got none"
                self._findings.add(FindingKind.UNKNOWN_CAMPAIGN, CAMPAIGNS, words)
        elif invoice is not None and advertiser != invoice.advertiser:
            words = (
                f"invoice {invoice.invoice}: expected charges of its own advertiser, got campaign {campaign}"
            )
            self._findings.add(FindingKind.WRONG_ADVERTISER, INVOICES, words)

    def _compare_total(self, row: InvoiceRow) -> AuditedInvoice:
        number, proven = row.invoice, self._tally.proven_micros[row.invoice]
        sums = self._line_impressions[number], self._line_micros[number]
        if (row.impressions, row.total_micros) != sums:
            words = f"expected {sums[0]} impressions for {sums[1]} micros, the sum of its lines"
            words = f"invoice {number}: {words}, got {row.impressions} for {row.total_micros}"
            self._findings.add(FindingKind.TOTAL_DIFFERS, INVOICES, words)
        if proven != row.total_micros:
            words = f"expected {proven} micros, which charges prove, got {row.total_micros}"
            self._findings.add(FindingKind.TOTAL_DIFFERS, INVOICES, f"invoice {number}: {words}")
        return AuditedInvoice(number, row.advertiser, row.closed_at, row.total_micros, proven)

    @contextmanager
    def _reading(self, file: str) -> Iterator[Complain]:
        """What cannot be read of a file is a finding; one that is missing was one already."""

        def complain(words: str) -> None:
            self._findings.add(FindingKind.DAMAGED, file, words)

        try:
            yield complain
        except FileNotFoundError:
            return
        except BadInput as refusal:
            complain(str(refusal))
