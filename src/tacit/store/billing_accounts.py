"""Campaigns, what they were charged, and invoices: statements of SQL within an ad store's transactions.

A charge that its campaign cannot pay is held: its token is spent, and it counts nowhere until the budget is
raised. Charges are on no invoice or on one, for ever. A line of an invoice is all its charges of one entry.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Subquery, Table, bindparam, func, insert, select, update

from tacit import expect
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server.store import Campaign, Invoice, InvoiceLine
from tacit.errors import BadInput, BillError, BillRefused
from tacit.store.billing_tables import (
    CAMPAIGNS,
    CHARGES,
    ENTRIES,
    EPOCHS,
    INVOICES,
    LINES,
    MENUS,
    RESTORES,
)
from tacit.store.token_limits import note_reported, sum_out

MOST_CHARGED = 2**62  # of one campaign; what goes further is held, as if that were its budget
MOST_TOTAL = 2**63 - 1
NOBODY = -1  # the campaign of nothing shown, in totals

_OPEN = CHARGES.c.invoice.is_(None) & ~CHARGES.c.held & (CHARGES.c.idx > 0)
_ITS_ENTRY = (ENTRIES.c.menu == CHARGES.c.menu) & (ENTRIES.c.idx == CHARGES.c.idx)


@dataclass
class _Account:
    """A campaign's money within a transaction."""

    limit: int
    charged: int

    def pays(self, price: int) -> bool:
        """Whether it pays this price; what is free is free."""
        if price and self.charged + price > self.limit:
            return False
        self.charged += price
        return True


def next_number(connection: Connection, table: Table) -> int:
    greatest = connection.exec_driver_sql(f"SELECT max(number) FROM {table.name}").scalar()
    return 1 if greatest is None else int(greatest) + 1


def last_epoch(connection: Connection) -> int:
    """The largest number of an epoch that was ever used, in this state of the store or a lost one
    (`billing_restores`); -1 where none was."""
    drawn = connection.execute(select(func.max(EPOCHS.c.epoch))).scalar()
    seen = connection.execute(select(func.max(RESTORES.c.last_epoch))).scalar()
    return max(-1 if drawn is None else int(drawn), -1 if seen is None else int(seen))


def last_invoice(connection: Connection) -> int:
    """The same of invoices; 0 where there was none."""
    closed = connection.execute(select(func.max(INVOICES.c.number))).scalar()
    seen = connection.execute(select(func.max(RESTORES.c.last_invoice))).scalar()
    return max(int(closed or 0), int(seen or 0))


def add_unknown_campaigns(connection: Connection, campaigns: Sequence[int]) -> None:
    """Campaigns that nobody has put yet pay for themselves, so that all they are charged can be invoiced."""
    known = set(connection.execute(select(CAMPAIGNS.c.campaign)).scalars())
    new = [
        {"campaign": each, "advertiser": f"campaign {each}", "budget": None, "charged": 0}
        for each in campaigns
        if each not in known
    ]
    if new:
        connection.execute(insert(CAMPAIGNS), new)


def put_campaigns(connection: Connection, campaigns: Sequence[Campaign]) -> None:
    for each in campaigns:
        _check_campaign(each)
        this = CAMPAIGNS.c.campaign == each.campaign
        row = connection.execute(select(CAMPAIGNS).where(this)).first()
        if row is None:
            values = {"campaign": each.campaign, "advertiser": each.advertiser, "budget": each.budget_micros}
            connection.execute(insert(CAMPAIGNS).values(charged=0, **values))
            continue
        if row.advertiser != each.advertiser:
            raise BillRefused(
                BillVerdict.CONFLICT,
                f"campaign {each.campaign}: expected advertiser {row.advertiser!r}, got {each.advertiser!r}",
            )
        connection.execute(update(CAMPAIGNS).where(this).values(budget=each.budget_micros))
        _release_held(connection, each.campaign, _Account(_limit(each.budget_micros), row.charged))


def _check_campaign(campaign: Campaign) -> None:
    number = expect.integer("campaign", campaign.campaign)
    if not 0 <= number < 2**63:
        raise BadInput("expected a campaign in 0..2^63-1, got another number")
    advertiser = campaign.advertiser
    expect.kind("advertiser", advertiser, str)
    if not advertiser.strip() or not advertiser.isprintable():
        raise BadInput(f"campaign {number}: expected the name of its advertiser, got {advertiser!r}")
    budget = campaign.budget_micros
    if budget is not None and not 0 <= expect.integer("budget_micros", budget) <= MOST_CHARGED:
        raise BadInput(f"campaign {number}: expected budget_micros in 0..2^62 or none, got another number")


