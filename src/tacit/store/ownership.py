"""Which of several processes on one PostgreSQL database does the work that must not be done twice.

    owner = OwnerLock(["postgresql+psycopg://..."])
    owner.hold()      # take it, or make sure that it is still ours; asked every second
    owner.release()

The owner has a session that holds an advisory lock in each database of its party. PostgreSQL lets go of it when
that session ends: at once where the process ends or is killed, and after some ten seconds where its machine is
cut off, since both ends look after a silent connection. The next process that asks has it then.

What it is for: opening epochs, learning, deleting what is old, driving rounds and batches. It saves doing these
twice, and no more: a process that was cut off may go on for some seconds beside the next owner, so each step of
such work is a transaction that is right whoever does it, and however often.

A SQLite file is served by one process alone (`files.hold_lock`), so there the process that runs is the owner. A
pool between us and PostgreSQL that hands out sessions by transaction cannot hold such a lock: go past it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from tacit import expect
from tacit.display import brief
from tacit.store.database import (
    BUSY_SECONDS,
    PartyDatabase,
    StoreKind,
    locate,
    postgres_engine,
    postgres_is_torn,
    translate_errors,
)

OWNER_LOCK = 0x7AC1F, 1  # of two numbers: in a space of their own, beside the locks of transactions
TURN_LOCK = 0x7AC1F, 2
SILENT_SECONDS, ASK_SECONDS, MOST_ASKED = 5, 2, 3

_OURS = {  # how we notice a database that is gone
    "keepalives_idle": str(SILENT_SECONDS),
    "keepalives_interval": str(ASK_SECONDS),
    "keepalives_count": str(MOST_ASKED),
    "tcp_user_timeout": str(1000 * (SILENT_SECONDS + ASK_SECONDS * MOST_ASKED)),
}
_THEIRS = (  # how the database notices that we are
    f"-c tcp_keepalives_idle={SILENT_SECONDS} -c tcp_keepalives_interval={ASK_SECONDS} "
    f"-c tcp_keepalives_count={MOST_ASKED}"
)


class OwnerLock:
    """Held by one process at a time among those with the same databases; by everybody where there are none."""

    def __init__(self, places: Sequence[str], kind: StoreKind) -> None:
        """Paths and URLs of a party's stores; those in files count for nothing."""
        found = {str(place) for each in places if not isinstance(place := locate(each, kind), Path)}
        # In one order, so that no two processes hold half of it each.
        self._engines = [_session_engine(url) for url in sorted(found)]
        self._places = sorted(map(expect.without_passwords, found))
        self._held: list[Connection] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return brief(self, at=", ".join(self._places) or "files", held=self.is_held)

    @property
    def is_shared(self) -> bool:
        """Whether another process could hold it."""
        return bool(self._engines)

    @property
    def is_held(self) -> bool:
        """As `hold` last found it."""
        return len(self._held) == len(self._engines)

    def hold(self) -> bool:
        """Take the lock if nobody has it; whether it is ours. No where a database does not answer."""
        with self._lock:
            try:
                if self._held:
                    for connection in self._held:
                        connection.execute(text("SELECT 1"))  # a session that has ended holds nothing
                    return True
                return self._take()
            except SQLAlchemyError:
                self._let_go()
                return False

    def _take(self) -> bool:
        number, part = OWNER_LOCK
        for engine in self._engines:
            connection = engine.connect()
            self._held.append(connection)
            asked = text("SELECT pg_try_advisory_lock(:number, :part)")
            if not connection.execute(asked, {"number": number, "part": part}).scalar():
                self._let_go()
                return False
        return True

    def release(self) -> None:
        """Let another process have it, now."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for connection in held:
            with suppress(SQLAlchemyError):
                connection.close()  # its session ends with it


class TurnLock:
    """Taken for a piece of work of several transactions, such as opening an epoch: one process at a time is at
    it, the owner or not, and others wait. For a SQLite file it is nothing: there is one process."""

    def __init__(self, database: PartyDatabase) -> None:
        self._database = database
        self._engine = None if database.url is None else _session_engine(database.url)
        self._session: Connection | None = None  # kept, since the owner takes a turn every moment
        self._lock = threading.Lock()

    @contextmanager
    def take(self) -> Iterator[None]:
        if self._engine is None:
            yield
            return
        with self._lock:
            with translate_errors(self._database.name, self._database.kind, postgres_is_torn):
                self._begin(self._engine)
            try:
                yield
            finally:
                self._end()

    def _begin(self, engine: Engine) -> None:
        number, part = TURN_LOCK
        try:
            if self._session is None:
                self._session = engine.connect()
                self._session.execute(text(f"SET lock_timeout = '{BUSY_SECONDS}s'"))
            asked = text("SELECT pg_advisory_lock(:number, :part)")
            self._session.execute(asked, {"number": number, "part": part})
        except SQLAlchemyError:
            self.close()
            raise

    def _end(self) -> None:
        """A session that cannot let go of it is ended, which does."""
        number, part = TURN_LOCK
        try:
            assert self._session is not None, "it was begun"
            asked = text("SELECT pg_advisory_unlock(:number, :part)")
            self._session.execute(asked, {"number": number, "part": part})
        except SQLAlchemyError:
            self.close()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(SQLAlchemyError):
                session.close()


def _session_engine(url: str) -> Engine:
    given = make_url(url)
    options = f"{given.query.get('options', '')} {_THEIRS}".strip()
    spelled = given.update_query_dict({**_OURS, "options": options})
    return postgres_engine(
        spelled.render_as_string(hide_password=False), poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )
