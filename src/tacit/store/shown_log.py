"""What a device showed and what was clicked, in one SQLite file: a `ShownLog` that outlives its process.

    log = SqlShownLog.open("shown.sqlite")

What a stolen copy reveals: where its person was when each of its ads was shown, and what they clicked. The file
is its owner's alone, never leaves the device, and what is deleted in it is overwritten (`device_file`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from tacit import expect
from tacit.deliver.device.shown_log import MOST_EVENTS, ShownEvent
from tacit.display import brief
from tacit.errors import BillError
from tacit.store.database import StoreKind
from tacit.store.device_file import DeviceFile

KIND = StoreKind("device log", 0x7AC20, BillError, BillError)
VERSION = 1

_METADATA = MetaData()
_SHOWN = Table("device_shown", _METADATA,
               Column("number", Integer, primary_key=True),  # in the order in which they came
               Column("nonce", LargeBinary, nullable=False, unique=True),
               Column("context", Text, nullable=False),  # JSON
               Column("campaign", BigInteger, nullable=False),
               Column("second", BigInteger, nullable=False),
               Column("clicked", Boolean, nullable=False))  # fmt: skip


class SqlShownLog:
    """A `ShownLog` on disk. Any thread may call, and any process that opened the file."""

    def __init__(self, file: DeviceFile) -> None:
        expect.kind("file", file, DeviceFile)
        self._file = file

    def __repr__(self) -> str:
        return brief(self, path=self._file.name)

    @classmethod
    def open(cls, where: str | Path) -> SqlShownLog:
        """The log in this file; a new one where there is nothing."""
        return cls(DeviceFile(where, KIND, _METADATA, VERSION))

    def note_shown(self, event: ShownEvent) -> None:
        expect.kind("event", event, ShownEvent)
        row = {
            "nonce": event.nonce,
            "context": json.dumps(event.context, separators=(",", ":")),
            "campaign": event.campaign,
            "second": event.second,
            "clicked": event.clicked,
        }
        with self._file.transaction() as connection:
            connection.execute(insert(_SHOWN).values(**row).on_conflict_do_nothing())
            count = connection.execute(select(func.count()).select_from(_SHOWN)).scalar_one()
            if count > MOST_EVENTS:
                oldest = select(_SHOWN.c.number).order_by(_SHOWN.c.number).limit(count - MOST_EVENTS)
                connection.execute(delete(_SHOWN).where(_SHOWN.c.number.in_(oldest)))

    def note_click(self, nonce: bytes) -> bool:
        with self._file.transaction() as connection:
            done = connection.execute(update(_SHOWN).where(_SHOWN.c.nonce == nonce).values(clicked=True))
            return bool(done.rowcount)

    def events(self) -> Sequence[ShownEvent]:
        with self._file.transaction() as connection:
            rows = connection.execute(select(_SHOWN).order_by(_SHOWN.c.number)).all()
        return [
            ShownEvent(
                bytes(row.nonce), _tuples(json.loads(row.context)), row.campaign, row.second, bool(row.clicked)
            )
            for row in rows
        ]

    def forget(self, events: Sequence[ShownEvent]) -> None:
        with self._file.transaction() as connection:
            for event in events:
                connection.execute(delete(_SHOWN).where(_SHOWN.c.nonce == event.nonce))


def _tuples(value: Any) -> Any:
    """As it was before JSON, which knows lists alone."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
