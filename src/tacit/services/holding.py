"""Memory for what strangers may send: so many bytes in all, counted as they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tacit.services.problems import Busy


class Held:
    """The bytes of one body, which count from their arrival until it is let go."""

    def __init__(self, room: Room) -> None:
        self._room, self._bytes = room, 0

    def add(self, count: int) -> None:
        """Busy where there is no room for so many more."""
        if self._room.used + count > self._room.most:
            raise Busy
        self._room.used += count
        self._bytes += count

    def let_go(self) -> None:
        self._room.used -= self._bytes
        self._bytes = 0


class Room:
    """What all bodies together may take. What is only announced takes nothing: bytes count once they came."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    @contextmanager
    def held(self) -> Iterator[Held]:
        held = Held(self)
        try:
            yield held
        finally:
            held.let_go()
