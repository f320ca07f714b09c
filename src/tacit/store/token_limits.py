"""Tokens of menus that may be signed, were set aside and were reported; what days cost campaigns: statements of
SQL within an ad store's transactions.

A limit never grows. Tokens are set aside before any of them is signed, so that a process that ends at whatever
moment has signed no more than that. Once a menu is closed nothing is set aside any more, whatever any clock
says. A menu that is retired is expected to cost nobody anything more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, func, insert, select, update

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server.store import EpochLimits, GrantedTokens
from tacit.deliver.campaigns.campaign import DAY_SECONDS
from tacit.errors import BillRefused
from tacit.store.billing_tables import ENTRIES, EPOCHS, MENUS
from tacit.store.database import LOOKED_UP_AT_ONCE, append_many
from tacit.store.market_tables import DAYS, TOKEN_LIMITS

MOST_SUM = 2**62
CHUNKS = 16  # in which a menu's tokens are set aside, at least
MOST_CHUNK = 256


def add_limits(connection: Connection, menus: Mapping[bytes, int], epoch: int, limits: EpochLimits) -> None:
    """Limits of a new epoch's menus, by id and number; BillRefused(CONFLICT) where what campaigns can pay was
    counted before another epoch was kept."""
    last = connection.execute(select(func.max(EPOCHS.c.epoch)).where(EPOCHS.c.epoch != epoch)).scalar()
    if last != limits.after:
        raise BillRefused(BillVerdict.CONFLICT, "another epoch was opened meanwhile: count again what is out")
    day = limits.opens // DAY_SECONDS
    rows = [
        (number, limits.most[menu_id], 0, 0, day, False, False)  # in the order of columns
        for menu_id, number in menus.items()
    ]
    append_many(connection, TOKEN_LIMITS, rows)


def reserve(connection: Connection, wanted: Mapping[bytes, int]) -> dict[bytes, GrantedTokens]:
    """Set tokens aside: of each menu at least as many as are wanted, or none."""
    query = select(
        MENUS.c.menu_id, TOKEN_LIMITS.c.menu, TOKEN_LIMITS.c.most, TOKEN_LIMITS.c.reserved,
        TOKEN_LIMITS.c.closed,
    ).join(MENUS, MENUS.c.number == TOKEN_LIMITS.c.menu)  # fmt: skip
    found, rows = {}, connection.execute(query.where(MENUS.c.menu_id.in_(sorted(wanted)))).all()
    for row in rows:
        room = 0 if row.closed else row.most - row.reserved
        least = wanted[bytes(row.menu_id)]
        given = min(room, max(least, min(MOST_CHUNK, row.most // CHUNKS))) if least <= room else 0
        found[bytes(row.menu_id)] = GrantedTokens(given, room - given)
        if given:
            this = (TOKEN_LIMITS.c.menu == row.menu) & (TOKEN_LIMITS.c.reserved + given <= TOKEN_LIMITS.c.most)
            connection.execute(
                update(TOKEN_LIMITS).where(this).values(reserved=TOKEN_LIMITS.c.reserved + given)
            )
    return found


def note_reported(connection: Connection, menu: int, reports: int, due: Mapping[int, int]) -> None:
    """So many tokens of a menu were reported, and cost campaigns this much, charged or held."""
    this = TOKEN_LIMITS.c.menu == menu
    day = connection.execute(select(TOKEN_LIMITS.c.day).where(this)).scalar()
    if day is None or not reports:
        return
    connection.execute(update(TOKEN_LIMITS).where(this).values(reported=TOKEN_LIMITS.c.reported + reports))
    _add_to_day(connection, day, "spent", due)


def sum_out(connection: Connection, campaign: int) -> int:
    """What all tokens that may still be reported would cost a campaign."""
    query = (
        select(ENTRIES.c.price, TOKEN_LIMITS)
        .join(TOKEN_LIMITS, TOKEN_LIMITS.c.menu == ENTRIES.c.menu)
        .where(ENTRIES.c.campaign == campaign, ENTRIES.c.price > 0, ~TOKEN_LIMITS.c.retired)
    )
    rows = connection.execute(query)
    return sum(row.price * max(0, (row.reserved if row.closed else row.most) - row.reported) for row in rows)


def close(connection: Connection, menus: Sequence[int]) -> None:
    """Nothing more is set aside of these menus, by number."""
    for first in range(0, len(menus), LOOKED_UP_AT_ONCE):
        mine = TOKEN_LIMITS.c.menu.in_(menus[first : first + LOOKED_UP_AT_ONCE])
        connection.execute(update(TOKEN_LIMITS).where(mine).values(closed=True))


def close_epoch(connection: Connection, epoch: int) -> None:
    """The same of all menus of an epoch."""
    mine = TOKEN_LIMITS.c.menu.in_(select(MENUS.c.number).where(MENUS.c.epoch == epoch))
    connection.execute(update(TOKEN_LIMITS).where(mine).values(closed=True))


def retire(connection: Connection, epoch: int) -> None:
    """Close an epoch's menus, and expect nothing more of them; what they could have cost is kept by day."""
    close_epoch(connection, epoch)
    mine = MENUS.c.epoch == epoch
    query = (
        select(TOKEN_LIMITS.c.day, TOKEN_LIMITS.c.reserved, ENTRIES.c.campaign, ENTRIES.c.price)
        .join(MENUS, MENUS.c.number == TOKEN_LIMITS.c.menu)
        .join(ENTRIES, ENTRIES.c.menu == TOKEN_LIMITS.c.menu)
        .where(mine, ~TOKEN_LIMITS.c.retired, TOKEN_LIMITS.c.reserved > 0, ENTRIES.c.price > 0)
    )
    exposed: dict[int, int] = {}
    day = 0
    for row in connection.execute(query):
        day = row.day  # one epoch opens on one day
        exposed[row.campaign] = exposed.get(row.campaign, 0) + row.reserved * row.price
    _add_to_day(connection, day, "exposed", exposed)
    numbers = select(MENUS.c.number).where(mine)
    connection.execute(update(TOKEN_LIMITS).where(TOKEN_LIMITS.c.menu.in_(numbers)).values(retired=True))


def _add_to_day(connection: Connection, day: int, column: str, amounts: Mapping[int, int]) -> None:
    if not amounts:
        return
    of_day = select(DAYS).where(DAYS.c.day == day, DAYS.c.campaign.in_(sorted(amounts)))
    known = {row.campaign: getattr(row, column) for row in connection.execute(of_day)}
    new = [
        {"day": day, "campaign": campaign, "spent": 0, "exposed": 0, column: min(amount, MOST_SUM)}
        for campaign, amount in amounts.items()
        if campaign not in known
    ]
    more = [
        {"a_campaign": campaign, "a_sum": min(known[campaign] + amount, MOST_SUM)}
        for campaign, amount in amounts.items()
        if campaign in known and amount
    ]
    if new:
        connection.execute(insert(DAYS), new)
    if more:
        this = (DAYS.c.day == day) & (DAYS.c.campaign == bindparam("a_campaign"))
        connection.execute(update(DAYS).where(this).values({column: bindparam("a_sum")}), more)
