"""What a device showed and what was clicked: kept until it was counted, or is no longer wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.deliver.device import shown_log
from tacit.deliver.device.shown_log import MemoryShownLog, ShownEvent, ShownLog
from tacit.errors import BadInput, BillError
from tacit.store import SqlShownLog
from tacit.store import shown_log as stored_log

Opened = Callable[[], ShownLog]


@pytest.fixture(params=["memory", "disk"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """The same log, whenever it is asked for."""
    if request.param == "disk":
        return lambda: SqlShownLog.open(tmp_path / "shown.sqlite")
    kept = MemoryShownLog()
    return lambda: kept


def event(number: int, clicked: bool = False) -> ShownEvent:
    return ShownEvent(
        bytes([number]), ("Northport", (1.5, 2), "Coffee"), number, 1_800_000_000 + number, clicked
    )


def test_events_come_back_as_they_were_noted(opened: Opened) -> None:
    log = opened()
    for number in (3, 1, 2):
        log.note_shown(event(number))
    log.note_shown(event(3, clicked=True))  # noted before: nothing changes
    assert opened().events() == [event(3), event(1), event(2)]
    assert log.note_click(bytes([1]))
    assert not log.note_click(bytes([9]))
    assert opened().events() == [event(3), event(1, clicked=True), event(2)]
    log.forget([event(3), event(9)])
    assert opened().events() == [event(1, clicked=True), event(2)]


def test_the_oldest_goes_where_there_are_too_many(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (shown_log, stored_log):
        monkeypatch.setattr(module, "MOST_EVENTS", 3)
    log = opened()
    for number in range(1, 6):
        log.note_shown(event(number))
    assert log.events() == [event(3), event(4), event(5)]


def test_what_is_no_event_is_refused() -> None:
    for wrong in ({"context": ["Northport"]}, {"context": ()}, {"campaign": -1}, {"clicked": 1}):
        with pytest.raises(BadInput):
            ShownEvent(**{"nonce": b"1", "context": ("a",), "campaign": 1, "second": 1, **wrong})  # type: ignore[arg-type]
    assert "Northport" not in repr(event(1))  # where its person was


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(BillError):
        SqlShownLog.open(tmp_path / "other")
