"""How long, and how much at a time: none of it changes what is promised."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from tacit import expect


@dataclass(frozen=True)
class Pace:
    """The room's."""

    streams_most: int = 16  # open at the same time; more are told to come again
    steps_most: int = 2  # worked on at the same time; others wait, unread
    stall_seconds: int = 30  # for the next message of a stream
    call_seconds: int = 900  # for a whole call
    finish_seconds: int = 10  # for calls under way when the room is asked to end

    def __post_init__(self) -> None:
        _whole(self, "pace")


@dataclass(frozen=True)
class Patience:
    """The platform's."""

    call_seconds: int = 900  # for one call
    first_seconds: int = 10  # for a room that was not reached yet: it may not run, or refuse our certificate
    again_seconds: int = 120  # for a room that cannot be reached

    def __post_init__(self) -> None:
        _whole(self, "patience")

    @property
    def at_first(self) -> Patience:
        """Before the room has ever answered; never longer than afterwards."""
        return replace(self, again_seconds=min(self.first_seconds, self.again_seconds))


def _whole(record: Any, section: str) -> None:
    for each in fields(record):
        expect.whole(f"{section}.{each.name}", getattr(record, each.name), at_least=1)
