"""What a device showed and what was clicked: kept until it was counted, or is no longer wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import MetaData, insert

from tacit.deliver.device import shown_log
from tacit.deliver.device.shown_log import (
    MemoryShownLog,
    RoundFamily,
    ShownEvent,
    ShownLog,
    forget_done,
)
from tacit.errors import BadInput, BillError
from tacit.store import SqlShownLog
from tacit.store import shown_log as stored_log
from tacit.store.device_file import DeviceFile

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


def shown(number: int, campaign: int, second: int) -> ShownEvent:
    return ShownEvent(bytes([number]), ("Northport",), campaign, second)


def converted(log: ShownLog) -> list[int]:
    return [each.nonce[0] for each in log.events() if each.converted]


def test_a_conversion_is_that_of_the_latest_impression_within_the_look_back(opened: Opened) -> None:
    log = opened()
    for each in (shown(1, 7, 100), shown(2, 7, 300), shown(3, 7, 200), shown(4, 8, 400), shown(5, 7, 300)):
        log.note_shown(each)
    assert not log.note_conversion(9, 0, 1_000)  # never shown here
    assert not log.note_conversion(7, 301, 1_000)  # shown before the look-back
    assert not log.note_conversion(7, 0, 99)  # and after the conversion
    assert converted(opened()) == []
    assert log.note_conversion(7, 100, 250)
    assert converted(opened()) == [3]
    assert log.note_conversion(7, 100, 1_000)  # of two in one second the last that came
    assert log.note_conversion(7, 100, 1_000)  # of one impression none counts twice
    assert converted(opened()) == [3, 5]
    log.drop_conversions()
    assert converted(opened()) == []
    assert len(opened().events()) == 5


def test_an_impression_stays_until_all_allowed_families_have_counted_it(opened: Opened) -> None:
    log, both = opened(), frozenset(RoundFamily)
    for number in (1, 2, 3):
        log.note_shown(shown(number, 7, 1_000 * number))
    first, second, third = log.events()
    log.mark_counted([first, second, event(9)], RoundFamily.CLICKS)
    log.mark_counted([first], RoundFamily.CLICKS)  # again: nothing changes
    log.note_conversion(7, 0, 2_000)
    forget_done(opened(), both)
    log.mark_counted([second], RoundFamily.CONVERSIONS)
    assert [sorted(each.counted) for each in opened().events()] == [
        ["menu-rates"], ["menu-conversions", "menu-rates"], [],
    ]  # fmt: skip
    forget_done(opened(), both)
    assert [each.nonce for each in opened().events()] == [first.nonce, third.nonce]
    log.note_shown(second)  # known by its nonce alone: nothing of the one that was deleted is left
    assert not opened().events()[-1].counted
    assert not opened().events()[-1].converted
    forget_done(opened(), both, oldest=2_500)
    assert [each.nonce for each in opened().events()] == [third.nonce]
    log.note_conversion(7, 0, 9_000)
    forget_done(opened(), {RoundFamily.CLICKS})  # who no longer allows conversions has none kept
    assert [each.converted for each in opened().events()] == [False]
    forget_done(opened(), ())
    assert opened().events() == []


def test_conversions_are_due_once_no_more_can_come() -> None:
    day = 86_400
    each = shown(1, 7, 10 * day)
    assert each.is_due(RoundFamily.CLICKS, 10 * day, 7 * day)
    assert not each.is_due(RoundFamily.CONVERSIONS, 17 * day - 1, 7 * day)
    assert each.is_due(RoundFamily.CONVERSIONS, 17 * day, 7 * day)
    counted = replace(each, counted=frozenset({RoundFamily.CONVERSIONS}))
    assert not counted.is_due(RoundFamily.CONVERSIONS, 17 * day, 7 * day)
    assert counted.is_due(RoundFamily.CLICKS, 17 * day, 7 * day)


def test_what_comes_with_its_marks_is_kept_with_them(opened: Opened) -> None:
    given = replace(shown(1, 7, 5), clicked=True, converted=True, counted=frozenset(RoundFamily))
    opened().note_shown(given)
    assert opened().events() == [given]


def test_a_file_of_before_conversions_is_read_and_goes_on(tmp_path: Path) -> None:
    place, before = tmp_path / "shown.sqlite", MetaData()
    table = stored_log._SHOWN.to_metadata(before)
    file = DeviceFile(place, stored_log.KIND, before, 1)
    with file.transaction() as connection:
        row = {"nonce": b"1", "context": '["Northport"]', "campaign": 7, "second": 5, "clicked": True}
        connection.execute(insert(table).values(**row))
    file.close()
    log = SqlShownLog.open(place)
    assert log.events() == [ShownEvent(b"1", ("Northport",), 7, 5, clicked=True)]
    assert log.note_conversion(7, 0, 10)
    assert SqlShownLog.open(place).events()[0].converted
    with pytest.raises(BillError, match="expected a device log"):
        DeviceFile(place, stored_log.KIND, before, 1)  # an older program does not touch it


def test_what_is_deleted_is_overwritten(tmp_path: Path) -> None:
    log = SqlShownLog.open(tmp_path / "shown.sqlite")
    log.note_shown(ShownEvent(b"marked nonce", ("marked place",), 7, 5))
    log.note_conversion(7, 0, 10)
    log.mark_counted(log.events(), RoundFamily.CLICKS)
    assert b"marked" in (tmp_path / "shown.sqlite").read_bytes()
    log.forget(log.events())
    assert b"marked" not in (tmp_path / "shown.sqlite").read_bytes()


def test_the_oldest_goes_where_there_are_too_many(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (shown_log, stored_log):
        monkeypatch.setattr(module, "MOST_EVENTS", 3)
    log = opened()
    for number in range(1, 6):
        log.note_shown(event(number))
    assert log.events() == [event(3), event(4), event(5)]


def test_what_is_no_event_is_refused() -> None:
    for wrong in (
        {"context": ["Northport"]},
        {"context": ()},
        {"campaign": -1},
        {"clicked": 1},
        {"converted": 1},
        {"counted": ("visits",)},
    ):
        with pytest.raises(BadInput):
            ShownEvent(**{"nonce": b"1", "context": ("a",), "campaign": 1, "second": 1, **wrong})  # type: ignore[arg-type]
    assert "Northport" not in repr(event(1))  # where its person was


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(BillError):
        SqlShownLog.open(tmp_path / "other")
