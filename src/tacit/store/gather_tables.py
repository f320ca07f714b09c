"""What the stores of proxy and server have alike: a version, rounds, and the one thing each round keeps.

version 1   rounds, reports, jobs (and the proxy's uploads and refusals)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    insert,
    inspect,
    select,
    update,
)

from tacit.errors import GatherError, Refused
from tacit.expect import Choice
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.store.database import PartyDatabase, StoreKind

VERSION = 1

# Rows that one short transaction of a stream reads, and how many partial sums (8 KiB each, as a rule).
IDS_AT_ONCE, TOTALS_AT_ONCE = 5000, 64

# Rows that one transaction of `forget` deletes: others get their turn in between.
FORGET_AT_ONCE = 5000

# A party's phases that no other follows; not every party has all of them.
FINAL_PHASES = frozenset({"released", "too-few", "stopped"})

# SQLite counts rows by INTEGER only; a BIGINT key would be a second tree.
RowNumber = BigInteger().with_variant(Integer, "sqlite")

SomePhase = TypeVar("SomePhase", bound=Choice)
SomeRound = TypeVar("SomeRound")
StoredRow = Any  # of SQLAlchemy, whose own type knows no column names


@dataclass(frozen=True)
class PartyTables:
    """One party's tables. `party` begins their names, so that a PostgreSQL database may hold others'."""

    party: str
    other: str  # whose tables must never be in the same database
    metadata: MetaData
    version: Table
    rounds: Table
    jobs: Table  # has round, number, total and accepted; the last two are empty while a job is unfinished


def define_tables(party: str, other: str, phases: type[Choice], *job_columns: Column[Any]) -> PartyTables:
    metadata = MetaData()
    version = Table(
        f"gather_{party}_version",
        metadata,
        Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
        Column("version", Integer, nullable=False),
    )
    words = ", ".join(f"'{phase}'" for phase in phases)
    rounds = Table(
        f"gather_{party}_rounds",
        metadata,
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("digest", LargeBinary, nullable=False, unique=True),
        Column("task", Text, nullable=False),
        Column("level", Integer, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Column("phase", Text, CheckConstraint(f"phase IN ({words})"), nullable=False),
        Column("ids_hash", LargeBinary),
        Column("kept", LargeBinary),  # the noisy share or the result
        UniqueConstraint("task", "level"),
        CheckConstraint("(ids_hash IS NULL) = (kept IS NULL)"),
    )
    jobs = Table(
        f"gather_{party}_jobs",
        metadata,
        Column("round", Integer, primary_key=True, autoincrement=False),
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("accepted", Integer),
        *job_columns,  # whatever is long comes last: SQLite reads a row up to the last column asked for
        Column("total", LargeBinary),
        CheckConstraint("(accepted IS NULL) = (total IS NULL)"),
    )
    return PartyTables(party, other, metadata, version, rounds, jobs)


class GatherStore(ABC, Generic[SomePhase, SomeRound]):
    """Rounds with their phases, and the streams over finished jobs: what both parties' stores do alike."""

    def __init__(
        self,
        database: PartyDatabase,
        tables: PartyTables,
        phases: type[SomePhase],
        stored_round: Callable[[bytes, SomePhase], SomeRound],
    ) -> None:
        self._database, self._tables, self._phases = database, tables, phases
        self._stored_round = stored_round

    @property
    def database(self) -> PartyDatabase:
        """For whoever asks whether it is well."""
        return self._database

    def round(self, digest: bytes) -> SomeRound | None:
        rounds = self._tables.rounds
        with self._database.reading() as connection:
            query = select(rounds.c.body, rounds.c.phase).where(rounds.c.digest == digest)
            row = connection.execute(query).first()
            return None if row is None else self._stored_round(row.body, self._phases(row.phase))

    def rounds(self) -> list[SomeRound]:
        rounds = self._tables.rounds
        with self._database.reading() as connection:
            query = select(rounds.c.body, rounds.c.phase).order_by(rounds.c.number)
            found = connection.execute(query).all()
            return [self._stored_round(row.body, self._phases(row.phase)) for row in found]

    def open_round(self, digest: bytes, task: str, level: int, body: bytes) -> None:
        rounds, named = self._tables.rounds, (digest, task, level, body)
        with self._database.writing() as connection:
            same_name = (rounds.c.task == task) & (rounds.c.level == level)
            found = connection.execute(select(rounds).where(same_name | (rounds.c.digest == digest))).all()
            if not found:
                last = connection.execute(select(func.max(rounds.c.number))).scalar()
                values = {"digest": digest, "task": task, "level": level, "body": body}
                number = 0 if last is None else last + 1
                connection.execute(insert(rounds).values(number=number, phase=self._phases("open"), **values))
            elif any((row.digest, row.task, row.level, row.body) != named for row in found):
                raise Refused(MessageVerdict.CONFLICT)

    def set_phase(self, digest: bytes, phase: SomePhase, *, only_from: frozenset[SomePhase]) -> None:
        with self._database.writing() as connection:
            row = self._row(connection, digest)
            if row.phase == phase:
                return
            if row.phase not in only_from:
                raise Refused(MessageVerdict.CONFLICT)
            self._change(connection, row, phase=str(phase))

    def accepted_count(self, digest: bytes) -> int:
        jobs = self._tables.jobs
        with self._database.reading() as connection:
            number = self._row(connection, digest).number
            total = select(func.coalesce(func.sum(jobs.c.accepted), 0)).where(jobs.c.round == number)
            return int(connection.execute(total).scalar_one())

    def totals(self, digest: bytes) -> Iterator[bytes]:
        jobs = self._tables.jobs
        last = -1
        while True:
            with self._database.reading() as connection:
                number = self._row(connection, digest).number
                finished = (jobs.c.round == number) & (jobs.c.number > last) & jobs.c.total.is_not(None)
                query = select(jobs.c.number, jobs.c.total).where(finished).order_by(jobs.c.number)
                page = connection.execute(query.limit(TOTALS_AT_ONCE)).all()
            yield from (row.total for row in page)
            if len(page) < TOTALS_AT_ONCE:
                return
            last = page[-1].number

    def accepted_ids(self, digest: bytes) -> Iterator[bytes]:
        last = b""
        while True:
            with self._database.reading() as connection:
                number = self._row(connection, digest).number
                page = self._accepted_page(connection, number, last, IDS_AT_ONCE)
            yield from page
            if len(page) < IDS_AT_ONCE:
                return
            last = page[-1]

    @abstractmethod
    def _accepted_page(
        self, connection: Connection, round_number: int, last: bytes, most: int
    ) -> Sequence[bytes]:
        """The first ids after `last` of a round's accepted reports, in sorted order."""

    def close(self) -> None:
        """Let go of the connections. What was acknowledged is on disk with or without this."""
        self._database.close()

    def _find(self, connection: Connection, digest: bytes) -> StoredRow | None:
        rounds = self._tables.rounds
        return connection.execute(
            select(rounds.c.number, rounds.c.phase).where(rounds.c.digest == digest)
        ).first()

    def _row(self, connection: Connection, digest: bytes) -> StoredRow:
        row = self._find(connection, digest)
        if row is None:
            raise Refused(MessageVerdict.UNKNOWN_ROUND)
        return row

    def _keep_first(
        self, digest: bytes, ids_hash: bytes, kept: bytes, *, before: SomePhase, after: SomePhase
    ) -> bytes:
        """Keep the share or result if none is kept, and change the phase with it; returns the kept one."""
        rounds = self._tables.rounds
        with self._database.writing() as connection:
            row = self._row(connection, digest)
            stored = connection.execute(
                select(rounds.c.ids_hash, rounds.c.kept).where(rounds.c.number == row.number)
            ).one()
            if stored.kept is None:
                if row.phase != before:
                    raise Refused(MessageVerdict.CONFLICT)
                self._change(connection, row, ids_hash=ids_hash, kept=kept, phase=str(after))
                return kept
            if stored.ids_hash != ids_hash:
                raise Refused(MessageVerdict.CONFLICT)
            return bytes(stored.kept)

    def _kept(self, digest: bytes) -> bytes | None:
        rounds = self._tables.rounds
        with self._database.reading() as connection:
            number = self._row(connection, digest).number
            kept: bytes | None = connection.execute(
                select(rounds.c.kept).where(rounds.c.number == number)
            ).scalar()
            return kept

    def _settled(self, digest: bytes) -> int:
        """The number of a round that ended; one that still goes on must not be forgotten."""
        with self._database.reading() as connection:
            row = self._row(connection, digest)
            if row.phase not in FINAL_PHASES:
                raise Refused(MessageVerdict.CONFLICT, "only a round that has ended can be forgotten")
            return int(row.number)

    def _change(self, connection: Connection, row: StoredRow, **values: Any) -> None:
        rounds = self._tables.rounds
        connection.execute(update(rounds).where(rounds.c.number == row.number).values(**values))


