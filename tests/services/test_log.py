"""Log lines: one form for people and one for machines, repeats folded, no password in either."""

from __future__ import annotations

import json
import logging

import pytest

from tacit.services.log import FOLD_SECONDS, MOST_FOLDED, FoldingHandler, JsonFormatter, TextFormatter


class Kept(logging.Handler):
    """Lines as they would be written."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class Lines:
    def __init__(self, formatter: logging.Formatter) -> None:
        self.now, self.kept = 0.0, Kept(formatter)
        self.handler = FoldingHandler(self.kept, lambda: self.now)

    def say(self, message: str, *args: object, level: int = logging.ERROR) -> None:
        self.handler.handle(logging.LogRecord("tacit", level, __file__, 1, message, args, None))

    @property
    def messages(self) -> list[tuple[str, int]]:
        found = [json.loads(line) for line in self.kept.lines]
        return [(each["message"], each.get("times", 1)) for each in found]


@pytest.fixture
def lines() -> Lines:
    return Lines(JsonFormatter("proxy"))


def test_what_repeats_is_written_once_and_then_counted(lines: Lines) -> None:
    for _ in range(1000):
        lines.say("no room on %s", "disk")
    assert lines.messages == [("no room on disk", 1)]
    lines.say("other")
    lines.now = FOLD_SECONDS
    lines.say("a third")  # the minute of the first is over
    assert lines.messages == [("no room on disk", 1), ("other", 1), ("no room on disk", 999), ("a third", 1)]
    lines.say("no room on disk")  # a new minute begins
    assert lines.messages[-1] == ("no room on disk", 1)


def test_levels_and_words_are_told_apart(lines: Lines) -> None:
    lines.say("x")
    lines.say("x", level=logging.INFO)
    lines.say("y")
    assert len(lines.kept.lines) == 3


def test_what_was_held_back_is_written_at_the_end(lines: Lines) -> None:
    for _ in range(3):
        lines.say("x")
    lines.handler.flush()
    lines.handler.flush()
    assert lines.messages == [("x", 1), ("x", 2)]


def test_many_different_lines_are_bounded_and_none_is_lost(lines: Lines) -> None:
    for _ in range(2):
        for at in range(MOST_FOLDED):
            lines.say("line %d", at)
    lines.say("one more")
    assert ("line 0", 1) in lines.messages[MOST_FOLDED:]
    lines.handler.flush()
    counted: dict[str, int] = {}
    for message, times in lines.messages:
        counted[message] = counted.get(message, 0) + times
    assert counted == {**{f"line {at}": 2 for at in range(MOST_FOLDED)}, "one more": 1}


def test_a_line_for_machines_is_one_object_without_a_password(lines: Lines) -> None:
    lines.say("cannot open postgresql+psycopg://ads:hunter2@db/ads\nsecond line")
    (line,) = lines.kept.lines
    said = json.loads(line)
    assert set(said) == {"time", "level", "party", "message"}
    assert (said["level"], said["party"]) == ("error", "proxy")
    assert "hunter2" not in line
    assert "\n" not in line


def test_a_line_for_people_says_how_often() -> None:
    lines = Lines(TextFormatter())
    for _ in range(4):
        lines.say("postgresql+psycopg://ads:hunter2@db/ads is away")
    lines.handler.flush()
    assert lines.kept.lines[0].endswith("is away")
    assert lines.kept.lines[1].endswith("is away (3 times more)")
    assert not any("hunter2" in line for line in lines.kept.lines)
