"""Databases of ledgers and parties: a SQLite file or a PostgreSQL database each, and the transactions on them.

A transaction on a ledger holds it alone until it ends: entries form one chain, so there is nothing to gain
from two writers at once. SQLite: BEGIN IMMEDIATE, a rollback journal and synchronous=EXTRA, so that a commit
that was acknowledged survives a power cut. PostgreSQL: an advisory lock that is held to the end of the
transaction. A new ledger file is its owner's alone. One that is there keeps its mode: what was spent is no
secret, and somebody may have given others the right to look.

A party's database (proxy, server, clean room) has one writing connection and several reading ones. SQLite
writes ahead (WAL) here: a commit is one sync of one file and not four, and a reader never holds up a writer.
synchronous=FULL syncs that file before the commit returns, so what was acknowledged survives a power cut;
NORMAL would sync at checkpoints only. What was not committed is passed over when the file is next opened.
PostgreSQL: an advisory lock makes writers wait for each other; readers see one moment (REPEATABLE READ).

Deleted uploads are not overwritten, which would cost ten times the rest of finishing a job: they stay in the
file's free pages until new uploads take their place. They are sealed; an operator who must be sure destroys the
keys.
"""

from __future__ import annotations

import os
import re
import stat
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, QueuePool, Table, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from tacit import expect, files
from tacit.errors import BadInput, GatherError, LedgerCorrupt, LedgerError, TacitError

BUSY_SECONDS = 60


@dataclass(frozen=True)
class StoreKind:
    """What is kept in a place, and how its troubles are called."""

    noun: str
    lock_number: int  # any fixed number of its own: it names the lock within a PostgreSQL database
    trouble: type[TacitError]
    corrupt: type[TacitError]


LEDGER = StoreKind("ledger", 0x7AC17, LedgerError, LedgerCorrupt)

_HALF_A_URL = re.compile(r"(postgres|sqlite|mysql)[a-z+]*:")

# What SQLite says when the trouble is around the file. Anything else is about what stands in it.
_AROUND = ("BUSY", "LOCKED", "CANTOPEN", "READONLY", "FULL", "IOERR", "PERM", "AUTH", "NOMEM", "INTERRUPT")


class SqliteLedgerFile:
    """A ledger in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # the working directory may change, and a symlink has one witness only
        self.name = str(path)
        # EXTRA also syncs the folder after the journal is removed; with FULL, a power cut right after a commit
        # could bring the journal back and undo it.
        pragmas = ("synchronous = EXTRA", "foreign_keys = ON")
        self._engine = sqlite_engine(self.path, pragmas, begin="BEGIN IMMEDIATE", poolclass=NullPool)

    def exists(self) -> bool:
        return self.path.exists()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with suppress(OSError):  # SQLite will meet the same trouble and say what it is
            make_private_file(self.path)
        with translate_errors(self.name, LEDGER, sqlite_is_torn), self._engine.begin() as connection:
            yield connection

    def check_pages(self, connection: Connection, table: str | None = None) -> None:
        """Read every page of a table, or of all: a torn file may look well as long as nobody looks at the torn
        part. Its indexes must have every row: one that is missing there is not found by its key."""
        found = connection.execute(text(f"PRAGMA integrity_check({table or 1})")).scalar()
        if found != "ok":
            raise LedgerCorrupt(f"the ledger file {self.name} is damaged: {found}")


class PostgresLedger:
    """A ledger in tables of its own in a PostgreSQL database, which checks its own pages."""

    def __init__(self, url: str) -> None:
        self._engine = postgres_engine(url, poolclass=NullPool)
        self.name = expect.without_passwords(url)

    def exists(self) -> bool:
        return True

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with translate_errors(self.name, LEDGER, postgres_is_torn), self._engine.begin() as connection:
            lock_exclusively(connection, LEDGER)
            yield connection

    def check_pages(self, _connection: Connection, _table: str | None = None) -> None:
        return None


LedgerDatabase = SqliteLedgerFile | PostgresLedger


def ledger_database(where: str | Path) -> LedgerDatabase:
    """The database that a path or a URL names."""
    place = locate(where, LEDGER)
    return SqliteLedgerFile(place) if isinstance(place, Path) else PostgresLedger(place)


def locate(where: str | Path, kind: StoreKind) -> Path | str:
    """The path of a SQLite file or the URL of a PostgreSQL database; anything else is refused."""
    spelled = str(where)
    if not spelled.strip():
        raise BadInput(f"expected the path or URL of a {kind.noun}, got an empty string")
    if "://" not in spelled:
        if _HALF_A_URL.match(spelled):
            raise BadInput(
                "expected a path, sqlite:///PATH or postgresql+psycopg://..., got a URL without its ://"
            )
        return Path(spelled)
    try:
        url = make_url(spelled)
    except (ArgumentError, ValueError):
        raise BadInput("expected a path, sqlite:///PATH or postgresql+psycopg://..., got another URL") from None
    if url.drivername in ("sqlite", "sqlite+pysqlite") and url.database and url.database != ":memory:":
        return Path(url.database)
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        if "@" in (url.host or ""):
            raise BadInput("expected a URL in which the password has %40 for each @, got one more @ in it")
        return spelled
    raise BadInput(f"expected a path, sqlite:///PATH or postgresql+psycopg://..., got {url.drivername}://...")


def make_private_file(path: Path) -> None:
    """Make an empty file for its owner alone where there is none; SQLite's files beside it get its mode."""
    with suppress(FileExistsError):
        files.open_private(path, "xb").close()


