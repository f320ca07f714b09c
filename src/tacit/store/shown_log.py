"""What a device showed, what was clicked and what led to a conversion, in one SQLite file: a `ShownLog` that
outlives its process.

    log = SqlShownLog.open("shown.sqlite")

What a stolen copy reveals: where its person was when each of its ads was shown, what they clicked, and after
which ads they bought something, say. The file is its owner's alone, never leaves the device, and what is
deleted in it is overwritten (`device_file`). A file of version 1 has no conversions, and gets the tables of
version 2 when it is opened.
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
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from tacit import expect
from tacit.deliver.device.shown_log import MOST_EVENTS, RoundFamily, ShownEvent
from tacit.display import brief
from tacit.errors import BillError
from tacit.store.database import StoreKind
from tacit.store.device_file import DeviceFile

KIND = StoreKind("device log", 0x7AC20, BillError, BillError)
VERSION = 2

_METADATA = MetaData()
_SHOWN = Table("device_shown", _METADATA,
               Column("number", Integer, primary_key=True),  # in the order in which they came
               Column("nonce", LargeBinary, nullable=False, unique=True),
               Column("context", Text, nullable=False),  # JSON
               Column("campaign", BigInteger, nullable=False),
               Column("second", BigInteger, nullable=False),
               Column("clicked", Boolean, nullable=False))  # fmt: skip
_CONVERTED = Table("device_converted", _METADATA,
                   Column("nonce", LargeBinary, primary_key=True))  # of what led to one  # fmt: skip
_COUNTED = Table("device_counted", _METADATA,
                 Column("nonce", LargeBinary, primary_key=True),
                 Column("family", Text, primary_key=True))  # of the round that counted it  # fmt: skip
_OF_EVENTS = (_SHOWN, _CONVERTED, _COUNTED)


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
            if not connection.execute(insert(_SHOWN).values(**row).on_conflict_do_nothing()).rowcount:
                return
            if event.converted:
                connection.execute(insert(_CONVERTED).values(nonce=event.nonce))
            for family in event.counted:
                connection.execute(insert(_COUNTED).values(nonce=event.nonce, family=str(family)))
            count = connection.execute(select(func.count()).select_from(_SHOWN)).scalar_one()
            if count > MOST_EVENTS:
                oldest = select(_SHOWN.c.nonce).order_by(_SHOWN.c.number).limit(count - MOST_EVENTS)
                _delete(connection, [bytes(nonce) for nonce in connection.execute(oldest).scalars()])

    def note_click(self, nonce: bytes) -> bool:
        with self._file.transaction() as connection:
            done = connection.execute(update(_SHOWN).where(_SHOWN.c.nonce == nonce).values(clicked=True))
            return bool(done.rowcount)

    def note_conversion(self, campaign: int, first: int, last: int) -> bool:
        latest = (
            select(_SHOWN.c.nonce)
            .where(_SHOWN.c.campaign == campaign, _SHOWN.c.second.between(first, last))
            .order_by(_SHOWN.c.second.desc(), _SHOWN.c.number.desc())
            .limit(1)
        )
        with self._file.transaction() as connection:
            nonce = connection.execute(latest).scalar()
            if nonce is not None:
                connection.execute(insert(_CONVERTED).values(nonce=nonce).on_conflict_do_nothing())
            return nonce is not None

    def mark_counted(self, events: Sequence[ShownEvent], family: RoundFamily) -> None:
        with self._file.transaction() as connection:
            for event in events:
                known = select(_SHOWN.c.nonce, literal(str(family))).where(_SHOWN.c.nonce == event.nonce)
                marked = insert(_COUNTED).from_select(["nonce", "family"], known)
                connection.execute(marked.prefix_with("OR IGNORE"))

    def drop_conversions(self) -> None:
        with self._file.transaction() as connection:
            connection.execute(delete(_CONVERTED))

    def events(self) -> Sequence[ShownEvent]:
        with self._file.transaction() as connection:
            rows = connection.execute(select(_SHOWN).order_by(_SHOWN.c.number)).all()
            converted = {bytes(nonce) for nonce in connection.execute(select(_CONVERTED.c.nonce)).scalars()}
            counted: dict[bytes, set[RoundFamily]] = {}
            for row in connection.execute(select(_COUNTED)):
                counted.setdefault(bytes(row.nonce), set()).add(RoundFamily(row.family))
        return [
            ShownEvent(
                bytes(row.nonce), _tuples(json.loads(row.context)), row.campaign, row.second, bool(row.clicked),
                bytes(row.nonce) in converted, frozenset(counted.get(bytes(row.nonce), ())),
            )
            for row in rows
        ]  # fmt: skip

    def forget(self, events: Sequence[ShownEvent]) -> None:
        with self._file.transaction() as connection:
            _delete(connection, [event.nonce for event in events])


def _delete(connection: Connection, nonces: Sequence[bytes]) -> None:
    """Impressions, and all that is kept of each."""
    for nonce in nonces:
        for table in _OF_EVENTS:
            connection.execute(delete(table).where(table.c.nonce == nonce))


def _tuples(value: Any) -> Any:
    """As it was before JSON, which knows lists alone."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
