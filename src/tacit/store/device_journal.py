"""A device's journal of impressions in one SQLite file: each state on disk before the device acts on it.

    device = AdDevice(settings, keys, SqlDeviceJournal.open("ads.sqlite"), channel, Entropy())

What a stolen copy reveals: what was shown lately, in which contexts, and secrets of tokens that are not spent.
The file is its owner's alone and never leaves the device. An old copy must not be put back: what was drawn
since would be drawn anew, and paid for once.

What is forgotten, and what a state no longer needs, is overwritten in the file (`device_file`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Table,
    delete,
    select,
)
from sqlalchemy.dialects.sqlite import insert

from tacit import expect
from tacit.deliver.device.account import DeviceAccount
from tacit.deliver.device.journal import (
    STILL_OWED,
    ImpressionRecord,
    ImpressionState,
    KeptMenu,
    Showing,
    check_step,
    check_turn,
)
from tacit.display import brief
from tacit.errors import BillError
from tacit.store.database import StoreKind
from tacit.store.device_file import DeviceFile

KIND = StoreKind("device journal", 0x7AC1F, BillError, BillError)
VERSION = 2

_METADATA = MetaData()
_IMPRESSIONS = Table(
    "device_impressions",
    _METADATA,
    Column("number", Integer, primary_key=True),  # in the order in which they began
    Column("nonce", LargeBinary, nullable=False, unique=True),
    Column("menu_id", LargeBinary, nullable=False),
    Column("state", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("record", LargeBinary, nullable=False),
    Index("device_impressions_by_state", "state", "menu_id"),
)
_ACCOUNT = Table(
    "device_account",
    _METADATA,
    Column("only", Integer, primary_key=True),
    Column("turn", BigInteger, nullable=False),
    Column("account", LargeBinary, nullable=False),
)
_HEADS = Table(
    "device_heads",
    _METADATA,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("expires", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=False),
)
_MENUS = Table(
    "device_menus",
    _METADATA,
    Column("menu_id", LargeBinary, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("place", LargeBinary, nullable=False),
    Column("menu", LargeBinary, nullable=False),
    Index("device_menus_by_place", "place", "epoch"),
)
# What counts towards frequency caps; files of version 1 have none.
_SHOWINGS = Table(
    "device_showings",
    _METADATA,
    Column("number", Integer, primary_key=True),
    Column("campaign", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
)

# What is done for every impression, by the driver itself, in a third of the time of SQLAlchemy's way.
_RECORDS = "SELECT record FROM device_impressions"
_STATE = "SELECT state FROM device_impressions WHERE nonce = ?"
_BEGIN_RECORD = (
    "INSERT INTO device_impressions (nonce, menu_id, state, epoch, expires, record) VALUES (?, ?, ?, ?, ?, ?)"
)
_CHANGE_RECORD = "UPDATE device_impressions SET state = ?, record = ? WHERE nonce = ?"
_TURN = "SELECT turn FROM device_account"
_KEEP_ACCOUNT = "INSERT OR REPLACE INTO device_account (only, turn, account) VALUES (1, ?, ?)"


class SqlDeviceJournal:
    """`DeviceJournal` that lasts: on disk when a call returns.

    Any thread may use it, and other processes too: whoever is behind is refused.
    """

    def __init__(self, file: DeviceFile) -> None:
        expect.kind("file", file, DeviceFile)
        self._file, self._transaction, self.close = file, file.transaction, file.close

    def __repr__(self) -> str:
        return brief(self, path=self._file.name)

    @classmethod
    def open(cls, where: str | Path) -> SqlDeviceJournal:
        """The journal in this file; a new one where there is nothing."""
        return cls(DeviceFile(where, KIND, _METADATA, VERSION))

    def account(self) -> bytes | None:
        with self._transaction() as connection:
            found = connection.execute(select(_ACCOUNT.c.account)).scalar()
        return None if found is None else bytes(found)

    def impression(self, nonce: bytes) -> ImpressionRecord | None:
        with self._transaction() as connection:
            found = connection.exec_driver_sql(f"{_RECORDS} WHERE nonce = ?", (nonce,)).first()
        return None if found is None else ImpressionRecord.from_bytes(bytes(found[0]))

    def impressions(
        self, states: Collection[ImpressionState], menu_id: bytes | None = None
    ) -> Sequence[ImpressionRecord]:
        among = f"state IN ({', '.join('?' * len(states))})"
        values: tuple[int | bytes, ...] = tuple(int(each) for each in states)
        if menu_id is not None:
            among, values = f"{among} AND menu_id = ?", (*values, menu_id)
        with self._transaction() as connection:
            rows = connection.exec_driver_sql(f"{_RECORDS} WHERE {among} ORDER BY number", values).all()
        return [ImpressionRecord.from_bytes(bytes(each[0])) for each in rows]

    def commit(
        self,
        records: Sequence[ImpressionRecord],
        account: DeviceAccount | None = None,
        showing: Showing | None = None,
    ) -> None:
        with self._transaction() as connection:
            for each in records:
                _keep_record(connection, each)
            if account is not None:
                _keep_account(connection, account)
            if showing is not None:
                row = {"campaign": showing.campaign, "at": showing.at, "until": showing.until}
                connection.execute(insert(_SHOWINGS).values(row))

    def showings(self, now: int) -> Sequence[Showing]:
        counting = select(_SHOWINGS).where(_SHOWINGS.c.until > now).order_by(_SHOWINGS.c.number)
        with self._transaction() as connection:
            return [Showing(row.campaign, row.at, row.until) for row in connection.execute(counting)]

    def forget_showings(self, now: int) -> None:
        with self._transaction() as connection:
            connection.execute(delete(_SHOWINGS).where(_SHOWINGS.c.until <= now))

    def erase(self) -> int:
        with self._transaction() as connection:
            gone = connection.execute(delete(_IMPRESSIONS)).rowcount
            connection.execute(delete(_SHOWINGS))
            connection.execute(delete(_MENUS))
        return gone

    def keep_head(self, epoch: int, expires: int, head: bytes) -> bytes:
        with self._transaction() as connection:
            row = insert(_HEADS).values(epoch=epoch, expires=expires, head=head)
            connection.execute(row.on_conflict_do_nothing())
            kept = connection.execute(select(_HEADS.c.head).where(_HEADS.c.epoch == epoch)).scalar_one()
        return bytes(kept)

    def head(self, epoch: int) -> bytes | None:
        with self._transaction() as connection:
            found = connection.execute(select(_HEADS.c.head).where(_HEADS.c.epoch == epoch)).scalar()
        return None if found is None else bytes(found)

    def keep_menu(self, menu: KeptMenu) -> None:
        row = insert(_MENUS).values(menu_id=menu.menu_id, epoch=menu.epoch, place=menu.place, menu=menu.data)
        with self._transaction() as connection:
            connection.execute(row.on_conflict_do_nothing())

    def menu(self, menu_id: bytes) -> KeptMenu | None:
        with self._transaction() as connection:
            found = connection.execute(select(_MENUS).where(_MENUS.c.menu_id == menu_id)).first()
        return _kept_menu(found)

    def last_menu_at(self, place: bytes, before: int) -> KeptMenu | None:
        earlier = select(_MENUS).where(_MENUS.c.place == place, _MENUS.c.epoch < before)
        with self._transaction() as connection:
            found = connection.execute(earlier.order_by(_MENUS.c.epoch.desc()).limit(1)).first()
        return _kept_menu(found)

    def forget(self, expired_before: int) -> int:
        over = _IMPRESSIONS.c.expires < expired_before
        with self._transaction() as connection:
            owed = _IMPRESSIONS.c.state.in_([int(each) for each in STILL_OWED])
            gone = connection.execute(delete(_IMPRESSIONS).where(over, ~owed)).rowcount
            needed = select(_IMPRESSIONS.c.epoch)
            heads = delete(_HEADS).where(_HEADS.c.expires < expired_before, _HEADS.c.epoch.not_in(needed))
            connection.execute(heads)
            connection.execute(delete(_MENUS).where(_MENUS.c.epoch.not_in(select(_HEADS.c.epoch))))
        return gone


def _keep_record(connection: Connection, record: ImpressionRecord) -> None:
    found = connection.exec_driver_sql(_STATE, (record.nonce,)).first()
    check_step(None if found is None else ImpressionState(found[0]), record)
    state, data = int(record.state), record.to_bytes()
    if found is None:
        new = (record.nonce, record.menu_id, state, record.epoch, record.expires, data)
        connection.exec_driver_sql(_BEGIN_RECORD, new)
    else:
        connection.exec_driver_sql(_CHANGE_RECORD, (state, data, record.nonce))


def _keep_account(connection: Connection, account: DeviceAccount) -> None:
    found = connection.exec_driver_sql(_TURN).first()
    check_turn(None if found is None else found[0], account)
    connection.exec_driver_sql(_KEEP_ACCOUNT, (account.turn, account.to_bytes()))


def _kept_menu(row: Row[Any] | None) -> KeptMenu | None:
    return None if row is None else KeptMenu(bytes(row.menu_id), row.epoch, bytes(row.place), bytes(row.menu))