def refuse_shared_file(path: Path, name: str, kind: StoreKind) -> None:
    """Refuse a SQLite file that others than its owner may use; its mode is left as it is."""
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))):
        try:
            mode = each.stat().st_mode
        except OSError:
            continue  # it is not there, or whoever opens it next will say what is wrong
        if stat.S_ISREG(mode) and mode & files.OTHERS_MODE:
            raise kind.trouble(
                f"the {kind.noun} at {name} could not be used: expected a file for its owner alone, "
                f"got mode {mode & 0o777:o}; chmod 600 {each}"
            )


def sqlite_engine(path: Path, pragmas: Sequence[str], *, begin: str | None, **pool: Any) -> Engine:
    """Connections to a file, each with these pragmas; transactions begin with the words of `begin`, if any."""
    # isolation_level None: the driver must not begin transactions of its own kind.
    connect = {"timeout": BUSY_SECONDS, "isolation_level": None, "check_same_thread": False}
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args=connect, **pool)

    def prepare(connection: Any, _record: Any) -> None:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    def say_begin(connection: Connection) -> None:
        if begin is not None:
            connection.exec_driver_sql(begin)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", say_begin)
    return engine


def postgres_engine(url: str, **pool: Any) -> Engine:
    parsed = make_url(url).set(drivername="postgresql+psycopg")
    try:
        return create_engine(parsed, connect_args={"connect_timeout": BUSY_SECONDS}, **pool)
    except ModuleNotFoundError:
        raise BadInput(
            "expected psycopg for a PostgreSQL database, got none: pip install 'tacit[postgres]'"
        ) from None