def open_party_database(
    where: str | Path, kind: StoreKind, tables: PartyTables, page_bytes: int
) -> PartyDatabase:
    """The party's database at a path or URL, made if nothing is there; refused, untouched, if not ours."""
    database = PartyDatabase(where, kind, page_bytes)
    _refuse_others(database, tables)
    database.make_ready()
    with database.writing() as connection:
        if inspect(connection).has_table(tables.version.name):
            _refuse_unknown(connection, database.name, tables)
        else:
            tables.metadata.create_all(connection, checkfirst=False)
            connection.execute(insert(tables.version).values(one=1, version=VERSION))
    return database


def _refuse_others(database: PartyDatabase, tables: PartyTables) -> None:
    present = database.table_names()
    if f"gather_{tables.other}_version" in present:
        raise GatherError(
            f"expected a database without the {tables.other}'s tables at {database.name}: what both know "
            "must not lie in one place, where one thief finds it"
        )
    ours = present & set(tables.metadata.tables)
    # A file is one party's alone; a PostgreSQL database may well hold other people's tables.
    if tables.version.name not in present and (ours or (present and database.path)):
        found = ", ".join(sorted(present)[:5])
        raise GatherError(f"expected a {tables.party} store or nothing at {database.name}, got tables {found}")


def _refuse_unknown(connection: Connection, name: str, tables: PartyTables) -> None:
    found = connection.execute(select(tables.version.c.version)).scalars().all()
    if list(found) != [VERSION]:
        got = ", ".join(str(each) for each in found) or "none"
        raise GatherError(f"expected a {tables.party} store of version {VERSION} at {name}, got version {got}")
    present = inspect(connection).get_multi_columns(filter_names=list(tables.metadata.tables))
    for table in tables.metadata.sorted_tables:
        expected = {column.name for column in table.columns}
        columns = present.get((None, table.name), [])
        if (actual := {column["name"] for column in columns}) != expected:
            raise GatherError(f"expected columns {sorted(expected)} in {table.name}, got {sorted(actual)}")
