"""Where a ledger lives: a SQLite file or a PostgreSQL database, and the one kind of transaction it is used in.

A transaction holds the ledger alone until it ends: entries form one chain, so there is nothing to gain from two
writers at once. SQLite: BEGIN IMMEDIATE, a rollback journal and synchronous=EXTRA, so that a commit that was
acknowledged survives a power cut. PostgreSQL: an advisory lock that is held to the end of the transaction.

A new ledger file is its owner's alone. One that is there keeps its mode: what was spent is no secret, and
somebody may have given others the right to look.

What other stores need too is public here: finding a place, engines, the lock, and errors in their own words.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from tacit import expect, files
from tacit.errors import BadInput, LedgerCorrupt, LedgerError, TacitError

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

    def check_pages(self, connection: Connection) -> None:
        """Read every page: a torn file may look well as long as nobody looks at the torn part."""
        found = connection.execute(text("PRAGMA quick_check(1)")).scalar()
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

    def check_pages(self, _connection: Connection) -> None:
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