def lock_exclusively(connection: Connection, kind: StoreKind) -> None:
    """Make this PostgreSQL transaction the only one of its kind, and durable once it has committed."""
    connection.execute(text(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'"))
    # Somebody may have traded durability for speed in this database; what is kept here must not be lost.
    connection.execute(text("SET LOCAL synchronous_commit = on"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": kind.lock_number})


def sqlite_is_torn(problem: DBAPIError) -> bool:
    return not getattr(problem.orig, "sqlite_errorname", "").removeprefix("SQLITE_").startswith(_AROUND)


def postgres_is_torn(problem: DBAPIError) -> bool:
    return not isinstance(problem, OperationalError)


@contextmanager
def translate_errors(name: str, kind: StoreKind, is_torn: Callable[[DBAPIError], bool]) -> Iterator[None]:
    """Turn what the driver says into errors of this kind."""
    noun = kind.noun
    try:
        yield
    except DBAPIError as problem:
        reason = str(problem.orig).strip().splitlines()[0] if problem.orig else str(problem)
        if isinstance(problem, IntegrityError):
            # The second wall held: what the rules allowed goes against what is stored.
            raise kind.corrupt(f"the {noun} at {name} refused to store a decision: {reason}") from problem
        if is_torn(problem):
            raise kind.corrupt(f"the {noun} at {name} is torn or not a {noun} at all: {reason}") from problem
        raise kind.trouble(f"the {noun} at {name} could not be used: {reason}") from problem
    except PoolTimeout as problem:
        raise kind.trouble(f"the {noun} at {name} could not be used: it is busy") from problem
    except (UnicodeDecodeError, SQLAlchemyError) as problem:
        # Names and values that were never stored here, down to error messages that quote them.
        raise kind.corrupt(f"the {noun} at {name} is torn: its tables cannot be read") from problem


# Index pages that many commits touch are copied back into the file once for all of them.
CHECKPOINT_BYTES = 32 * 2**20

# Values in one IN (...): far below the most that any SQLite or PostgreSQL takes.
LOOKED_UP_AT_ONCE = 500

_WRITING = ("synchronous = FULL", "secure_delete = OFF", "cache_size = -8192")  # KiB: 32,768 were no faster
_READING = ("query_only = ON",)

# Threads queue for the writing connection here, where they are woken, and not at the file, where they poll.
_ONE = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": BUSY_SECONDS}
_SEVERAL = {"poolclass": QueuePool, "pool_size": 4, "max_overflow": 60, "pool_timeout": BUSY_SECONDS}


class PartyDatabase:
    """Transactions of one party on one place."""

    def __init__(
        self, where: str | Path, kind: StoreKind, page_bytes: int, writing: Sequence[str] = ()
    ) -> None:
        """`writing` are SQLite's pragmas of this party's writer, beside those of all."""
        place = locate(where, kind)
        self.kind, self._page_bytes, self._process = kind, page_bytes, os.getpid()
        self.path = place.resolve() if isinstance(place, Path) else None
        self.url = None if isinstance(place, Path) else place
        self._is_torn = sqlite_is_torn if self.path else postgres_is_torn
        if self.path:
            self.name = str(place)
            pragmas = (*_WRITING, f"wal_autocheckpoint = {CHECKPOINT_BYTES // page_bytes}", *writing)
            self._writer = sqlite_engine(self.path, pragmas, begin="BEGIN IMMEDIATE", **_ONE)
            self._readers = sqlite_engine(self.path, _READING, begin="BEGIN", **_SEVERAL)
        else:
            self._writer = postgres_engine(str(place), pool_pre_ping=True, **_ONE)
            self._readers = postgres_engine(
                str(place), pool_pre_ping=True, isolation_level="REPEATABLE READ", **_SEVERAL
            )
            self.name = expect.without_passwords(str(place))
        # Also if nobody calls it.
        self.close = weakref.finalize(self, _dispose, self._process, self._writer, self._readers)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer shares, on disk when it ends well, undone when it does not."""
        with self._begin(self._writer) as connection:
            if self.path is None:
                # The lock comes first: READ COMMITTED, so that what follows sees what the last holder did.
                lock_exclusively(connection, self.kind)
            yield connection

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment and changes nothing."""
        return self._begin(self._readers)

    def table_names(self) -> set[str]:
        """The tables that are there, looked up without changing anything; a file that is not there has none."""
        if self.path is not None and not self.path.exists():
            return set()
        engine = self._plain_engine() if self.path else self._readers
        with self._begin(engine) as connection:
            return set(inspect(connection).get_table_names())

    def make_ready(self) -> None:
        """Make a SQLite file write ahead, its owner's alone if it is new. For files that are ours or empty."""
        if self.path is None:
            return
        refuse_shared_file(self.path, self.name, self.kind)
        try:
            make_private_file(self.path)
        except OSError as problem:
            raise self._trouble(problem.strerror or "no file can be made there") from problem
        with self._begin(self._plain_engine(), transaction=False) as connection:
            connection.exec_driver_sql(f"PRAGMA page_size = {self._page_bytes}")
            mode = _switch_to_wal(connection)
        if mode != "wal":
            raise self._trouble("its file system does not let SQLite write ahead; use a local disk")

    def empty_log(self) -> None:
        """Move what a SQLite file has written ahead into it, so that what was deleted is in neither; as far as
        nobody reads from it at this moment."""
        if self.path is not None:
            with self._begin(self._plain_engine(), transaction=False) as connection:
                connection.exec_driver_sql("PRAGMA busy_timeout = 2000")  # milliseconds
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _begin(self, engine: Engine, *, transaction: bool = True) -> Iterator[Connection]:
        if os.getpid() != self._process:
            # A connection that two processes share after a fork tears a SQLite file.
            raise self._trouble("it was opened in another process; open it again in this one")
        begun = engine.begin() if transaction else engine.connect()
        with translate_errors(self.name, self.kind, self._is_torn), begun as connection:
            yield connection

    def _plain_engine(self) -> Engine:
        assert self.path is not None, "PostgreSQL needs no making"
        return sqlite_engine(self.path, (), begin=None, poolclass=NullPool)

    def _trouble(self, reason: str) -> Exception:
        return self.kind.trouble(f"the {self.kind.noun} at {self.name} could not be used: {reason}")


def party_kind(party: str, lock_number: int) -> StoreKind:
    return StoreKind(f"{party} store", lock_number, GatherError, GatherError)


def insert_many(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> int:
    """Insert rows of short values, but none that conflicts with an earlier one; returns how many went in. The
    driver itself takes half the time of SQLAlchemy's way."""
    if connection.dialect.name == "sqlite":
        statement = f"INSERT INTO {_target(table)} VALUES ({_marks(table)}) ON CONFLICT DO NOTHING"
        return connection.exec_driver_sql(statement, list(rows)).rowcount
    # One statement with an array per column (%b: in binary): for PostgreSQL, a statement costs more than a row.
    arrays = ", ".join(f"%b::{kind}[]" for kind in _types(connection, table))
    statement = f"INSERT INTO {_target(table)} SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"
    columns = tuple(list(column) for column in zip(*rows, strict=True))
    return connection.exec_driver_sql(statement, columns).rowcount


def append_many(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows of long values, none of which may be there already."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"INSERT INTO {_target(table)} VALUES ({_marks(table)})", list(rows))
        return
    driver: Any = connection.connection.dbapi_connection
    statement = f"COPY {_target(table)} FROM STDIN (FORMAT BINARY)"
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(_types(connection, table))
            for row in rows:
                copy.write_row(row)
    except connection.dialect.loaded_dbapi.Error as problem:
        raise OperationalError(statement, None, problem) from problem


def select_among(connection: Connection, statement: str, first: int, values: Sequence[bytes]) -> Iterator[Any]:
    """The rows of a statement that ends in `... = ? AND ... IN`, for any number of values."""
    for start in range(0, len(values), LOOKED_UP_AT_ONCE):
        some = values[start : start + LOOKED_UP_AT_ONCE]
        whole = f"{statement} ({', '.join('?' * len(some))})"
        marked = whole if connection.dialect.name == "sqlite" else whole.replace("?", "%s")
        yield from connection.exec_driver_sql(marked, (first, *some))


def _target(table: Table) -> str:  # with its columns: a later release may have added others
    return f"{table.name} ({', '.join(column.name for column in table.columns)})"


def _marks(table: Table) -> str:
    return ", ".join("?" * len(table.columns))


def _types(connection: Connection, table: Table) -> list[str]:
    return [column.type.compile(connection.dialect).lower() for column in table.columns]


def _dispose(process: int, *engines: Engine) -> None:
    for engine in engines:
        engine.dispose(close=os.getpid() == process)  # a fork must not close what it does not own


def _switch_to_wal(connection: Connection) -> str:
    """Switch to WAL. SQLite does not wait here if another process opens the same new file at this moment."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar())
        except OperationalError as problem:
            busy = getattr(problem.orig, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