def _limit(budget: int | None) -> int:
    return MOST_CHARGED if budget is None else budget


def _release_held(connection: Connection, campaign: int, account: _Account) -> None:
    """Make the charges that were held and can now be paid for, the oldest first."""
    query = select(CHARGES.c.batch, CHARGES.c.place, CHARGES.c.price).join(ENTRIES, _ITS_ENTRY)
    held = query.where(CHARGES.c.held, ENTRIES.c.campaign == campaign)
    rows = connection.execute(held.order_by(CHARGES.c.batch, CHARGES.c.place)).all()
    paid = [{"a_batch": row.batch, "a_place": row.place} for row in rows if account.pays(row.price)]
    if paid:
        _set_held(connection, paid, held=False)
        _set_charged(connection, {campaign: account})


def charge_campaigns(
    connection: Connection, menu: int, batch: int, charges: Sequence[tuple[int, int, int]]
) -> list[int]:
    """Charge campaigns for (place, index, price) of a batch, in its order; the places that are held instead."""
    entries = connection.execute(select(ENTRIES.c.idx, ENTRIES.c.campaign).where(ENTRIES.c.menu == menu))
    campaign_of = {row.idx: row.campaign for row in entries if row.campaign is not None}
    due: Counter[int] = Counter()
    for (index, price), times in Counter((index, price) for _, index, price in charges).items():
        if price and index in campaign_of:
            due[campaign_of[index]] += price * times
    note_reported(connection, menu, len(charges), due)
    if not due:
        return []
    rows = connection.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.campaign.in_(sorted(due))))
    accounts = {row.campaign: _Account(_limit(row.budget), row.charged) for row in rows}
    short = {campaign for campaign, total in due.items() if not accounts[campaign].pays(total)}
    held = [
        place
        for place, index, price in charges
        if (campaign := campaign_of.get(index)) in short and not accounts[campaign].pays(price)
    ]
    if held:
        _set_held(connection, [{"a_batch": batch, "a_place": place} for place in held], held=True)
    _set_charged(connection, accounts)
    return held


def _set_held(connection: Connection, places: Sequence[dict[str, int]], *, held: bool) -> None:
    this = (CHARGES.c.batch == bindparam("a_batch")) & (CHARGES.c.place == bindparam("a_place"))
    connection.execute(update(CHARGES).where(this).values(held=held), list(places))


def _set_charged(connection: Connection, accounts: dict[int, _Account]) -> None:
    this = update(CAMPAIGNS).where(CAMPAIGNS.c.campaign == bindparam("a_campaign"))
    values = [{"a_campaign": campaign, "charged": account.charged} for campaign, account in accounts.items()]
    connection.execute(this, values)


def read_campaigns(connection: Connection) -> list[Campaign]:
    rows = connection.execute(select(CAMPAIGNS).order_by(CAMPAIGNS.c.campaign))
    return [Campaign(row.campaign, row.advertiser, row.budget, row.charged) for row in rows]


def sum_held(connection: Connection) -> dict[int, int]:
    lines = _by_entry(CHARGES.c.held)
    query = select(ENTRIES.c.campaign, lines.c.price, lines.c.impressions).join(ENTRIES, _is_entry_of(lines))
    held: Counter[int] = Counter()
    for row in connection.execute(query):
        held[row.campaign] += row.price * row.impressions
    return dict(sorted(held.items()))


def sum_owed(connection: Connection, campaign: int) -> int:
    """What a campaign was charged, what is held of it, and what menus that are out may still cost it."""
    this = CAMPAIGNS.c.campaign == campaign
    charged = connection.execute(select(CAMPAIGNS.c.charged).where(this)).scalar() or 0
    return int(charged) + sum_held(connection).get(campaign, 0) + sum_out(connection, campaign)


