"""What the pacer of an ad server looks up and keeps: tokens that are out, campaigns' money, days.

    pacing = SqlPacingStore(ad_store.database)
    seen = pacing.look(day)              # one moment of all of it

Menus never change, so that what was read of an epoch's is kept in memory until the epoch is retired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from tacit.bill.protocol.directory import Directory
from tacit.bill.protocol.menus import Lane, PricedMenu
from tacit.bill.server.store import Campaign, GrantedTokens
from tacit.deliver.campaigns.campaign import AdCampaign, Schedule
from tacit.display import brief
from tacit.schema.contexts.hierarchy import Node
from tacit.store import billing_accounts as accounts
from tacit.store import campaign_rows, token_limits
from tacit.store.billing_tables import EPOCHS, MENUS
from tacit.store.database import PartyDatabase
from tacit.store.market_tables import DAYS, OFFERED, TOKEN_LIMITS


@dataclass(frozen=True)
class MenuTokens:
    """Tokens of a menu (by its number): that may be signed, were set aside, and were reported."""

    menu: int
    epoch: int
    most: int
    reserved: int
    reported: int
    day: int
    is_closed: bool

    @property
    def out(self) -> int:
        """Tokens that may still be reported: none is signed that was not set aside."""
        return max(0, (self.reserved if self.is_closed else self.most) - self.reported)

    @property
    def ran_out(self) -> bool:
        return self.reserved >= self.most


@dataclass(frozen=True)
class OutMenu:
    """A menu that is out: where, and what each of its campaigns pays for one impression."""

    node: Node
    lane: Lane
    prices: Mapping[int, int]


@dataclass(frozen=True)
class OutEpoch:
    """An epoch with limits that is not retired; its menus by their numbers."""

    epoch: int
    opens: int
    closes: int
    expires: int
    is_published: bool
    menus: Mapping[int, OutMenu]


@dataclass(frozen=True)
class DayMoney:
    """What a day's epochs cost a campaign: charged or held; and at worst, once they are retired."""

    spent_micros: int = 0
    exposed_micros: int = 0


@dataclass(frozen=True)
class DailyBudget:
    """What a campaign may cost on one day, and when it runs."""

    micros: int
    schedule: Schedule


@dataclass(frozen=True)
class PacingMoment:
    """All that pacing rests on, at one moment.

    last_epoch   the largest number that was ever used
    tokens       of menus with limits that are not retired, in the order of their numbers
    held_micros  by campaign, where anything is
    days         by campaign, of the day that was asked for; `day_before` of the one before
    daily        by campaign, where it has a daily budget
    """

    last_epoch: int | None
    epochs: Mapping[int, OutEpoch]
    tokens: Sequence[MenuTokens]
    campaigns: Sequence[Campaign]
    held_micros: Mapping[int, int]
    days: Mapping[int, DayMoney]
    day_before: Mapping[int, DayMoney]
    daily: Mapping[int, DailyBudget]


