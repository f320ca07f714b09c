"""What a device must not forget, in one SQLite file: the events it chose for each run, and what it uploaded.

    memory = SqlDeviceStore.open("device.sqlite")
    chosen = Contributions.once(task, events, most, entropy, memory)
    Reporter(device, key, entropy, outbox=memory, ...)

What a stolen copy reveals: everything. The chosen events are in the clear, as on the device they came from; the
file is its owner's alone and never leaves the device. An old copy must not be put back while a run goes on: the
device would choose anew.

Forgotten events and uploads are overwritten in the file. The names of their runs and rounds stay, so that
nothing is chosen or made a second time. The file system may keep older blocks, and SQLite's journal of the last
change is deleted without being overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Column, Connection, LargeBinary, MetaData, NullPool, Table, Text, inspect, select
from sqlalchemy.dialects.sqlite import insert

from tacit import expect
from tacit.display import brief
from tacit.errors import BadInput, GatherError
from tacit.gather.client.reporter import FORGOTTEN_RUN, FORGOTTEN_UPLOAD
from tacit.store.database import (
    locate,
    make_private_file,
    party_kind,
    refuse_shared_file,
    sqlite_engine,
    sqlite_is_torn,
    translate_errors,
)

KIND = party_kind("device", 0x7AC1A)
VERSION = 1

# EXTRA, as for the ledger: a choice that was undone by a power cut after it was used would be made once more.
_PRAGMAS = ("synchronous = EXTRA", "secure_delete = ON")

_METADATA = MetaData()
_CHOSEN = Table("gather_device_chosen", _METADATA,
                Column("name", Text, primary_key=True),  # of the run
                Column("kept", LargeBinary))  # NULL: forgotten  # fmt: skip
_UPLOADS = Table("gather_device_uploads", _METADATA,
                 Column("name", LargeBinary, primary_key=True),  # the round's digest
                 Column("kept", LargeBinary))  # NULL: forgotten  # fmt: skip
_FORGOTTEN = {_CHOSEN: FORGOTTEN_RUN, _UPLOADS: FORGOTTEN_UPLOAD}


class SqlDeviceStore:
    """`ChosenEvents` and `Outbox` that last: on disk when a call returns, and the first one wins for ever.

    Any thread and any number of processes may share the file.
    """

    def __init__(self, path: Path) -> None:
        path = expect.path("path", path)
        self._path, self._name = path.resolve(), str(path)
        self._engine = sqlite_engine(self._path, _PRAGMAS, begin="BEGIN IMMEDIATE", poolclass=NullPool)

    def __repr__(self) -> str:
        return brief(self, path=self._name)

    @classmethod
    def open(cls, where: str | Path) -> SqlDeviceStore:
        """The memory in this file; a new one where there is nothing."""
        path = locate(where, KIND)
        if not isinstance(path, Path):
            raise BadInput("expected the path of a device store, got the URL of a server")
        memory = cls(path)
        memory._make_ready()
        return memory

    def keep_chosen(self, task: str, events: bytes) -> bytes:
        return self._keep(_CHOSEN, task, events)

    def find_chosen(self, task: str) -> bytes | None:
        return self._find(_CHOSEN, task)

    def keep(self, digest: bytes, upload: bytes) -> bytes:
        return self._keep(_UPLOADS, digest, upload)

    def find(self, digest: bytes) -> bytes | None:
        return self._find(_UPLOADS, digest)

    def forget(self, task: str, digests: Iterable[bytes] = ()) -> None:
        """Drop the events of a run that is over and the uploads of these rounds; never to be made again."""
        with self._transaction() as connection:
            for table, name in [(_CHOSEN, task), *((_UPLOADS, digest) for digest in digests)]:
                row = insert(table).values(name=name, kept=None)
                connection.execute(row.on_conflict_do_update(index_elements=["name"], set_={"kept": None}))

    def _keep(self, table: Table, name: str | bytes, content: bytes) -> bytes:
        with self._transaction() as connection:
            connection.execute(insert(table).values(name=name, kept=content).on_conflict_do_nothing())
            kept = _find_kept(connection, table, name)
        assert kept is not None, "it was there or has just been inserted"
        return kept

    def _find(self, table: Table, name: str | bytes) -> bytes | None:
        with self._transaction() as connection:
            return _find_kept(connection, table, name)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if not self._path.exists():
            # SQLite would begin an empty one.
            raise GatherError(f"the device store at {self._name} could not be used: it was removed")
        with translate_errors(self._name, KIND, sqlite_is_torn), self._engine.begin() as connection:
            yield connection

    def _make_ready(self) -> None:
        refuse_shared_file(self._path, self._name, KIND)
        try:
            make_private_file(self._path)
        except OSError as problem:
            reason = problem.strerror or "no file can be made there"
            raise GatherError(f"the device store at {self._name} could not be used: {reason}") from problem
        with self._transaction() as connection:
            found = connection.exec_driver_sql("PRAGMA user_version").scalar()
            present = set(inspect(connection).get_table_names())
            if not present and found == 0:
                _METADATA.create_all(connection, checkfirst=False)
                connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
            elif present != set(_METADATA.tables):
                tables = ", ".join(sorted(present)[:5])
                raise GatherError(f"expected a device store or nothing at {self._name}, got tables {tables}")
            elif found != VERSION:
                raise GatherError(
                    f"expected a device store of version {VERSION} at {self._name}, got version {found}"
                )


def _find_kept(connection: Connection, table: Table, name: str | bytes) -> bytes | None:
    """What is kept under this name, None where nothing ever was; refused where it was forgotten."""
    row = connection.execute(select(table.c.kept).where(table.c.name == name)).first()
    if row is None:
        return None
    if row.kept is None:
        raise GatherError(_FORGOTTEN[table])
    return bytes(row.kept)