def close_invoices(connection: Connection, now: int) -> list[Invoice]:
    """Invoices of all that is on none, one per advertiser. As many charges are put on them as were counted, or
    none is closed."""
    expect.integer("now", now)
    lines = _by_entry(_OPEN)
    query = (
        select(CAMPAIGNS.c.advertiser, lines)
        .join(ENTRIES, _is_entry_of(lines))
        .join(CAMPAIGNS, CAMPAIGNS.c.campaign == ENTRIES.c.campaign)
        .order_by(lines.c.menu, lines.c.idx)
    )
    by_advertiser = defaultdict(list)
    for row in connection.execute(query):
        by_advertiser[row.advertiser].append(row)
    first = last_invoice(connection) + 1
    for number, (advertiser, rows) in enumerate(sorted(by_advertiser.items()), first):
        total = sum(row.price * row.impressions for row in rows)
        if total > MOST_TOTAL:
            raise BillError(f"expected an invoice of less than 2^63 micros for {advertiser!r}, got more")
        impressions = sum(row.impressions for row in rows)
        values = {"advertiser": advertiser, "closed_at": now, "total": total, "impressions": impressions}
        connection.execute(insert(INVOICES).values(number=number, **values))
        kept = [
            {
                "invoice": number,
                "menu": row.menu,
                "idx": row.idx,
                "price": row.price,
                "impressions": row.impressions,
            }
            for row in rows
        ]
        connection.execute(insert(LINES), kept)
    if not by_advertiser:
        return []
    mine = (LINES.c.menu == CHARGES.c.menu) & (LINES.c.idx == CHARGES.c.idx) & (LINES.c.invoice >= first)
    put = connection.execute(
        update(CHARGES).where(_OPEN).values(invoice=select(LINES.c.invoice).where(mine).scalar_subquery())
    )
    counted = sum(row.impressions for rows in by_advertiser.values() for row in rows)
    if put.rowcount != counted:
        raise BillError(f"expected {counted} charges on the new invoices, got {put.rowcount}: none was closed")
    return read_invoices(connection, first)


def read_invoices(connection: Connection, first: int = 0, last: int = MOST_TOTAL) -> list[Invoice]:
    """Invoices from a number to another, each with lines that add up to what was stored with it."""
    query = (
        select(
            LINES.c.invoice,
            ENTRIES.c.campaign,
            MENUS.c.menu_id,
            LINES.c.idx,
            LINES.c.price,
            LINES.c.impressions,
        )
        .join(ENTRIES, (ENTRIES.c.menu == LINES.c.menu) & (ENTRIES.c.idx == LINES.c.idx))
        .join(MENUS, MENUS.c.number == LINES.c.menu)
        .where(LINES.c.invoice.between(first, last))
        .order_by(LINES.c.invoice, ENTRIES.c.campaign, LINES.c.menu)
    )
    lines = defaultdict(list)
    for invoice, *line in connection.execute(query):
        lines[invoice].append(InvoiceLine(*line))
    found = []
    heads = select(INVOICES).where(INVOICES.c.number.between(first, last)).order_by(INVOICES.c.number)
    for row in connection.execute(heads):
        invoice = Invoice(row.number, row.advertiser, row.closed_at, tuple(lines[row.number]))
        if (invoice.total_micros, invoice.impressions) != (row.total, row.impressions):
            raise BillError(
                f"invoice {row.number}: expected lines that add up to {row.total} micros of {row.impressions} "
                f"impressions, got {invoice.total_micros} of {invoice.impressions}"
            )
        found.append(invoice)
    return found


def add_up(connection: Connection) -> list[InvoiceLine]:
    """All charges that were made, by entry."""
    lines = _by_entry(~CHARGES.c.held)
    query = (
        select(ENTRIES.c.campaign, MENUS.c.menu_id, lines.c.idx, lines.c.price, lines.c.impressions)
        .join(ENTRIES, _is_entry_of(lines))
        .join(MENUS, MENUS.c.number == lines.c.menu)
        .order_by(lines.c.menu, lines.c.idx)
    )
    rows = connection.execute(query).all()
    return [InvoiceLine(NOBODY if campaign is None else campaign, *line) for campaign, *line in rows]


def _by_entry(which: ColumnElement[bool]) -> Subquery:
    """How many of these charges there are, by entry and price."""
    entry = CHARGES.c.menu, CHARGES.c.idx, CHARGES.c.price
    return select(*entry, func.count().label("impressions")).where(which).group_by(*entry).subquery()


def _is_entry_of(lines: Subquery) -> ColumnElement[bool]:
    return (ENTRIES.c.menu == lines.c.menu) & (ENTRIES.c.idx == lines.c.idx)
