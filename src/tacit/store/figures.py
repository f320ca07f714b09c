"""What operators look up in parties' databases: whether they take writes, and figures of what waits in them.

Each is one short transaction. Sums go over campaigns, held charges and reports that wait; charges that were
made are counted nowhere, since there are more of them every day.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import case, func, select, text

from tacit.store.billing_tables import (
    BATCHES,
    CAMPAIGNS,
    CHARGES,
    DIRECTORIES,
    FORMED,
    INVOICES,
    LISTED,
    WAITING,
)
from tacit.store.database import PartyDatabase


def takes_writes(database: PartyDatabase) -> bool:
    """Whether a transaction that writes can begin: a file may be read-only, a PostgreSQL server a standby."""
    with database.writing() as connection:
        if connection.dialect.name == "sqlite":
            return True  # BEGIN IMMEDIATE was granted
        return connection.execute(text("SHOW transaction_read_only")).scalar() == "off"


@dataclass(frozen=True)
class MarketFigures:
    """What campaigns have and owe, and what was redeemed, at one moment.

    left_micros  of all campaigns with a limit together
    spent        campaigns with a limit that have nothing left
    held_micros  shown, and not charged, since its campaign had no money left; `held` charges
    """

    campaigns: int
    spent: int
    left_micros: int
    charged_micros: int
    held: int
    held_micros: int
    batches: int
    invoices: int


def market_figures(database: PartyDatabase) -> MarketFigures:
    left = CAMPAIGNS.c.budget - CAMPAIGNS.c.charged
    of_campaigns = select(
        func.count(),
        func.coalesce(func.sum(case((left <= 0, 1), else_=0)), 0),
        func.coalesce(func.sum(case((left > 0, left), else_=0)), 0),
        func.coalesce(func.sum(CAMPAIGNS.c.charged), 0),
    )
    held = select(func.count(), func.coalesce(func.sum(CHARGES.c.price), 0)).where(CHARGES.c.held)
    with database.reading() as connection:
        campaigns, spent, rest, charged = connection.execute(of_campaigns).one()
        count, micros = connection.execute(held).one()
        # Numbers begin at 1, and none is left out.
        batches = connection.execute(select(func.max(BATCHES.c.number))).scalar()
        invoices = connection.execute(select(func.max(INVOICES.c.number))).scalar()
    return MarketFigures(
        campaigns, int(spent), int(rest), int(charged), count, int(micros),
        batches or 0, invoices or 0,
    )  # fmt: skip


@dataclass(frozen=True)
class QueueFigures:
    """What waits at the proxy at one moment.

    waiting      reports in no batch; the first of them came at `since`
    due          when the first of the epochs expires of which reports wait: they leave then, if not before
    undelivered  batches without a receipt, the oldest first
    """

    waiting: int
    since: int | None
    due: int | None
    undelivered: tuple[bytes, ...]


def queue_figures(database: PartyDatabase) -> QueueFigures:
    waiting = select(func.count(), func.min(WAITING.c.arrived))
    menus = select(WAITING.c.menu).distinct().subquery()
    due = (
        select(func.min(DIRECTORIES.c.expires))
        .join(LISTED, LISTED.c.epoch == DIRECTORIES.c.epoch)
        .join(menus, menus.c.menu == LISTED.c.number)
    )
    undelivered = select(FORMED.c.batch_id).where(FORMED.c.receipt.is_(None)).order_by(FORMED.c.number)
    with database.reading() as connection:
        count, since = connection.execute(waiting).one()
        return QueueFigures(
            count,
            since,
            connection.execute(due).scalar(),
            tuple(connection.execute(undelivered).scalars()),
        )
