"""An advertiser's charges of a period, as reports read them: statements of SQL on an ad store's tables.

Charges that are on invoices are read from the invoices' lines, which are few; those on none, and those that are
held, from their own indexes. All in one transaction, so that nothing is counted twice or missed while an
invoice is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, literal, null, select

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.menus import PricedMenu
from tacit.deliver.server.advertiser_report import ChargeLine
from tacit.store.billing_tables import CAMPAIGNS, CHARGES, ENTRIES, EPOCHS, INVOICES, LINES, MENUS
from tacit.store.database import PartyDatabase

_OPEN = CHARGES.c.invoice.is_(None) & ~CHARGES.c.held & (CHARGES.c.idx > 0)


def read_report_lines(database: PartyDatabase, advertiser: str, begin: int, end: int) -> list[ChargeLine]:
    """Charges of an advertiser, of epochs that opened from `begin` until before `end`."""
    with database.reading() as connection:
        opened = _epochs(connection, begin, end)
        if not opened:
            return []
        span = _menu_span(connection, min(opened), max(opened))
        rows = [*_invoiced(connection, advertiser, span), *_counted(connection, advertiser, span)]
        menus = _menus(connection, sorted({row[0] for row in rows}))
    found = []
    for number, index, price, impressions, campaign, invoice, held in rows:
        menu = menus[number]
        if menu.epoch not in opened:
            continue
        found.append(
            ChargeLine(
                campaign, menu.epoch, opened[menu.epoch], menu.node, menu.lane, menu.epsilon_micros, price,
                impressions, menu.reason(index), invoice, bool(held),
            )
        )  # fmt: skip
    return found


def _epochs(connection: Connection, begin: int, end: int) -> dict[int, int]:
    """When epochs of the period opened. One that nobody countersigned has no charges."""
    query = select(EPOCHS.c.epoch, EPOCHS.c.head).where(EPOCHS.c.expires > begin, EPOCHS.c.head.is_not(None))
    heads = {row.epoch: EpochHead.from_bytes(row.head) for row in connection.execute(query)}
    return {epoch: head.opens for epoch, head in heads.items() if begin <= head.opens < end}


Span = tuple[int, int]


def _menu_span(connection: Connection, first: int, last: int) -> Span:
    """The least and the greatest number of a menu of these epochs: numbers grow with epochs."""
    query = select(func.min(MENUS.c.number), func.max(MENUS.c.number)).where(MENUS.c.epoch.between(first, last))
    least, most = connection.execute(query).one()
    return (0, -1) if least is None else (int(least), int(most))


def _invoiced(connection: Connection, advertiser: str, span: Span) -> Iterator[Any]:
    query = (
        select(
            LINES.c.menu, LINES.c.idx, LINES.c.price, LINES.c.impressions, ENTRIES.c.campaign, LINES.c.invoice,
            literal(False),
        )
        .join(INVOICES, INVOICES.c.number == LINES.c.invoice)
        .join(ENTRIES, (ENTRIES.c.menu == LINES.c.menu) & (ENTRIES.c.idx == LINES.c.idx))
        .where(INVOICES.c.advertiser == advertiser, LINES.c.menu.between(*span))
    )  # fmt: skip
    yield from connection.execute(query)


def _counted(connection: Connection, advertiser: str, span: Span) -> Iterator[Any]:
    """Charges on no invoice, and those that are held."""
    for which, held in ((_OPEN, False), (CHARGES.c.held, True)):
        entry = CHARGES.c.menu, CHARGES.c.idx, CHARGES.c.price
        lines = (
            select(*entry, func.count().label("impressions"))
            .where(which, CHARGES.c.menu.between(*span))
            .group_by(*entry)
            .subquery()
        )
        query = (
            select(lines, ENTRIES.c.campaign, null(), literal(held))
            .join(ENTRIES, (ENTRIES.c.menu == lines.c.menu) & (ENTRIES.c.idx == lines.c.idx))
            .join(CAMPAIGNS, CAMPAIGNS.c.campaign == ENTRIES.c.campaign)
            .where(CAMPAIGNS.c.advertiser == advertiser)
        )
        yield from connection.execute(query)


def _menus(connection: Connection, numbers: Sequence[int]) -> dict[int, PricedMenu]:
    found: dict[int, PricedMenu] = {}
    for start in range(0, len(numbers), 500):
        query = select(MENUS.c.number, MENUS.c.body).where(MENUS.c.number.in_(numbers[start : start + 500]))
        found |= {row.number: PricedMenu.from_bytes(row.body) for row in connection.execute(query)}
    return found
