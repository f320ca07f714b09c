"""Impressions that exchanges told of, kept until the proxy has their reports: a `NoticeStore` of billing.

    notices = SqlNoticeStore(ad_store.database)

A notice is known by the nonce of its bid, which is its row's key. Whoever else takes the same notice at the
same moment, one row is kept, and that very report is sent until the proxy has it.

What a stolen copy reveals: menus, tokens that are spent on their way, and reports that are sealed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import delete, func, select, update

from tacit.bill.server.notices import KeptNotice
from tacit.display import brief
from tacit.store.database import PartyDatabase, insert_many
from tacit.store.market_tables import NOTICES

AT_ONCE = 500  # values of one statement


class SqlNoticeStore:
    """A `NoticeStore`. Every method is one transaction, on disk when it returns; any thread may call."""

    def __init__(self, database: PartyDatabase) -> None:
        self._database = database

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    def known(self, nonces: Collection[bytes]) -> set[bytes]:
        asked, found = list(nonces), set[bytes]()
        with self._database.reading() as connection:
            for start in range(0, len(asked), AT_ONCE):
                some = NOTICES.c.nonce.in_(asked[start : start + AT_ONCE])
                found |= {
                    bytes(each) for each in connection.execute(select(NOTICES.c.nonce).where(some)).scalars()
                }
        return found

    def add(self, notices: Sequence[KeptNotice]) -> None:
        with self._database.writing() as connection:
            insert_many(
                connection, NOTICES, [(each.nonce, each.report, each.expires, False) for each in notices]
            )

    def waiting(self, most: int) -> list[KeptNotice]:
        query = select(NOTICES).where(~NOTICES.c.delivered).order_by(NOTICES.c.expires).limit(most)
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        return [KeptNotice(bytes(row.nonce), bytes(row.report), row.expires) for row in found]

    def mark_delivered(self, nonces: Sequence[bytes]) -> None:
        with self._database.writing() as connection:
            for start in range(0, len(nonces), AT_ONCE):
                some = NOTICES.c.nonce.in_(nonces[start : start + AT_ONCE])
                connection.execute(update(NOTICES).where(some).values(delivered=True))

    def forget(self, expired_before: int) -> int:
        old = NOTICES.c.delivered & (NOTICES.c.expires < expired_before)
        with self._database.writing() as connection:
            return connection.execute(delete(NOTICES).where(old)).rowcount

    def count_waiting(self) -> int:
        """How many reports the proxy may not have."""
        query = select(func.count()).where(~NOTICES.c.delivered)
        with self._database.reading() as connection:
            return int(connection.execute(query).scalar() or 0)
