"""What a device showed, what was clicked and what led to a conversion, in exact contexts: where its answers to
questions come from.

    log = MemoryShownLog()
    log.note_shown(ShownEvent(ad.nonce, ("Northport", "Coffee"), ad.campaign, now))
    log.note_click(ad.nonce)
    log.note_conversion(ad.campaign, now - 7 * 86_400, now)

Nothing of it leaves the device but in rounds of gathering, whose noise covers it. It is kept only where the
person lets the device count (`StatisticsConsent`). Rounds come in families, one that counts clicks and one that
counts conversions, and each family counts an impression in one round at most. An impression is deleted when all
families that the person allows have counted it, or when it is too old for any (`is_done`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tacit import expect
from tacit.display import brief
from tacit.errors import BadInput

MOST_EVENTS = 5_000
"""That a device keeps; then the oldest goes."""
LOOK_BACK_SECONDS = 7 * 86_400
"""After an impression, in which a conversion counts as its own, unless settings say otherwise."""
UNCOUNTED_SECONDS = 7 * 86_400
"""After that, in which an impression may wait to be counted; likewise."""


class RoundFamily(expect.Choice):
    """What the rounds that an ad server schedules count, by the names under which a person allows them; a
    round's task is such a name, a dash and a number.

    CLICKS       impressions, and how many of them were clicked: as soon as a round asks
    CONVERSIONS  impressions, and how many of them led to a conversion: once their look-back is over
    """

    CLICKS = "menu-rates"
    CONVERSIONS = "menu-conversions"


@dataclass(frozen=True)
class ShownEvent:
    """One ad that was shown.

    nonce     of its impression
    context   exact: a text per attribute, or a number, or several
    second    when it was shown
    counted   the families of rounds that have counted it
    """

    nonce: bytes = field(repr=False)
    context: tuple[Any, ...] = field(repr=False)
    campaign: int
    second: int
    clicked: bool = False
    converted: bool = False
    counted: frozenset[RoundFamily] = frozenset()

    def __post_init__(self) -> None:
        expect.kind("nonce", self.nonce, bytes)
        if type(self.context) is not tuple or not self.context:
            raise BadInput("expected a context of one value per attribute, got something else")
        expect.whole("campaign", self.campaign, at_least=0)
        expect.integer("second", self.second)
        expect.kind("clicked", self.clicked, bool)
        expect.kind("converted", self.converted, bool)
        object.__setattr__(
            self, "counted", frozenset(RoundFamily.named("counted", one) for one in self.counted)
        )

    def is_due(self, family: RoundFamily, now: int, look_back_seconds: int) -> bool:
        """Whether a round of this family may count it now: once per family, conversions only when no more can
        come.

        >>> shown = ShownEvent(b"1", ("Coffee",), 7, second=1_000)
        >>> [shown.is_due(family, now=1_500, look_back_seconds=3_600) for family in RoundFamily]
        [True, False]
        """
        is_ripe = family is not RoundFamily.CONVERSIONS or now >= self.second + look_back_seconds
        return is_ripe and family not in self.counted

    def is_done(self, families: Collection[RoundFamily], oldest: int) -> bool:
        """Whether none of these families will count it: all have, or it was shown before `oldest`."""
        return self.counted.issuperset(families) or self.second < oldest


class ShownLog(Protocol):
    """Where they are kept. On disk, where there is one, when a call returns."""

    def note_shown(self, event: ShownEvent) -> None:
        """Keep it; one with the same nonce changes nothing. Beyond `MOST_EVENTS` the oldest is deleted."""

    def note_click(self, nonce: bytes) -> bool:
        """It was clicked; whether it is still known."""

    def note_conversion(self, campaign: int, first: int, last: int) -> bool:
        """Somebody who was shown the campaign converted: the latest impression of it from second `first` to
        `last` led to that, and to no more than one; whether there is such an impression."""

    def mark_counted(self, events: Sequence[ShownEvent], family: RoundFamily) -> None:
        """A round of this family has counted these."""

    def drop_conversions(self) -> None:
        """Forget what led to conversions; the impressions stay."""

    def events(self) -> Sequence[ShownEvent]:
        """All that are kept, as they came."""

    def forget(self, events: Sequence[ShownEvent]) -> None:
        """Delete these, which were counted, or are no longer to be."""


def forget_done(log: ShownLog, families: Collection[RoundFamily], oldest: int = 0) -> None:
    """Delete what none of these families, which the person allows, will count; `oldest` as of `is_done`."""
    log.forget([each for each in log.events() if each.is_done(families, oldest)])
    if RoundFamily.CONVERSIONS not in families:
        log.drop_conversions()


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

    def note_conversion(self, campaign: int, first: int, last: int) -> bool:
        fits = [
            each for each in self._events.values() if each.campaign == campaign and first <= each.second <= last
        ]
        if fits:
            latest = max(reversed(fits), key=lambda each: each.second)  # of the same second the last that came
            self._events[latest.nonce] = replace(latest, converted=True)
        return bool(fits)

    def mark_counted(self, events: Sequence[ShownEvent], family: RoundFamily) -> None:
        for nonce in [each.nonce for each in events if each.nonce in self._events]:
            found = self._events[nonce]
            self._events[nonce] = replace(found, counted=found.counted | {family})

    def drop_conversions(self) -> None:
        for nonce, each in self._events.items():
            self._events[nonce] = replace(each, converted=False)

    def events(self) -> Sequence[ShownEvent]:
        return list(self._events.values())

    def forget(self, events: Sequence[ShownEvent]) -> None:
        for event in events:
            self._events.pop(event.nonce, None)
