"""What the console looks up in an ad server's database: the latest batches, charges and invoices, and limits.

Each is one short transaction over rows that an index finds: the newest of something, or those of some numbers.
Nothing is kept for it that is not kept anyway.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import func, select, true, tuple_

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.menus import PricedMenu
from tacit.store.billing_tables import BATCHES, CHARGES, ENTRIES, EPOCHS, INVOICES, MENUS
from tacit.store.database import PartyDatabase
from tacit.store.market_tables import NOTICES, TOKEN_LIMITS

AT_ONCE = 400  # values in one statement


class BatchRow(NamedTuple):
    """A batch that was redeemed, without its reports."""

    number: int
    menu_id: bytes
    statement: bytes


class BatchCharge(NamedTuple):
    """Charges of one batch for one campaign: None where nothing was shown."""

    campaign: int | None
    impressions: int
    micros: int
    held: bool


class ChargeRow(NamedTuple):
    """One charge, by its batch and its place there; its campaign is None where nothing was shown."""

    batch: int
    place: int
    menu_id: bytes
    entry: int
    price_micros: int
    campaign: int | None
    held: bool
    invoice: int | None


class InvoiceHead(NamedTuple):
    """An invoice without its lines."""

    number: int
    advertiser: str
    closed_at: int
    impressions: int
    total_micros: int


class TokenUse(NamedTuple):
    """Tokens of a menu that may be signed, and those that were set aside for it."""

    menu_id: bytes
    most: int
    reserved: int


class WaitingNotices(NamedTuple):
    """Impressions that exchanges told of and that are not reported yet; when the first of them expires."""

    notices: int
    expires: int | None


def latest_batches(database: PartyDatabase, after: int, most: int) -> list[BatchRow]:
    """The newest batches behind a number, the newest first."""
    columns = BATCHES.c.number, BATCHES.c.menu_id, BATCHES.c.statement
    query = select(*columns).where(BATCHES.c.number > after).order_by(BATCHES.c.number.desc()).limit(most)
    with database.reading() as connection:
        return [BatchRow(*row) for row in connection.execute(query)]


def charges_by_batch(database: PartyDatabase, numbers: Sequence[int]) -> dict[int, list[BatchCharge]]:
    """What was charged and held by these batches, by campaign; reads every charge of theirs."""
    entry = (ENTRIES.c.menu == CHARGES.c.menu) & (ENTRIES.c.idx == CHARGES.c.idx)
    by = CHARGES.c.batch, ENTRIES.c.campaign, CHARGES.c.held
    query = select(*by, func.count(), func.sum(CHARGES.c.price)).join(ENTRIES, entry).group_by(*by)
    found: dict[int, list[BatchCharge]] = defaultdict(list)
    with database.reading() as connection:
        for at in range(0, len(numbers), AT_ONCE):
            these = query.where(CHARGES.c.batch.in_(numbers[at : at + AT_ONCE]))
            for batch, campaign, held, count, micros in connection.execute(these):
                found[batch].append(BatchCharge(campaign, count, int(micros), bool(held)))
    return dict(found)


def charges_behind(database: PartyDatabase, batch: int, place: int, most: int) -> list[ChargeRow]:
    """The next charges behind a place of a batch, in their order."""
    entry = (ENTRIES.c.menu == CHARGES.c.menu) & (ENTRIES.c.idx == CHARGES.c.idx)
    columns = (
        CHARGES.c.batch, CHARGES.c.place, MENUS.c.menu_id, CHARGES.c.idx, CHARGES.c.price, ENTRIES.c.campaign,
        CHARGES.c.held, CHARGES.c.invoice,
    )  # fmt: skip
    query = (
        select(*columns)
        .join(ENTRIES, entry)
        .join(MENUS, MENUS.c.number == CHARGES.c.menu)
        .where(tuple_(CHARGES.c.batch, CHARGES.c.place) > tuple_(batch, place))
        .order_by(CHARGES.c.batch, CHARGES.c.place)
        .limit(most)
    )
    with database.reading() as connection:
        found = [ChargeRow(*row) for row in connection.execute(query)]
    return [each._replace(menu_id=bytes(each.menu_id), held=bool(each.held)) for each in found]


def menus_by_id(database: PartyDatabase, menu_ids: Sequence[bytes]) -> dict[bytes, PricedMenu]:
    found: dict[bytes, PricedMenu] = {}
    with database.reading() as connection:
        for at in range(0, len(menu_ids), AT_ONCE):
            query = select(MENUS.c.menu_id, MENUS.c.body).where(
                MENUS.c.menu_id.in_(menu_ids[at : at + AT_ONCE])
            )
            found |= {bytes(row.menu_id): PricedMenu.from_bytes(row.body) for row in connection.execute(query)}
    return found


def epoch_heads(database: PartyDatabase, epochs: Sequence[int]) -> dict[int, EpochHead]:
    """Heads of those epochs that both parties signed."""
    found: dict[int, EpochHead] = {}
    with database.reading() as connection:
        for at in range(0, len(epochs), AT_ONCE):
            query = select(EPOCHS.c.epoch, EPOCHS.c.head).where(EPOCHS.c.epoch.in_(epochs[at : at + AT_ONCE]))
            for row in connection.execute(query.where(EPOCHS.c.head.is_not(None))):
                found[row.epoch] = EpochHead.from_bytes(row.head)
    return found


def latest_invoices(
    database: PartyDatabase, *, most: int, before: int | None = None, advertiser: str | None = None
) -> list[InvoiceHead]:
    """The newest invoices, the newest first; of one advertiser, or of all."""
    columns = (
        INVOICES.c.number, INVOICES.c.advertiser, INVOICES.c.closed_at, INVOICES.c.impressions,
        INVOICES.c.total,
    )  # fmt: skip
    query = select(*columns).order_by(INVOICES.c.number.desc()).limit(most)
    if before is not None:
        query = query.where(INVOICES.c.number < before)
    if advertiser is not None:
        query = query.where(INVOICES.c.advertiser == advertiser)
    with database.reading() as connection:
        return [InvoiceHead(*row) for row in connection.execute(query)]


def token_use(database: PartyDatabase, epoch: int, *, spent: bool = False) -> list[TokenUse]:
    """Of the menus of an epoch that have a limit; of those alone of which all tokens are `spent`."""
    columns = MENUS.c.menu_id, TOKEN_LIMITS.c.most, TOKEN_LIMITS.c.reserved
    query = select(*columns).join(TOKEN_LIMITS, TOKEN_LIMITS.c.menu == MENUS.c.number)
    with database.reading() as connection:
        gone = TOKEN_LIMITS.c.reserved >= TOKEN_LIMITS.c.most if spent else true()
        rows = connection.execute(query.where(MENUS.c.epoch == epoch, gone))
        return [TokenUse(bytes(row.menu_id), row.most, row.reserved) for row in rows]


def waiting_notices(database: PartyDatabase) -> WaitingNotices:
    query = select(func.count(), func.min(NOTICES.c.expires)).where(~NOTICES.c.delivered)
    with database.reading() as connection:
        return WaitingNotices(*connection.execute(query).one())
