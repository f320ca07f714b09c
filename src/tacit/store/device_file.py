"""A SQLite file of a device: for its owner alone, made where there is none, and refused where it is another's.

What is deleted in it is overwritten. The file system may keep older blocks, and SQLite's journal of the last
change is deleted without being overwritten.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, QueuePool, inspect

from tacit import expect
from tacit.display import brief
from tacit.errors import BadInput, TacitError
from tacit.store.database import (
    BUSY_SECONDS,
    StoreKind,
    locate,
    make_private_file,
    refuse_shared_file,
    sqlite_engine,
    sqlite_is_torn,
    translate_errors,
)

# EXTRA, as for the ledger: what was undone by a power cut after it was acted on would be drawn once more.
_PRAGMAS = ("synchronous = EXTRA", "secure_delete = ON")


class DeviceFile:
    """Transactions on one file, each alone in it; any thread may begin one, and any process that opened it."""

    def __init__(self, where: str | Path, kind: StoreKind, metadata: MetaData, version: int) -> None:
        path = locate(where, kind)
        if not isinstance(path, Path):
            raise BadInput(f"expected the path of a {kind.noun}, got the URL of a server")
        path = expect.path("path", path)
        self._path, self.name, self._process = path.resolve(), str(path), os.getpid()
        self._kind = kind
        self._engine = sqlite_engine(
            self._path, _PRAGMAS, begin="BEGIN IMMEDIATE",
            poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=BUSY_SECONDS,
        )  # fmt: skip
        self.close = weakref.finalize(self, _dispose, self._process, self._engine)
        self._make_ready(metadata, version)

    def __repr__(self) -> str:
        return brief(self, path=self.name)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """On disk when it ends well, undone when it does not."""
        if os.getpid() != self._process:
            # A connection that two processes share after a fork tears a SQLite file.
            raise self._trouble("it was opened in another process; open it again in this one")
        if not self._path.exists():
            raise self._trouble("it was removed")  # SQLite would go on with a file that nobody finds again
        with translate_errors(self.name, self._kind, sqlite_is_torn), self._engine.begin() as connection:
            yield connection

    def _make_ready(self, metadata: MetaData, version: int) -> None:
        noun = self._kind.noun
        refuse_shared_file(self._path, self.name, self._kind)
        try:
            make_private_file(self._path)
        except OSError as problem:
            raise self._trouble(problem.strerror or "no file can be made there") from problem
        with self.transaction() as connection:
            found = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
            present = set(inspect(connection).get_table_names())
            if not present and found == 0:
                metadata.create_all(connection, checkfirst=False)
                connection.exec_driver_sql(f"PRAGMA user_version = {version}")
            elif 0 < found < version and present < set(metadata.tables):
                metadata.create_all(connection, checkfirst=True)  # later versions only have more tables
                connection.exec_driver_sql(f"PRAGMA user_version = {version}")
            elif present != set(metadata.tables):
                tables = ", ".join(sorted(present)[:5])
                raise self._kind.trouble(f"expected a {noun} or nothing at {self.name}, got tables {tables}")
            elif found != version:
                raise self._kind.trouble(
                    f"expected a {noun} of version {version} at {self.name}, got version {found}"
                )

    def _trouble(self, reason: str) -> TacitError:
        return self._kind.trouble(f"the {self._kind.noun} at {self.name} could not be used: {reason}")


def _dispose(process: int, engine: Engine) -> None:
    engine.dispose(close=os.getpid() == process)  # a fork must not close what it does not own