class SqlPacingStore:
    """Pacing's part of an ad server's database. Every method is one transaction; any thread may call."""

    def __init__(self, database: PartyDatabase) -> None:
        self._database = database
        self._epochs: dict[int, OutEpoch] = {}
        self._daily: dict[int, tuple[int, DailyBudget | None]] = {}  # by campaign: its version, what it says

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    def look(self, day: int) -> PacingMoment:
        with self._database.reading() as connection:
            last = connection.execute(select(func.max(EPOCHS.c.epoch))).scalar()
            tokens = _read_tokens(connection)
            return PacingMoment(
                last,
                self._read_epochs(connection, {each.epoch for each in tokens}),
                tokens,
                accounts.read_campaigns(connection),
                accounts.sum_held(connection),
                _read_day(connection, day),
                _read_day(connection, day - 1),
                self._read_daily(connection),
            )

    def tokens_of(self, epoch: int) -> list[MenuTokens]:
        """Of the menus of one epoch that have limits."""
        with self._database.reading() as connection:
            return _read_tokens(connection, epoch)

    def reserve_tokens(self, wanted: Mapping[bytes, int]) -> Mapping[bytes, GrantedTokens]:
        """Set tokens aside, of each menu at least as many as are wanted, or none; on disk when it returns.
        Menus without a limit are not in the answer."""
        with self._database.writing() as connection:
            return token_limits.reserve(connection, wanted)

    def close(self, menus: Sequence[int]) -> None:
        """Nothing more is set aside of these menus, by number."""
        with self._database.writing() as connection:
            token_limits.close(connection, menus)

    def close_epoch(self, epoch: int) -> None:
        """The same of all menus of an epoch."""
        with self._database.writing() as connection:
            token_limits.close_epoch(connection, epoch)

    def retire(self, epoch: int) -> None:
        """Nothing more is expected of an epoch's menus: what was not reported is no longer out."""
        with self._database.writing() as connection:
            token_limits.retire(connection, epoch)

    def _read_epochs(self, connection: Connection, wanted: set[int]) -> dict[int, OutEpoch]:
        found = {}
        for epoch in sorted(wanted):
            known = self._epochs.get(epoch)
            if known is None or not known.is_published:
                known = _read_epoch(connection, epoch)
            found[epoch] = known
        self._epochs = found
        return dict(found)

    def _read_daily(self, connection: Connection) -> dict[int, DailyBudget]:
        versions = select(OFFERED.c.campaign, OFFERED.c.version).order_by(OFFERED.c.campaign)
        known, found = self._daily, {}
        for number, version in connection.execute(versions).all():
            seen = known.get(number)
            if seen is None or seen[0] != version:
                stored = campaign_rows.find_campaign(connection, number)
                seen = version, None if stored is None else _daily_of(stored.campaign)
            found[number] = seen
        self._daily = found
        return {number: budget for number, (_, budget) in found.items() if budget is not None}


def _daily_of(campaign: AdCampaign) -> DailyBudget | None:
    return None if campaign.daily_micros is None else DailyBudget(campaign.daily_micros, campaign.schedule)


def _read_tokens(connection: Connection, epoch: int | None = None) -> list[MenuTokens]:
    which = ~TOKEN_LIMITS.c.retired if epoch is None else MENUS.c.epoch == epoch
    columns = (
        TOKEN_LIMITS.c.menu, MENUS.c.epoch, TOKEN_LIMITS.c.most, TOKEN_LIMITS.c.reserved,
        TOKEN_LIMITS.c.reported, TOKEN_LIMITS.c.day, TOKEN_LIMITS.c.closed,
    )  # fmt: skip
    query = select(*columns).join(MENUS, MENUS.c.number == TOKEN_LIMITS.c.menu).where(which)
    return [MenuTokens(*row) for row in connection.execute(query.order_by(TOKEN_LIMITS.c.menu))]


def _read_epoch(connection: Connection, epoch: int) -> OutEpoch:
    row = connection.execute(select(EPOCHS.c.directory, EPOCHS.c.head).where(EPOCHS.c.epoch == epoch)).one()
    head = Directory.from_bytes(row.directory).head
    bodies = connection.execute(select(MENUS.c.number, MENUS.c.body).where(MENUS.c.epoch == epoch))
    menus = {}
    for number, body in bodies:
        menu = PricedMenu.from_bytes(body)
        prices = {entry.campaign: entry.price_micros for entry in menu.entries}
        menus[number] = OutMenu(menu.node, menu.lane, prices)
    return OutEpoch(epoch, head.opens, head.closes, head.expires, row.head is not None, menus)


def _read_day(connection: Connection, day: int) -> dict[int, DayMoney]:
    rows = connection.execute(select(DAYS).where(DAYS.c.day == day))
    return {row.campaign: DayMoney(row.spent, row.exposed) for row in rows}
