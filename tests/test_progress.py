"""A bar for work that takes long, where somebody would see it."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import pytest

from tacit.progress import no_count, patient_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, seconds_per_count: float, where: Any) -> str:
    monkeypatch.setattr(sys, "stderr", where)
    monkeypatch.setenv("TERM", "xterm")
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with patient_bar("step", 10, "steps") as count:
        for done in range(10):
            count(done)
            now += seconds_per_count
    return str(where.getvalue())


def test_a_bar_is_shown_after_two_seconds_with_its_pace_and_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = shown(monkeypatch, 0.5, Terminal())
    assert "step 4/10" in text
    assert "step 3/10" not in text
    assert "2 steps/s" in text
    assert "0:03 left" in text


def test_quick_work_and_work_that_nobody_watches_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 0.1, Terminal()) == ""
    assert shown(monkeypatch, 5.0, io.StringIO()) == ""
    with patient_bar("step", 10, "steps") as count:
        assert count is no_count
