"""What a device showed and what was clicked, in exact contexts: where its answers to questions come from.

    log = MemoryShownLog()
    log.note_shown(ShownEvent(ad.nonce, ("Northport", "Coffee"), ad.campaign, now))
    log.note_click(ad.nonce)

Nothing of it leaves the device but in rounds of gathering, whose noise covers it. It is kept only where the
person lets the device count (`StatisticsConsent`), for as long as a round may ask, and deleted when it was
counted: an impression counts in one round at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tacit import expect
from tacit.display import brief
from tacit.errors import BadInput

MOST_EVENTS = 5_000
"""That a device keeps; then the oldest goes."""


@dataclass(frozen=True)
class ShownEvent:
    """One ad that was shown.

    nonce     of its impression
    context   exact: a text per attribute, or a number, or several
    second    when it was shown
    """

    nonce: bytes = field(repr=False)
    context: tuple[Any, ...] = field(repr=False)
    campaign: int
    second: int
    clicked: bool = False

    def __post_init__(self) -> None:
        expect.kind("nonce", self.nonce, bytes)
        if type(self.context) is not tuple or not self.context:
            raise BadInput("expected a context of one value per attribute, got something else")
        expect.whole("campaign", self.campaign, at_least=0)
        expect.integer("second", self.second)
        expect.kind("clicked", self.clicked, bool)


class ShownLog(Protocol):
    """Where they are kept. On disk, where there is one, when a call returns."""

    def note_shown(self, event: ShownEvent) -> None:
        """Keep it; one with the same nonce changes nothing. Beyond `MOST_EVENTS` the oldest is deleted."""

    def note_click(self, nonce: bytes) -> bool:
        """It was clicked; whether it is still known."""

    def events(self) -> Sequence[ShownEvent]:
        """All that are kept, as they came."""

    def forget(self, events: Sequence[ShownEvent]) -> None:
        """Delete these, which were counted, or are no longer to be."""


class MemoryShownLog:
    """A log that is gone with its process: for simulations and tests."""

    def __init__(self) -> None:
        self._events: dict[bytes, ShownEvent] = {}

    def __repr__(self) -> str:
        return brief(self, events=len(self._events))

    def note_shown(self, event: ShownEvent) -> None:
        expect.kind("event", event, ShownEvent)
        self._events.setdefault(event.nonce, event)
        while len(self._events) > MOST_EVENTS:
            del self._events[next(iter(self._events))]

    def note_click(self, nonce: bytes) -> bool:
        found = self._events.get(nonce)
        if found is not None:
            self._events[nonce] = replace(found, clicked=True)
        return found is not None

    def events(self) -> Sequence[ShownEvent]:
        return list(self._events.values())

    def forget(self, events: Sequence[ShownEvent]) -> None:
        for event in events:
            self._events.pop(event.nonce, None)
