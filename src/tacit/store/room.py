"""The room's state, made to last: a `RoomStore` in one SQLite file.

    store = SqlRoomStore.open("room.sqlite")

What a stolen copy reveals: which tokens the platform asked about under noised terms and how often, digests of
labels under the room's secret, the points of a private intersection, noised answers as they left, and the
audit log. No label is here, and no sum before its noise. Under noised terms every answer is kept, 4 bytes per
parameter: a request that comes again is answered from here.

It writes ahead, and syncs before a commit returns (see `database`): a count that was undone by a power
cut after its answer left would be lost. An old copy that is put back would have forgotten counts, so a witness
(see `tamper_evidence`) remembers the last entry of the audit log that was written, and a store that lacks it is
refused. Keep the witness where a backup of the store does not bring it back, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    inspect,
    select,
)
from sqlalchemy.dialects.sqlite import insert

from tacit import expect
from tacit.cleanroom.protocol.audit_log import AuditEntry
from tacit.cleanroom.protocol.tokens import TOKEN_BYTES
from tacit.cleanroom.room.labels import Records
from tacit.cleanroom.room.store import StoredAnswer
from tacit.display import brief
from tacit.errors import BadInput, RoomError
from tacit.privacy.ledger.chain import START, ChainHead
from tacit.store.database import PartyDatabase, StoreKind, locate, select_among
from tacit.store.tamper_evidence import RollbackWitness, WitnessSubject

KIND = StoreKind("room store", 0x7AC1B, RoomError, RoomError)
REMEDY = "put the newest one back, or agree on a new label_version and begin with a new store"
WITNESS_SUBJECT = WitnessSubject("room store", RoomError, RoomError, RoomError, REMEDY)
VERSION = 2  # 1 had no `room_held`

# Records fall on pages all over the tree, so pages should be small.
PAGE_BYTES = 4096

_METADATA = MetaData()
_VALUES = Table(
    "room_values",
    _METADATA,
    Column("key", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
_ANSWERED = Table(
    "room_answered",
    _METADATA,
    Column("release", Text, primary_key=True),
    Column("run", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("asked", LargeBinary, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
_COUNTS = Table(
    "room_counts",
    _METADATA,
    Column("release", Integer, primary_key=True, autoincrement=False),
    Column("record", LargeBinary, primary_key=True),
    Column("used", Integer, CheckConstraint("used >= 1"), nullable=False),
    sqlite_with_rowid=False,
)
_HELD = Table(
    "room_held",  # what runs have set aside: it is among the counts
    _METADATA,
    Column("run", Integer, primary_key=True, autoincrement=False),
    Column("record", LargeBinary, primary_key=True),
    Column("left", Integer, CheckConstraint('"left" >= 0'), nullable=False),
    Column("used", Integer, CheckConstraint("used >= 0"), nullable=False),
    sqlite_with_rowid=False,
)
_RELEASES = Table(
    "room_releases",  # short numbers for long names, also of runs: there is a row of counts for every record
    _METADATA,
    Column("number", Integer, primary_key=True),
    Column("release", Text, nullable=False, unique=True),
)
_ENTRIES = Table(
    "room_entries",
    _METADATA,
    Column("sequence", Integer, CheckConstraint("sequence >= 1"), primary_key=True, autoincrement=False),
    Column("previous", Text, nullable=False, unique=True),
    Column("contents", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
)

_COUNT = (
    "INSERT INTO room_counts (release, record, used) VALUES (?, ?, 1) "
    "ON CONFLICT (release, record) DO UPDATE SET used = used + 1 WHERE used < ?"
)

_NAME = 'INSERT INTO room_held (run, record, "left", used) VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING'
_COUNT_HELD = (
    "INSERT INTO room_counts (release, record, used) "
    'SELECT ?, record, ? - used - "left" FROM room_held WHERE run = ? AND used + "left" < ? '
    "ON CONFLICT (release, record) DO UPDATE SET used = room_counts.used + excluded.used"
)
_MOST_HELD = (
    "SELECT max(counts.used) FROM room_held AS held JOIN room_counts AS counts "
    "ON counts.release = ? AND counts.record = held.record WHERE held.run = ?"
)
_USE = 'UPDATE room_held SET "left" = "left" - 1, used = used + 1 WHERE run = ? AND record = ? AND "left" >= 1'

_NUMBER = select(_RELEASES.c.number).where(_RELEASES.c.release == bindparam("release"))


class _ReadTransaction:
    """`cleanroom.room.store.ReadTransaction`, on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, key: str) -> bytes | None:
        value = self._connection.execute(select(_VALUES.c.value).where(_VALUES.c.key == key)).scalar()
        return None if value is None else bytes(value)

    def get_answer(self, release: str, run: str, number: int) -> StoredAnswer | None:
        this = (_ANSWERED.c.release == release) & (_ANSWERED.c.run == run) & (_ANSWERED.c.number == number)
        query = select(_ANSWERED.c.asked, _ANSWERED.c.answer).where(this)
        row = self._connection.execute(query).first()
        return None if row is None else StoredAnswer(bytes(row.asked), bytes(row.answer))

    def has_releases_left(self, release: str, records: Records, most: int) -> bool:
        number = self._connection.execute(_NUMBER, {"release": release}).scalar()
        if number is None or most < 1:
            return most >= 1
        used_up = f"SELECT 1 FROM room_counts WHERE used >= {int(most)} AND release = ? AND record IN"
        return not list(select_among(self._connection, used_up, number, _record_tokens(records)))

    def most_used(self, release: str, records: Records) -> int:
        number = self._connection.execute(_NUMBER, {"release": release}).scalar()
        used = "SELECT max(used) FROM room_counts WHERE release = ? AND record IN"
        if number is None:
            return 0
        return max(
            (row[0] or 0 for row in select_among(self._connection, used, number, _record_tokens(records))),
            default=0,
        )

    def has_quota(self, release: str, run: str, records: Records) -> bool:
        number = self._connection.execute(_NUMBER, {"release": _run_name(release, run)}).scalar()
        if number is None:
            return False
        held = 'SELECT count(*) FROM room_held WHERE "left" > 0 AND run = ? AND record IN'
        found = sum(row[0] for row in select_among(self._connection, held, number, _record_tokens(records)))
        return bool(found == len(records))


