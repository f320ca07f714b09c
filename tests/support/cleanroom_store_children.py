"""What other processes do to a room's store in tests: die in the middle of a release, or compete for one."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from sqlalchemy import event

from tacit.cleanroom.room.party import Room
from tacit.errors import RoomRefused
from tacit.store.ledger import LedgerStore
from tacit.store.room import SqlRoomStore
from tests.support.cleanroom_rooms import NOW, PLATFORM, a_room, honest_step, noised_terms

AGREED = noised_terms(noise="laplace", delta=0)  # whose noise needs no calibration
LEDGER_MOMENTS = ("before the ledger reserves", "before the ledger swaps", "after the ledger swapped")
COMMIT_MOMENTS = ("before the commit", "after the commit")
WRITES = 8
"""Statements of a first release that write; a test sees to it that these are all."""


def durable_room(folder: Path) -> Room:
    store = SqlRoomStore.open(folder / "room.sqlite")
    return a_room(AGREED, store=store, ledger=LedgerStore.open(folder / "ledger.sqlite"))


def release(room: Room, **changes: Any) -> Any:
    return room.step(*honest_step(AGREED, **changes), peer=PLATFORM, now=NOW)


def die(*_: Any, **__: Any) -> None:
    os._exit(9)


def dying(folder: str, moment: str) -> None:
    """Make a release and die at this moment; with a number, right before the store's write of that number."""
    room = durable_room(Path(folder))
    store: Any = room._store
    ledger: Any = room._ledger
    if moment == "before the ledger reserves":
        ledger.reserve = die
    elif moment == "before the ledger swaps":
        ledger.claim = die
    elif moment == "after the ledger swapped":
        claim = ledger.claim
        ledger.claim = lambda *given, after: die(claim(*given, after=after))
    elif moment == "before the commit":
        # The first transaction only looks whether the labels are known.
        _count_down(store._database._writer, "commit", 2, lambda *_: True)
    elif moment.isdigit():
        _count_down(store._database._writer, "before_cursor_execute", int(moment), _writes)
    answer = release(room)
    if moment == "after the commit":
        die()
    (Path(folder) / "answer").write_bytes(answer.sum.tobytes())


def _writes(_connection: Any, _cursor: Any, statement: str, *_: Any) -> bool:
    return not statement.startswith(("SELECT", "BEGIN"))


def _count_down(engine: Any, what: str, calls: int, counts: Callable[..., bool]) -> None:
    left = calls

    def heard(*given: Any) -> None:
        nonlocal left
        left -= counts(*given)
        if left == 0:
            die()

    event.listen(engine, what, heard)


def rival(folder: str, number: int, start: Barrier, results: Queue[Any]) -> None:
    """Ask for a release of the same records under another number, at the same moment as others."""
    try:
        room = durable_room(Path(folder))
        start.wait(60)
        release(room, number=number)
        results.put("answered")
    except RoomRefused as refusal:
        results.put(str(refusal.reason))
    except Exception as problem:
        results.put(f"{type(problem).__name__}: {problem}")
