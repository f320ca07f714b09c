"""A party's SQLite file or PostgreSQL database: one writing connection, several reading ones.

The stores of proxy, server and clean room are built on it. SQLite writes ahead (WAL) here, unlike the ledger:
a commit is one sync of one file and not four, and a reader never holds up a writer. synchronous=FULL syncs
that file before the commit returns, so what was acknowledged survives a power cut; NORMAL would sync at
checkpoints only. What was not committed is passed over when the file is next opened.

Deleted uploads are not overwritten, which would cost ten times the rest of finishing a job: they stay in the
file's free pages until new uploads take their place. They are sealed; an operator who must be sure destroys
the keys.

PostgreSQL: an advisory lock makes writers wait for each other; readers see one moment (REPEATABLE READ).
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, QueuePool, Table, inspect
from sqlalchemy.exc import OperationalError

from tacit import expect
from tacit.errors import GatherError
from tacit.store.database import (
    BUSY_SECONDS,
    StoreKind,
    locate,
    lock_exclusively,
    make_private_file,
    postgres_engine,
    postgres_is_torn,
    refuse_shared_file,
    sqlite_engine,
    sqlite_is_torn,
    translate_errors,
)

# Index pages that many commits touch are copied back into the file once for all of them.
CHECKPOINT_BYTES = 32 * 2**20

# Values in one IN (...): far below the most that any SQLite or PostgreSQL takes.
LOOKED_UP_AT_ONCE = 500

_WRITING = ("synchronous = FULL", "secure_delete = OFF", "cache_size = -32768")  # in KiB
_READING = ("query_only = ON",)

# Threads queue for the writing connection here, where they are woken, and not at the file, where they poll.
_ONE = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": BUSY_SECONDS}
_SEVERAL = {"poolclass": QueuePool, "pool_size": 4, "max_overflow": 60, "pool_timeout": BUSY_SECONDS}


class PartyDatabase:
    """Transactions of one party on one place."""

    def __init__(self, where: str | Path, kind: StoreKind, page_bytes: int) -> None:
        place = locate(where, kind)
        self.kind, self._page_bytes, self._process = kind, page_bytes, os.getpid()
        self.path = place.resolve() if isinstance(place, Path) else None
        self._is_torn = sqlite_is_torn if self.path else postgres_is_torn
        if self.path:
            self.name = str(place)
            pragmas = (*_WRITING, f"wal_autocheckpoint = {CHECKPOINT_BYTES // page_bytes}")
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
        with self._begun(self._writer) as connection:
            if self.path is None:
                # The lock comes first: READ COMMITTED, so that what follows sees what the last holder did.
                lock_exclusively(connection, self.kind)
            yield connection

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment and changes nothing."""
        return self._begun(self._readers)

    def table_names(self) -> set[str]:
        """The tables that are there, looked up without changing anything; a file that is not there has none."""
        if self.path is not None and not self.path.exists():
            return set()
        engine = self._plain_engine() if self.path else self._readers
        with self._begun(engine) as connection:
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
        with self._begun(self._plain_engine(), transaction=False) as connection:
            connection.exec_driver_sql(f"PRAGMA page_size = {self._page_bytes}")
            mode = _switch_to_wal(connection)
        if mode != "wal":
            raise self._trouble("its file system does not let SQLite write ahead; use a local disk")

    @contextmanager
    def _begun(self, engine: Engine, *, transaction: bool = True) -> Iterator[Connection]:
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
    """Insert rows of short values, but none that conflicts with an earlier one; returns how many went in.

    By the driver itself, in half the time of SQLAlchemy's way.
    """
    if connection.dialect.name == "sqlite":
        statement = f"INSERT INTO {table.name} VALUES ({_marks(table)}) ON CONFLICT DO NOTHING"
        return connection.exec_driver_sql(statement, list(rows)).rowcount
    # One statement with an array per column (%b: in binary): for PostgreSQL, a statement costs more than a row.
    arrays = ", ".join(f"%b::{kind}[]" for kind in _types(connection, table))
    statement = f"INSERT INTO {table.name} SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"
    columns = tuple(list(column) for column in zip(*rows, strict=True))
    return connection.exec_driver_sql(statement, columns).rowcount


def append_many(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows of long values, none of which may be there already."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"INSERT INTO {table.name} VALUES ({_marks(table)})", list(rows))
        return
    driver: Any = connection.connection.dbapi_connection
    statement = f"COPY {table.name} FROM STDIN (FORMAT BINARY)"
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