class _WriteTransaction(_ReadTransaction):
    """`cleanroom.room.store.WriteTransaction`, on one connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.appended: ChainHead | None = None  # the last entry that this transaction wrote

    def reserve_quota(self, release: str, run: str, records: Records, releases: int, most: int) -> bool:
        number, of_run = self._number(release), self._number(_run_name(release, run))
        sql = self._connection.exec_driver_sql
        sql(_NAME, [(of_run, record) for record in sorted(_record_tokens(records))])  # in the order of the tree
        sql(_COUNT_HELD, (number, releases, of_run, releases))
        sql('UPDATE room_held SET "left" = ? - used WHERE run = ?', (releases, of_run))
        return int(sql(_MOST_HELD, (number, of_run)).scalar() or 0) <= most

    def use_quota(self, release: str, run: str, records: Records) -> bool:
        number = self._number(_run_name(release, run))
        rows = [(number, record) for record in _record_tokens(records)]
        return not rows or self._connection.exec_driver_sql(_USE, rows).rowcount == len(rows)

    def return_quota(self, release: str, run: str) -> int:
        number, of_run = self._number(release), self._number(_run_name(release, run))
        sql = self._connection.exec_driver_sql
        given = int(sql('SELECT sum("left") FROM room_held WHERE run = ?', (of_run,)).scalar() or 0)
        # A count of nothing is no row: what nobody has used goes, and so do the run's own rows for it.
        held = 'SELECT record FROM room_held WHERE run = ? AND "left" > 0'
        less = '(SELECT "left" FROM room_held WHERE run = ? AND record = room_counts.record)'
        sql(
            f"DELETE FROM room_counts WHERE release = ? AND record IN ({held}) AND used <= {less}",
            (number, of_run, of_run),
        )
        sql(
            f"UPDATE room_counts SET used = used - {less} WHERE release = ? AND record IN ({held})",
            (of_run, number, of_run),
        )
        sql("DELETE FROM room_held WHERE run = ? AND used = 0", (of_run,))
        sql('UPDATE room_held SET "left" = 0 WHERE run = ?', (of_run,))
        return given

    def put(self, key: str, value: bytes) -> None:
        row = insert(_VALUES).values(key=key, value=value)
        self._connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": value}))

    def put_answer(self, release: str, run: str, number: int, answered: StoredAnswer) -> None:
        values = {"asked": answered.asked, "answer": answered.answer}
        row = insert(_ANSWERED).values(release=release, run=run, number=number, **values)
        self._connection.execute(row)

    def count(self, release: str, records: Records, most: int) -> bool:
        """A record that has `most` already is not updated, so fewer rows change than there are records."""
        if most < 1:
            return False
        number = self._number(release)
        rows = [(number, record, most) for record in _record_tokens(records)]
        return not rows or self._connection.exec_driver_sql(_COUNT, rows).rowcount == len(rows)

    def head(self) -> ChainHead:
        query = select(_ENTRIES.c.sequence, _ENTRIES.c.hash).order_by(_ENTRIES.c.sequence.desc()).limit(1)
        row = self._connection.execute(query).first()
        return START if row is None else ChainHead(row.sequence, row.hash)

    def append(self, entry: AuditEntry) -> None:
        head = self.head()
        if (entry.sequence - 1, entry.previous) != (head.sequence, head.hash):
            raise RoomError("expected the entry that follows the last one, got another")
        self._connection.execute(insert(_ENTRIES).values(**entry.as_json()))
        self.appended = entry.head

    def hash_at(self, sequence: int) -> str | None:
        """Of one entry of the log; None if it is not there."""
        query = select(_ENTRIES.c.hash).where(_ENTRIES.c.sequence == sequence)
        found: str | None = self._connection.execute(query).scalar()
        return found

    def _number(self, release: str) -> int:
        self._connection.execute(insert(_RELEASES).values(release=release).on_conflict_do_nothing())
        return int(self._connection.execute(_NUMBER, {"release": release}).scalar_one())


def _run_name(release: str, run: str) -> str:
    return f"{release}, run {run}"


def _record_tokens(records: Records) -> list[bytes]:
    spelled = records.tobytes()
    return [spelled[start : start + TOKEN_BYTES] for start in range(0, len(spelled), TOKEN_BYTES)]


class SqlRoomStore:
    """A `RoomStore` that lasts: what a transaction changed is on disk when it has ended, all of it or nothing.

    Any thread and any number of processes may share the file; transactions wait for each other.
    """

    def __init__(self, database: PartyDatabase, witness: RollbackWitness) -> None:
        self._database, self._witness = database, witness

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    @classmethod
    def open(cls, where: str | Path, *, witness: str | Path | None = None) -> SqlRoomStore:
        """The store in this file; a new one where there is nothing. Its witness is beside it by default."""
        witness = None if witness is None else expect.path("witness", witness)
        if not isinstance(locate(where, KIND), Path):
            raise BadInput("expected the path of a room store, got the URL of a server")
        database = PartyDatabase(where, KIND, PAGE_BYTES)
        present = database.table_names()
        if present and present | {_HELD.name} != set(_METADATA.tables):
            tables = ", ".join(sorted(present)[:5])
            raise RoomError(f"expected a room store or nothing at {database.name}, got tables {tables}")
        database.make_ready()
        with database.writing() as connection:
            found = connection.exec_driver_sql("PRAGMA user_version").scalar()
            if found == 0 and not inspect(connection).get_table_names():
                _METADATA.create_all(connection, checkfirst=False)
                connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
            elif found == 1:
                _HELD.create(connection)
                connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
            elif found != VERSION:
                raise RoomError(f"expected a room store of version {VERSION} at {database.name}, got {found}")
        store = cls(database, RollbackWitness(Path(witness or f"{database.path}.witness"), WITNESS_SUBJECT))
        with store.transaction() as transaction:
            if transaction.head() == START:
                store._witness.advance(START)  # before the first entry: from now on a missing witness is a loss
        return store

    @contextmanager
    def transaction(self) -> Iterator[_WriteTransaction]:
        if self._database.path is None or not self._database.path.exists():
            # What is written to a removed file is gone with the process.
            raise RoomError(f"the room store at {self._database.name} could not be used: it was removed")
        with self._database.writing() as connection:
            transaction = _WriteTransaction(connection)
            self._refuse_an_old_copy(transaction)
            yield transaction
        if transaction.appended is not None:
            self._witness.advance(transaction.appended)

    @contextmanager
    def reading(self) -> Iterator[_ReadTransaction]:
        with self._database.reading() as connection:
            yield _ReadTransaction(connection)

    def _refuse_an_old_copy(self, transaction: _WriteTransaction) -> None:
        """The witness is written after every commit, so that a store has all that it has seen."""
        known = self._witness.read()
        if known is None and transaction.head() == START:
            return
        if known is None:
            raise RoomError(f"expected the room store's witness at {self._witness.path}, got none: {REMEDY}")
        if known != START and transaction.hash_at(known.sequence) != known.hash:
            raise RoomError(
                f"the room store at {self._database.name} lacks entry {known.sequence}, which its witness has "
                f"seen: an old copy was put back, and counts of releases are lost; {REMEDY}"
            )

    def entries(self, after: int, most: int) -> list[AuditEntry]:
        query = select(_ENTRIES).where(_ENTRIES.c.sequence > after).order_by(_ENTRIES.c.sequence).limit(most)
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        return [AuditEntry(row.sequence, row.previous, row.contents, row.hash) for row in found]

    def close(self) -> None:
        """Let go of the connections. What was acknowledged is on disk with or without this."""
        self._database.close()
