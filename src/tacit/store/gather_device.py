"""What a device must not forget, in one SQLite file: the events it chose for each run, and what it uploaded.

    memory = SqlDeviceStore.open("device.sqlite")
    chosen = Contributions.once(task, events, most, entropy, memory)
    Reporter(device, key, entropy, outbox=memory, ...)

What a stolen copy reveals: everything. The chosen events are in the clear, as on the device they came from; the
file is its owner's alone and never leaves the device. An old copy must not be put back while a run goes on: the
device would choose anew.

Forgotten events and uploads are overwritten in the file (`device_file`). The names of their runs and rounds
stay, so that nothing is chosen or made a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, Text, select, update
from sqlalchemy.dialects.sqlite import insert

from tacit import expect
from tacit.display import brief
from tacit.errors import GatherError
from tacit.gather.client.reporter import FORGOTTEN_RUN, FORGOTTEN_UPLOAD
from tacit.store.database import party_kind
from tacit.store.device_file import DeviceFile

KIND = party_kind("device", 0x7AC1A)
VERSION = 1

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

    def __init__(self, file: DeviceFile) -> None:
        expect.kind("file", file, DeviceFile)
        self._file, self._transaction = file, file.transaction

    def __repr__(self) -> str:
        return brief(self, path=self._file.name)

    @classmethod
    def open(cls, where: str | Path) -> SqlDeviceStore:
        """The memory in this file; a new one where there is nothing."""
        return cls(DeviceFile(where, KIND, _METADATA, VERSION))

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

    def erase(self) -> None:
        """The same of every run and round."""
        with self._transaction() as connection:
            for table in (_CHOSEN, _UPLOADS):
                connection.execute(update(table).values(kept=None))

    def _keep(self, table: Table, name: str | bytes, content: bytes) -> bytes:
        with self._transaction() as connection:
            connection.execute(insert(table).values(name=name, kept=content).on_conflict_do_nothing())
            kept = _find_kept(connection, table, name)
        assert kept is not None, "it was there or has just been inserted"
        return kept

    def _find(self, table: Table, name: str | bytes) -> bytes | None:
        with self._transaction() as connection:
            return _find_kept(connection, table, name)


def _find_kept(connection: Connection, table: Table, name: str | bytes) -> bytes | None:
    """What is kept under this name, None where nothing ever was; refused where it was forgotten."""
    row = connection.execute(select(table.c.kept).where(table.c.name == name)).first()
    if row is None:
        return None
    if row.kept is None:
        raise GatherError(_FORGOTTEN[table])
    return bytes(row.kept)
