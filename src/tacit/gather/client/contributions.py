"""Which of a device's own events count: chosen once a run, kept, and the same in every round of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.wire.encoding import Kind, decode, encode, reading
from tacit.privacy.randomness import Source

MOST_EVENTS = 10_000
LARGEST_AD = 1 << 53


@dataclass(frozen=True)
class Event:
    """One ad that was shown on the device, in its exact context."""

    context: tuple[Any, ...]  # one value an attribute: numbers, texts, or tuples of them
    ad: int
    clicked: bool

    def __post_init__(self) -> None:
        if type(self.context) is not tuple or not _storable(self.context):
            raise BadInput("expected a context of numbers, texts and tuples of them, got something else")
        object.__setattr__(self, "ad", expect.whole("ad", self.ad, at_least=0))
        if self.ad > LARGEST_AD:
            raise BadInput(f"expected ad <= {LARGEST_AD}, got a larger one")
        if type(self.clicked) is not bool:
            raise BadInput("expected clicked to be True or False, got something else")


@dataclass(frozen=True)
class Contributions:
    """The events of one device that a run counts, at most `most`.

    Keep these bytes for the whole run: a second choice would let more than `most` events into what the run
    releases, and its noise would not cover them.
    """

    events: tuple[Event, ...]
    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", expect.whole("most", self.most, at_least=1))
        if self.most > MOST_EVENTS:
            raise BadInput(f"expected most <= {MOST_EVENTS}, got {self.most}")
        if type(self.events) is not tuple or not all(isinstance(each, Event) for each in self.events):
            raise BadInput("expected events as a tuple of Event, got something else")
        if len(self.events) > self.most:
            raise BadInput(f"expected at most {self.most} events, got more")

    @classmethod
    def choose(cls, events: Sequence[Event], most: int, entropy: Source) -> Contributions:
        """A uniform choice of `most` events, or all where there are no more; in the order they came."""
        places = list(range(len(events)))
        kept = min(expect.whole("most", most, at_least=1), len(places))
        for i in range(kept):
            j = i + entropy.uniform_below(len(places) - i)
            places[i], places[j] = places[j], places[i]
        return cls(tuple(events[place] for place in sorted(places[:kept])), most)

    def to_bytes(self) -> bytes:
        """For the device's own storage; it never leaves."""
        plain = tuple((each.context, each.ad, each.clicked) for each in self.events)
        return encode(Kind.CONTRIBUTIONS, self.most, plain)

    @classmethod
    def from_bytes(cls, data: bytes) -> Contributions:
        most, plain = decode(Kind.CONTRIBUTIONS, data, int, tuple, most_fields=MOST_EVENTS)
        with reading():
            return cls(tuple(_event(each) for each in plain), most)


def _event(plain: Any) -> Event:
    if type(plain) is not tuple or len(plain) != 3:
        raise BadInput("expected an event of 3 fields, got something else")
    return Event(*plain)


def _storable(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_storable, value))
    if type(value) is int:
        return abs(value) <= LARGEST_AD
    return type(value) in (str, bool) or (type(value) is float and math.isfinite(value))
