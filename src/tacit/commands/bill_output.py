"""How `tacit bill` shows invoices, accounts and audits: rows of tables, lines, and a page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tacit.bill.accounts import Accounts, InvoiceItem, show_micros
from tacit.bill.audit.findings import printable

if TYPE_CHECKING:
    from tacit.bill.audit.findings import VerificationReport
    from tacit.bill.server.store import Invoice
    from tacit.pages import Block, Section

Itemised = tuple["Invoice", Sequence[InvoiceItem]]

ITEM_COLUMNS = ("campaign", "context", "epoch", "shown", "price", "impressions", "total", "why")
ITEM_NUMBERS = ("campaign", "epoch", "price", "impressions", "total")
ACCOUNT_COLUMNS = ("campaign", "advertiser", "budget", "charged", "held", "on no invoice")
ACCOUNT_NUMBERS = ("campaign", "budget", "charged", "held", "on no invoice")
AUDIT_COLUMNS = ("invoice", "advertiser", "closed", "stated", "proven")
AUDIT_NUMBERS = ("invoice", "stated", "proven")


def show_utc(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def plural(number: int, thing: str, things: str = "") -> str:
    """A number of things: 1 batch, 2,000 batches."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def invoice_title(invoice: Invoice) -> str:
    shown = plural(invoice.impressions, "impression")
    owed = f"{shown}, {show_micros(invoice.total_micros)} in all"
    return f"Invoice {invoice.number}: {invoice.advertiser}, closed {show_utc(invoice.closed_at)}; {owed}"


def item_row(item: InvoiceItem) -> tuple[str, ...]:
    amounts = show_micros(item.price_micros), f"{item.impressions:,}", show_micros(item.total_micros)
    where = item.context if item.lane == "personal" else f"{item.context} ({item.lane} lane)"
    return str(item.campaign), where, str(item.epoch), item.shown, *amounts, item.reason


def account_rows(accounts: Accounts) -> Iterator[tuple[str, ...]]:
    for each in accounts.campaigns:
        budget = "no limit" if each.budget_micros is None else show_micros(each.budget_micros)
        sums = each.charged_micros, each.held_micros, each.uninvoiced_micros
        yield str(each.campaign), each.advertiser, budget, *map(show_micros, sums)
    sums = accounts.charged_micros, accounts.held_micros, accounts.uninvoiced_micros
    yield "all", "", "", *map(show_micros, sums)


def audit_rows(report: VerificationReport) -> Iterator[tuple[str, ...]]:
    for each in report.invoices:
        amounts = show_micros(each.stated_micros), show_micros(each.proven_micros)
        yield str(each.number), printable(each.advertiser), show_utc(each.closed_at), *amounts


def audit_lines(report: VerificationReport) -> Iterator[str]:
    """What was looked at, and what it adds up to."""
    yield (
        f"looked at {plural(report.reports, 'report')} in {plural(report.batches, 'batch', 'batches')} of "
        f"{plural(report.epochs, 'epoch')}, with {plural(report.menus, 'menu')}"
    )
    shown = plural(report.charged.impressions, "impression")
    yield f"proven: {shown} for {show_micros(report.charged.micros)}; {report.nothing:,} of nothing shown, free"
    for what, amounts in (("on no invoice yet", report.uninvoiced), ("held", report.held)):
        for campaign, each in amounts.items():
            shown = plural(each.impressions, "impression")
            yield f"{what}: campaign {campaign}, {shown} for {show_micros(each.micros)}"
    for verdict, count in report.rejected.items():
        yield f"rejected: {count:,}, {verdict.words}"
    if report.statements is not None:
        later = f"; {plural(report.later, 'batch', 'batches')} came later than they" if report.later else ""
        yield f"held against {plural(report.statements, 'statement')} of the proxy's own{later}"
    if report.receipts is not None:
        yield f"held against {plural(report.receipts, 'receipt')} that the proxy was given"


def invoice_page(invoices: Sequence[Itemised]) -> str:
    """Invoices as one page, to be printed or sent."""
    from tacit.pages import Prose, page

    sections = [_section(invoice, items) for invoice, items in invoices]
    lead = (
        "What was shown where, at which price and why. A price is public: it is that of the menu which every "
        "device of the context got, whatever the person."
    )
    if not sections:
        return page("Invoices", lead, [_plain("No invoice", Prose("No charge is on an invoice yet."))])
    return page("Invoices", lead, sections)


def _section(invoice: Invoice, items: Sequence[InvoiceItem]) -> Section:
    from tacit.pages import Facts, Section, Table

    facts = Facts(
        [
            (
                show_micros(invoice.total_micros),
                "total, in currency units",
                f"closed {show_utc(invoice.closed_at)}",
            ),
            (f"{invoice.impressions:,}", "impressions", plural(len(items), "line")),
        ]
    )
    rows = [tuple(map(_fold_at_commas, item_row(item))) for item in items]
    rows.append(("", "all", "", "", "", f"{invoice.impressions:,}", show_micros(invoice.total_micros), ""))
    strong = {(len(rows) - 1, at) for at in range(len(ITEM_COLUMNS))}
    table = Table(ITEM_COLUMNS, rows, numbers=ITEM_NUMBERS, strong=strong)
    heading = f"Invoice {invoice.number}: {invoice.advertiser}"
    return Section(heading, [facts, table], id=f"invoice-{invoice.number}")


def _fold_at_commas(text: str) -> str:
    """Folded behind a comma and nowhere else, however narrow the page is."""
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in text.split(", "))


def _plain(heading: str, block: Block) -> Section:
    from tacit.pages import Section

    return Section(heading, [block])
