"""Where a ledger lives: a SQLite file or a PostgreSQL database, and the one kind of transaction it is used in.

A transaction holds the ledger alone until it ends: entries form one chain, so there is nothing to gain from two
writers at once. SQLite: BEGIN IMMEDIATE, a rollback journal and synchronous=EXTRA, so that a commit that was
acknowledged survives a power cut. PostgreSQL: an advisory lock that is held to the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from tacit.errors import BadInput, LedgerCorrupt, LedgerError

BUSY_SECONDS = 60

# Any fixed number will do; it names the ledger's lock within a PostgreSQL database.
LOCK_NUMBER = 0x7AC17

# What SQLite says when the trouble is around the file. Anything else is about what stands in it.
_AROUND = ("BUSY", "LOCKED", "CANTOPEN", "READONLY", "FULL", "IOERR", "PERM", "AUTH", "NOMEM", "INTERRUPT")


class SqliteFile:
    """A ledger in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # the working directory may change, and a symlink has one witness only
        self.name = str(path)
        self._engine = _sqlite_engine(self.path)

    def exists(self) -> bool:
        return self.path.exists()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with _translated(self.name, _sqlite_is_torn), self._engine.begin() as connection:
            yield connection

    def check_pages(self, connection: Connection) -> None:
        """Read every page: a torn file may look well as long as nobody looks at the torn part."""
        found = connection.execute(text("PRAGMA quick_check(1)")).scalar()
        if found != "ok":
            raise LedgerCorrupt(f"the ledger file {self.name} is damaged: {found}")


class PostgresDatabase:
    """A ledger in tables of its own in a PostgreSQL database, which checks its own pages."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url).set(drivername="postgresql+psycopg")
        self.name = parsed.render_as_string(hide_password=True)
        connect = {"connect_timeout": BUSY_SECONDS}
        self._engine = create_engine(parsed, poolclass=NullPool, connect_args=connect)

    def exists(self) -> bool:
        return True

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with _translated(self.name, _postgres_is_torn), self._engine.begin() as connection:
            connection.execute(text(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'"))
            # Somebody may have traded durability for speed in this database; a ledger must not.
            connection.execute(text("SET LOCAL synchronous_commit = on"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
            yield connection

    def check_pages(self, _connection: Connection) -> None:
        return None


Database = SqliteFile | PostgresDatabase


def database_at(where: str | Path) -> Database:
    """The database that a path or a URL names."""
    spelled = str(where)
    if not spelled.strip():
        raise BadInput("expected the path or URL of a ledger, got an empty string")
    if "://" not in spelled:
        return SqliteFile(Path(spelled))
    try:
        url = make_url(spelled)
    except (ArgumentError, ValueError):
        raise BadInput("expected a path, sqlite:///PATH or postgresql+psycopg://..., got another URL") from None
    if url.drivername in ("sqlite", "sqlite+pysqlite") and url.database and url.database != ":memory:":
        return SqliteFile(Path(url.database))
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return PostgresDatabase(spelled)
    raise BadInput(f"expected a path, sqlite:///PATH or postgresql+psycopg://..., got {url.drivername}://...")


def _sqlite_engine(path: Path) -> Engine:
    # isolation_level None: the driver must not begin transactions of its own kind.
    connect = {"timeout": BUSY_SECONDS, "isolation_level": None}
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool, connect_args=connect)

    def prepare(connection: Any, _record: Any) -> None:
        # EXTRA also syncs the folder after the journal is removed; with FULL, a power cut right after a commit
        # could bring the journal back and undo it.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA foreign_keys = ON")

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def _sqlite_is_torn(problem: DBAPIError) -> bool:
    return not getattr(problem.orig, "sqlite_errorname", "").removeprefix("SQLITE_").startswith(_AROUND)


def _postgres_is_torn(problem: DBAPIError) -> bool:
    return not isinstance(problem, OperationalError)


@contextmanager
def _translated(name: str, is_torn: Callable[[DBAPIError], bool]) -> Iterator[None]:
    """Turn what the driver says into the ledger's own errors."""
    try:
        yield
    except DBAPIError as problem:
        reason = str(problem.orig).strip().splitlines()[0] if problem.orig else str(problem)
        if isinstance(problem, IntegrityError):
            # The second wall held: what the rules allowed goes against what is stored.
            raise LedgerCorrupt(f"the ledger at {name} refused to store a decision: {reason}") from problem
        if is_torn(problem):
            raise LedgerCorrupt(f"the ledger at {name} is torn or not a ledger at all: {reason}") from problem
        raise LedgerError(f"the ledger at {name} could not be used: {reason}") from problem
    except (UnicodeDecodeError, SQLAlchemyError) as problem:
        # Names and values that no ledger ever held, down to error messages that quote them.
        raise LedgerCorrupt(f"the ledger at {name} is torn: its tables cannot be read") from problem
