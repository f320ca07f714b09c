"""The server's state, made to last: a `ServerStore` on SQLite or PostgreSQL.

    store = SqlServerStore.open("server.sqlite")

What a stolen copy reveals: how many reports each round had, their random ids (which only the proxy can tell to
belong to a device), which of them were refused, and results that were released, which are public. Partial sums
are sums of masks. No device is named here, and nothing here is sealed to anybody: the seeds are never kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    delete,
    insert,
    select,
)

from tacit.display import brief
from tacit.errors import Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.server.store import AnsweredJob, ServerPhase, StoredServerRound
from tacit.store.database import insert_many, party_kind, select_among
from tacit.store.gather_tables import FORGET_AT_ONCE, GatherStore, define_tables, open_party_database

KIND = party_kind("server", 0x7AC19)

# Ids fall on pages all over the tree, so pages should be small.
PAGE_BYTES = 4096

TABLES = define_tables(
    "server",
    "proxy",
    ServerPhase,
    Column("job_hash", LargeBinary, nullable=False),
    Column("reply", LargeBinary, nullable=False),
)
_JOBS = TABLES.jobs

# One tree sorted by id serves both the uniqueness of ids and the sorted stream.
_REPORTS = Table(
    "gather_server_reports",
    TABLES.metadata,
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("report_id", LargeBinary, primary_key=True),
    Column("code", SmallInteger, nullable=False),
    sqlite_with_rowid=False,
)


class SqlServerStore(GatherStore[ServerPhase, StoredServerRound]):
    """A `ServerStore`. Every method is one transaction, on disk when it returns; any thread may call.

    The streams read one short transaction after the other: they stay true to a set that no longer changes.
    """

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    @classmethod
    def open(cls, where: str | Path) -> SqlServerStore:
        """The store at a path or URL; a new one where there is nothing."""
        return cls(open_party_database(where, KIND, TABLES, PAGE_BYTES), TABLES, ServerPhase, StoredServerRound)

    def job(self, digest: bytes, number: int) -> AnsweredJob | None:
        with self._database.reading() as connection:
            this = (_JOBS.c.round == self._row(connection, digest).number) & (_JOBS.c.number == number)
            found = connection.execute(select(_JOBS.c.job_hash, _JOBS.c.reply).where(this)).first()
            return None if found is None else AnsweredJob(found.job_hash, found.reply)

    def seen_ids(self, digest: bytes, report_ids: Sequence[bytes]) -> set[bytes]:
        query = f"SELECT report_id FROM {_REPORTS.name} WHERE round = ? AND report_id IN"
        with self._database.reading() as connection:
            number = self._row(connection, digest).number
            return {row.report_id for row in select_among(connection, query, number, report_ids)}

    def keep_job(
        self,
        digest: bytes,
        number: int,
        job_hash: bytes,
        reply: bytes,
        ids: Sequence[bytes],
        verdicts: bytes,
        total: bytes,
    ) -> AnsweredJob:
        with self._database.writing() as connection:
            row = self._row(connection, digest)
            this = (_JOBS.c.round == row.number) & (_JOBS.c.number == number)
            first = connection.execute(select(_JOBS.c.job_hash, _JOBS.c.reply).where(this)).first()
            if first is not None:
                return AnsweredJob(first.job_hash, first.reply)
            if row.phase != ServerPhase.OPEN:
                raise Refused(MessageVerdict.CLOSED)
            decided = [(row.number, each, code) for each, code in zip(ids, verdicts, strict=True)]
            if decided and insert_many(connection, _REPORTS, decided) < len(decided):
                raise Refused(MessageVerdict.REPLAYED)  # and the transaction is undone
            values = {"job_hash": job_hash, "reply": reply, "total": total}
            accepted = verdicts.count(int(MessageVerdict.ACCEPTED))
            connection.execute(
                insert(_JOBS).values(round=row.number, number=number, accepted=accepted, **values)
            )
        return AnsweredJob(job_hash, reply)

    def _accepted_page(
        self, connection: Connection, round_number: int, last: bytes, most: int
    ) -> Sequence[bytes]:
        later = (_REPORTS.c.round == round_number) & (_REPORTS.c.report_id > last)
        accepted = later & (_REPORTS.c.code == int(MessageVerdict.ACCEPTED))
        query = select(_REPORTS.c.report_id).where(accepted).order_by(_REPORTS.c.report_id)
        return connection.execute(query.limit(most)).scalars().all()

    def keep_result(self, digest: bytes, ids_hash: bytes, result: bytes) -> bytes:
        return self._keep_first(digest, ids_hash, result, before=ServerPhase.AGREED, after=ServerPhase.RELEASED)

    def result(self, digest: bytes) -> bytes | None:
        return self._kept(digest)

    def forget(self, digest: bytes) -> None:
        """Delete the report ids and jobs of a round that has ended; its result stays. Again: nothing.

        In steps, so that others may write in between; one that was cut short is taken up by calling again.
        """
        mine = _REPORTS.c.round == (round_number := self._settled(digest))
        while True:
            with self._database.writing() as connection:
                some = select(_REPORTS.c.report_id).where(mine).order_by(_REPORTS.c.report_id)
                ids = connection.execute(some.limit(FORGET_AT_ONCE)).scalars().all()
                if not ids:
                    connection.execute(delete(_JOBS).where(_JOBS.c.round == round_number))
                    return
                connection.execute(delete(_REPORTS).where(mine & (_REPORTS.c.report_id <= ids[-1])))
