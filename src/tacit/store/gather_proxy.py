"""The proxy's state, made to last: a `ProxyStore` on SQLite or PostgreSQL.

    store = SqlProxyStore.open("proxy.sqlite")

What a stolen copy reveals: which device (by its enrolled name) reported in which round and in which order, and
which reports were refused. Not what it reported: uploads are sealed, partial sums and the share are masked by
seeds that only the server can open (and the share carries noise). Dropped uploads may still be in free pages of
the file. Together with the keys of proxy AND server, uploads tell everything: keys belong elsewhere.

Reports of a round are numbered in the order they came, so a job is a range of numbers: to begin one writes one
row, and to finish one touches no report that was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
    update,
)

from tacit import expect
from tacit.display import brief
from tacit.errors import Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.proxy.store import AddOutcome, NewReport, ProxyPhase, StoredJob, StoredProxyRound
from tacit.store.database import append_many, insert_many, party_kind, select_among
from tacit.store.gather_tables import (
    FORGET_AT_ONCE,
    GatherStore,
    RowNumber,
    StoredRow,
    define_tables,
    open_party_database,
)

KIND = party_kind("proxy", 0x7AC18)

# A report's number is its round's number times this plus its place: a round's reports lie together.
NUMBERS_OF_A_ROUND = 2**40

# An upload of a thousand counts spills into one page of SQLite and not two: half as many to write.
PAGE_BYTES = 8192

TABLES = define_tables(
    "proxy",
    "server",
    ProxyPhase,
    Column("first", RowNumber, nullable=False),
    Column("last", RowNumber, nullable=False),
    Column("reports", Integer, CheckConstraint("reports >= 1"), nullable=False),
    Column("verdicts", LargeBinary),
)
_JOBS = TABLES.jobs
Index("gather_proxy_unfinished", _JOBS.c.round, _JOBS.c.number,
      sqlite_where=_JOBS.c.total.is_(None), postgresql_where=_JOBS.c.total.is_(None))  # fmt: skip

_REPORTS = Table(
    "gather_proxy_reports",
    TABLES.metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("round", Integer, nullable=False),
    Column("report_id", LargeBinary, nullable=False),
    Column("device", LargeBinary, nullable=False),
    Column("upload_hash", LargeBinary, nullable=False),
    UniqueConstraint("round", "report_id"),
    UniqueConstraint("round", "device"),
)

# Of reports in no finished job. A table of its own: dropping a row frees whole pages and moves nothing.
_UPLOADS = Table(
    "gather_proxy_uploads",
    TABLES.metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("upload", LargeBinary, nullable=False),
)

_REFUSED = Table(
    "gather_proxy_refused",
    TABLES.metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("code", SmallInteger, nullable=False),
)


class SqlProxyStore(GatherStore[ProxyPhase, StoredProxyRound]):
    """A `ProxyStore`. Every method is one transaction, on disk when it returns; any thread may call.

    The streams read one short transaction after the other: they stay true to a set that no longer changes.
    """

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    @classmethod
    def open(cls, where: str | Path) -> SqlProxyStore:
        """The store at a path or URL; a new one where there is nothing."""
        return cls(open_party_database(where, KIND, TABLES, PAGE_BYTES), TABLES, ProxyPhase, StoredProxyRound)

    def add_reports(self, reports: Sequence[NewReport]) -> list[AddOutcome]:
        places: dict[bytes, list[int]] = {}
        for place, report in enumerate(reports):
            places.setdefault(report.digest, []).append(place)
        outcomes = [AddOutcome.NOT_OPEN] * len(reports)
        with self._database.writing() as connection:
            for digest, here in places.items():
                row = self._find(connection, digest)
                if row is not None:
                    added = _add(connection, row, [reports[place] for place in here])
                    for place, outcome in zip(here, added, strict=True):
                        outcomes[place] = outcome
        return outcomes

    def find_reports(self, reports: Sequence[NewReport]) -> list[AddOutcome]:
        found = [AddOutcome.NOT_OPEN] * len(reports)
        with self._database.reading() as connection:
            for digest in {report.digest for report in reports}:
                row = self._find(connection, digest)
                here = [place for place, report in enumerate(reports) if report.digest == digest]
                if row is not None:
                    ids = [reports[place].report_id for place in here]
                    known = _lookup(connection, row.number, "report_id", ids)
                    for place in here:
                        if _is_same(known.get(reports[place].report_id), reports[place]):
                            found[place] = AddOutcome.SAME
        return found

    def unanswered_job(self, digest: bytes) -> StoredJob | None:
        with self._database.reading() as connection:
            unfinished = (_JOBS.c.round == self._row(connection, digest).number) & _JOBS.c.total.is_(None)
            job = connection.execute(select(_JOBS).where(unfinished).order_by(_JOBS.c.number).limit(1)).first()
            return (
                None if job is None else _stored_job(job.number, _with_uploads(connection, job.first, job.last))
            )

    def begin_job(self, digest: bytes, most: int) -> StoredJob | None:
        expect.whole("most", most, at_least=1)
        with self._database.writing() as connection:
            round_number = self._row(connection, digest).number
            number, last_begun = _latest_job(connection, round_number)
            taken = _with_uploads(connection, last_begun + 1, _numbers_of(round_number)[1], most)
            if not taken:
                return None
            ends = {"first": taken[0].number, "last": taken[-1].number, "reports": len(taken)}
            connection.execute(insert(_JOBS).values(round=round_number, number=number + 1, **ends))
            return _stored_job(number + 1, taken)

    def finish_job(self, digest: bytes, number: int, verdicts: bytes, total: bytes) -> None:
        with self._database.writing() as connection:
            this = (_JOBS.c.round == self._row(connection, digest).number) & (_JOBS.c.number == number)
            job = connection.execute(select(_JOBS).where(this)).first()
            if job is not None and job.total is not None and (job.verdicts, job.total) == (verdicts, total):
                return
            if job is None or job.total is not None or len(verdicts) != job.reports:
                raise Refused(MessageVerdict.CONFLICT)
            accepted = verdicts.count(int(MessageVerdict.ACCEPTED))
            if accepted < len(verdicts):
                _refuse(connection, job, verdicts)
            values = {"accepted": accepted, "verdicts": verdicts, "total": total}
            connection.execute(update(_JOBS).where(this).values(values))
            connection.execute(delete(_UPLOADS).where(_UPLOADS.c.number.between(job.first, job.last)))

    def waiting_count(self, digest: bytes) -> int:
        with self._database.reading() as connection:
            round_number = self._row(connection, digest).number
            unfinished = (_JOBS.c.round == round_number) & _JOBS.c.total.is_(None)
            in_jobs = connection.execute(select(func.coalesce(func.sum(_JOBS.c.reports), 0)).where(unfinished))
            _, last_begun = _latest_job(connection, round_number)
            later = _REPORTS.c.number.between(last_begun + 1, _numbers_of(round_number)[1])
            in_none = connection.execute(select(func.count()).where(later))
            return int(in_jobs.scalar_one()) + int(in_none.scalar_one())

    def _accepted_page(
        self, connection: Connection, round_number: int, last: bytes, most: int
    ) -> Sequence[bytes]:
        """Of reports in begun jobs, none of them unfinished, and not refused."""
        _, last_begun = _latest_job(connection, round_number)
        refused = select(_REFUSED.c.number).where(_REFUSED.c.number == _REPORTS.c.number)
        within = _REPORTS.c.number.between(_JOBS.c.first, _JOBS.c.last)
        mine = _JOBS.c.round == round_number
        unfinished = select(_JOBS.c.number).where(mine & _JOBS.c.total.is_(None) & within)
        later = (_REPORTS.c.round == round_number) & (_REPORTS.c.report_id > last)
        query = (
            select(_REPORTS.c.report_id)
            .where(later, _REPORTS.c.number <= last_begun, ~refused.exists(), ~unfinished.exists())
            .order_by(_REPORTS.c.report_id)
            .limit(most)
        )
        return connection.execute(query).scalars().all()

    def keep_share(self, digest: bytes, ids_hash: bytes, share: bytes) -> bytes:
        return self._keep_first(digest, ids_hash, share, before=ProxyPhase.CLOSED, after=ProxyPhase.AGREED)

    def share(self, digest: bytes) -> bytes | None:
        return self._kept(digest)

    def forget(self, digest: bytes) -> None:
        """Delete who reported in a round that has ended; the round and its share stay. Again: nothing.

        In steps, so that others may write in between; one that was cut short is taken up by calling again.
        """
        round_number = self._settled(digest)
        first, last = _numbers_of(round_number)
        while True:
            with self._database.writing() as connection:
                mine = _REPORTS.c.number.between(first, last)
                some = select(_REPORTS.c.number).where(mine).order_by(_REPORTS.c.number).limit(FORGET_AT_ONCE)
                numbers = connection.execute(some).scalars().all()
                if not numbers:
                    connection.execute(delete(_JOBS).where(_JOBS.c.round == round_number))
                    return
                for table in (_UPLOADS, _REFUSED, _REPORTS):
                    connection.execute(delete(table).where(table.c.number.between(numbers[0], numbers[-1])))


def _numbers_of(round_number: int) -> tuple[int, int]:
    first = round_number * NUMBERS_OF_A_ROUND
    return first, first + NUMBERS_OF_A_ROUND - 1


def _latest_job(connection: Connection, round_number: int) -> tuple[int, int]:
    """The numbers of the job begun last and of its last report; where there is none, those before the first."""
    query = select(_JOBS.c.number, _JOBS.c.last).where(_JOBS.c.round == round_number)
    row = connection.execute(query.order_by(_JOBS.c.number.desc()).limit(1)).first()
    return (-1, _numbers_of(round_number)[0] - 1) if row is None else (row.number, row.last)


def _add(connection: Connection, row: StoredRow, reports: Sequence[NewReport]) -> list[AddOutcome]:
    """Add reports of one round, in order."""
    start = _next_number(connection, row.number)
    new = _insert(connection, row.number, start, reports) if row.phase == ProxyPhase.OPEN else set()
    if len(new) == len(reports):
        return [AddOutcome.NEW] * len(reports)
    rest = [report for place, report in enumerate(reports) if place not in new]
    known = _lookup(connection, row.number, "report_id", [report.report_id for report in rest])
    devices = _lookup(connection, row.number, "device", [report.device for report in rest])

    def outcome(place: int, report: NewReport) -> AddOutcome:
        if place in new:
            return AddOutcome.NEW
        if _is_same(known.get(report.report_id), report):
            return AddOutcome.SAME
        if row.phase != ProxyPhase.OPEN:
            return AddOutcome.NOT_OPEN
        # All were inserted before this look: a device that came later in the same call had not taken anything.
        rival = devices.get(report.device)
        taken = rival is not None and rival.number < start + place
        return AddOutcome.DEVICE_TAKEN if taken else AddOutcome.ID_TAKEN

    return [outcome(place, report) for place, report in enumerate(reports)]


def _is_same(stored: StoredRow | None, report: NewReport) -> bool:
    return stored is not None and (stored.device, stored.upload_hash) == (report.device, report.upload_hash)


def _next_number(connection: Connection, round_number: int) -> int:
    first, last = _numbers_of(round_number)
    query = select(func.max(_REPORTS.c.number)).where(_REPORTS.c.number.between(first, last))
    greatest = connection.execute(query).scalar()
    return first if greatest is None else int(greatest) + 1


def _insert(connection: Connection, round_number: int, start: int, reports: Sequence[NewReport]) -> set[int]:
    """Insert whatever is not taken, also by an earlier one of the same call; returns the places of the new."""
    rows = [
        (start + place, round_number, report.report_id, report.device, report.upload_hash)
        for place, report in enumerate(reports)
    ]
    new = set(range(len(reports)))
    if insert_many(connection, _REPORTS, rows) < len(reports):
        kept = select(_REPORTS.c.number).where(_REPORTS.c.number.between(start, start + len(reports) - 1))
        new = {number - start for number in connection.execute(kept).scalars()}
    if new:
        append_many(connection, _UPLOADS, [(start + place, reports[place].upload) for place in sorted(new)])
    return new


def _lookup(
    connection: Connection, round_number: int, column: str, values: Sequence[bytes]
) -> dict[bytes, StoredRow]:
    """Reports of a round by id or by device."""
    query = f"SELECT * FROM {_REPORTS.name} WHERE round = ? AND {column} IN"
    return {getattr(row, column): row for row in select_among(connection, query, round_number, values)}


def _with_uploads(
    connection: Connection, first: int, last: int, most: int | None = None
) -> Sequence[StoredRow]:
    """By the driver itself: a row that SQLAlchemy makes costs a third of reading it."""
    query = (
        f"SELECT {_REPORTS.name}.number, report_id, upload FROM {_REPORTS.name} JOIN {_UPLOADS.name} "
        f"ON {_REPORTS.name}.number = {_UPLOADS.name}.number "
        f"WHERE {_REPORTS.name}.number BETWEEN ? AND ? ORDER BY {_REPORTS.name}.number"
    )
    some = (query, (first, last)) if most is None else (f"{query} LIMIT ?", (first, last, most))
    marked = some[0] if connection.dialect.name == "sqlite" else some[0].replace("?", "%s")
    return connection.exec_driver_sql(marked, some[1]).all()


def _stored_job(number: int, taken: Sequence[StoredRow]) -> StoredJob:
    _, report_ids, uploads = zip(*taken, strict=True) if taken else ((), (), ())
    return StoredJob(number, report_ids, uploads)


def _refuse(connection: Connection, job: StoredRow, verdicts: bytes) -> None:
    between = _REPORTS.c.number.between(job.first, job.last)
    numbers = connection.execute(select(_REPORTS.c.number).where(between).order_by(_REPORTS.c.number)).scalars()
    refused = [
        (number, code)
        for number, code in zip(numbers, verdicts, strict=True)
        if code != MessageVerdict.ACCEPTED
    ]
    insert_many(connection, _REFUSED, refused)
