"""What advertisers owe and why, for people: invoices item by item in words, and the account of each campaign.

    store = SqlAdStore.open("ads.sqlite")
    for invoice in store.invoices():
        for item in itemise_invoice(invoice, store):
            print(item.context, item.shown, show_micros(item.total_micros), item.reason)

Amounts are whole micros, a millionth of a currency unit each; `show_micros` writes them out to the last one.
`read_accounts` gives `Accounts` with a `CampaignAccount` each; `set_budget` raises or lowers what one may cost.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tacit import expect
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.server.store import Campaign, Invoice, InvoiceLine
from tacit.errors import BadInput, BillError

MICROS = 1_000_000


class BilledStore(Protocol):
    """What is read of the ad server's store (`bill.server.store.AdStore`)."""

    def menu(self, menu_id: bytes) -> PricedMenu | None: ...

    def campaigns(self) -> Sequence[Campaign]: ...

    def put_campaigns(self, campaigns: Sequence[Campaign]) -> None: ...

    def held_micros(self) -> Mapping[int, int]: ...

    def invoices(self) -> Sequence[Invoice]: ...

    def totals(self) -> Sequence[InvoiceLine]: ...


def show_micros(micros: int) -> str:
    """An amount in currency units, exact to the micro.

    >>> from tacit.bill import show_micros
    >>> show_micros(1_234_567_890), show_micros(5)
    ('1,234.567890', '0.000005')
    """
    units, rest = divmod(abs(expect.integer("micros", micros)), MICROS)
    return f"{'-' if micros < 0 else ''}{units:,}.{rest:06}"


@dataclass(frozen=True)
class InvoiceItem:
    """A line of an invoice in words.

    context  where it was shown, as generally as devices told it
    shown    the entry of that context's menu, by its public rank: "2 of 5"
    reason   why it costs what it costs, in public terms
    """

    invoice: int
    campaign: int
    epoch: int
    lane: str
    context: str
    shown: str
    price_micros: int
    impressions: int
    total_micros: int
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def itemise_invoice(invoice: Invoice, store: BilledStore) -> tuple[InvoiceItem, ...]:
    """All lines of an invoice in words, what costs most first."""
    expect.kind("invoice", invoice, Invoice)
    _expect_store(store)
    items = [_item(invoice.number, line, store.menu(line.menu_id)) for line in invoice.lines]
    return tuple(sorted(items, key=lambda item: (-item.total_micros, item.campaign, item.epoch, item.context)))


def _item(invoice: int, line: InvoiceLine, menu: PricedMenu | None) -> InvoiceItem:
    if menu is None:
        raise BillError(f"invoice {invoice}: expected the menu {line.menu_id.hex()[:16]} of a line, got none")
    return InvoiceItem(
        invoice=invoice,
        campaign=line.campaign,
        epoch=menu.epoch,
        lane=str(menu.lane),
        context=str(menu.node),
        shown=f"{line.index} of {len(menu.entries)}",
        price_micros=line.price_micros,
        impressions=line.impressions,
        total_micros=line.total_micros,
        reason=menu.reason(line.index),
    )


def invoice_as_json(invoice: Invoice, items: Sequence[InvoiceItem]) -> dict[str, Any]:
    """An invoice and its items for machines; amounts in whole micros."""
    return {
        "invoice": invoice.number,
        "advertiser": invoice.advertiser,
        "closed_at": invoice.closed_at,
        "impressions": invoice.impressions,
        "total_micros": invoice.total_micros,
        "items": [item.as_json() for item in items],
    }


def items_as_csv(invoices: Iterable[tuple[Invoice, Sequence[InvoiceItem]]]) -> bytes:
    """All items of invoices as CSV, with their advertisers; amounts in whole micros."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(InvoiceItem.__dataclass_fields__)
    writer.writerow(["advertiser", *names])
    for invoice, items in invoices:
        writer.writerows([invoice.advertiser, *(getattr(item, name) for name in names)] for item in items)
    return text.getvalue().encode()


@dataclass(frozen=True)
class CampaignAccount:
    """What a campaign may spend, was charged, and is held for want of money; of the charges, what is on no
    invoice yet."""

    campaign: int
    advertiser: str
    budget_micros: int | None
    charged_micros: int
    held_micros: int
    uninvoiced_micros: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Accounts:
    """All charges so far: impressions of campaigns and of nothing shown, sums, and each campaign's account."""

    impressions: int
    nothing_shown: int
    invoices: int
    campaigns: tuple[CampaignAccount, ...]

    @property
    def charged_micros(self) -> int:
        return sum(each.charged_micros for each in self.campaigns)

    @property
    def held_micros(self) -> int:
        return sum(each.held_micros for each in self.campaigns)

    @property
    def uninvoiced_micros(self) -> int:
        return sum(each.uninvoiced_micros for each in self.campaigns)

    def as_json(self) -> dict[str, Any]:
        sums = ("charged_micros", "held_micros", "uninvoiced_micros")
        return {
            "impressions": self.impressions,
            "nothing_shown": self.nothing_shown,
            "invoices": self.invoices,
            **{name: getattr(self, name) for name in sums},
            "campaigns": [each.as_json() for each in self.campaigns],
        }


def read_accounts(store: BilledStore) -> Accounts:
    """Add up every charge. A service that charges meanwhile may be a batch ahead of some of the sums."""
    _expect_store(store)
    invoices = store.invoices()  # first: what is invoiced later was charged before
    totals = store.totals()
    made: Counter[int] = Counter()
    for line in totals:
        made[line.campaign] += line.total_micros
    for invoice in invoices:
        for line in invoice.lines:
            made[line.campaign] -= line.total_micros
    held, campaigns = store.held_micros(), store.campaigns()
    accounts = (
        CampaignAccount(
            each.campaign, each.advertiser, each.budget_micros, each.charged_micros,
            held.get(each.campaign, 0), made[each.campaign],
        )
        for each in campaigns
    )  # fmt: skip
    known = {each.campaign for each in campaigns}
    shown = sum(line.impressions for line in totals if line.campaign in known)
    nothing = sum(line.impressions for line in totals) - shown
    return Accounts(shown, nothing, len(invoices), tuple(accounts))


def set_budget(store: BilledStore, campaign: int, budget_micros: int | None) -> Campaign:
    """Give a campaign another budget in all (None: no limit). What was held and can now be paid is charged,
    the oldest first. The campaign as it is then."""
    _expect_store(store)
    before = {each.campaign: each for each in store.campaigns()}.get(expect.integer("campaign", campaign))
    if before is None:
        raise BadInput(f"expected a campaign that the ad server knows, got {campaign}")
    store.put_campaigns([Campaign(campaign, before.advertiser, budget_micros)])
    return {each.campaign: each for each in store.campaigns()}[campaign]


def _expect_store(store: BilledStore) -> None:
    expect.having("store", store, "held_micros", "an ad server's store")
