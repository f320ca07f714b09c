"""Which of a device's own events a run counts, and the device's answer to a question about them.

Events are chosen once per run, kept, and the same in every round of it. The answer counts them in the cells
that were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput, Refused
from tacit.gather.protocol.encoding import (
    MessageKind,
    MessageVerdict,
    decode_message,
    encode_message,
    malformed_if_refused,
)
from tacit.gather.protocol.rounds import Question
from tacit.privacy.ledger.lines import check_ledger_name
from tacit.privacy.randomness import Source
from tacit.schema.contexts.hierarchy import Levels

MOST_EVENTS = 10_000
LARGEST_AD = 1 << 53


class ChosenEvents(Protocol):
    """Where a device keeps which of its events a run counts. Durable when `keep_chosen` returns.

    After events were forgotten, both calls raise a GatherError: nothing may be chosen for that run again.
    """

    def keep_chosen(self, task: str, events: bytes) -> bytes:
        """Keep these events for the run, unless some were kept before; what is kept now."""

    def find_chosen(self, task: str) -> bytes | None:
        """The events that were kept for this run."""


@dataclass(frozen=True)
class Event:
    """One ad that was shown on the device, in its exact context."""

    context: tuple[Any, ...]  # one value per attribute: numbers, texts, or tuples of them
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
    """The events of one device that a run counts, at most `most`; a device gets them from `once`."""

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
    def once(
        cls, task: str, events: Sequence[Event], most: int, entropy: Source, memory: ChosenEvents
    ) -> Contributions:
        """The events that this run counts: chosen at the first call, the very same ever after.

        Guarantee:  at most `most` of the device's events are in all rounds of the run together, whatever
                    events came later and however often the device was started anew.
        Neighbours: none: this holds for every device by itself; `answer_question` says what follows for its
                    counts.
        Assumes:    `memory` keeps what it was given and is not put back to an older state; whoever names the
                    runs gives each its own `task`.
        Source:     what is used was kept before, and the first that was kept is used, also by a rival process.
        """
        expect.having("memory", memory, "find_chosen", "what a device remembers by")
        kept = memory.find_chosen(check_ledger_name("task", task))
        if kept is None:
            kept = memory.keep_chosen(task, cls.choose(events, most, entropy).to_bytes())
        chosen = cls.from_bytes(kept)
        if chosen.most != most:
            raise Refused(
                MessageVerdict.CONFLICT,
                f"expected most={chosen.most}, as this run's events were chosen, got {most}",
            )
        return chosen

    @classmethod
    def choose(cls, events: Sequence[Event], most: int, entropy: Source) -> Contributions:
        """A uniform choice of `most` events, or all where there are no more; in the order they came.

        A second choice for the same run would let more than `most` events into what it releases, and its noise
        would not cover them: `once` makes none.
        """
        expect.having("events", events, "__len__", "a list of events")
        expect.having("entropy", entropy, "uniform_below", "an Entropy")
        places = list(range(len(events)))
        kept = min(expect.whole("most", most, at_least=1), len(places))
        for i in range(kept):
            j = i + entropy.uniform_below(len(places) - i)
            places[i], places[j] = places[j], places[i]
        return cls(tuple(events[place] for place in sorted(places[:kept])), most)

    def to_bytes(self) -> bytes:
        """For the device's own storage; it never leaves."""
        plain = tuple((each.context, each.ad, each.clicked) for each in self.events)
        return encode_message(MessageKind.CONTRIBUTIONS, self.most, plain)

    @classmethod
    def from_bytes(cls, data: bytes) -> Contributions:
        most, plain = decode_message(MessageKind.CONTRIBUTIONS, data, int, tuple, most_fields=MOST_EVENTS)
        with malformed_if_refused():
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


NodeOf = Callable[[Levels, tuple[Any, ...]], int]
"""The id of the node that a context is in at these levels; negative where it is in none that is known."""


def answer_question(
    question: Question, contributions: Contributions, node_of: NodeOf, each: int
) -> NDArray[np.int64]:
    """(cells,) the device's counts, none above `each`.

    Guarantee:  against all zeros, the answer is at most 2 m in L1 and 2 m r in squared L2, for m =
                `contributions.most` events and r = `each`; exactly 2 (q r^2 + s^2) at most, with
                q, s = divmod(m, r). Half of that where the question is for totals alone. Over h rounds of
                one run, h times that.
    Neighbours: the contribution of one device set to zero (zero-out).
    Assumes:    the contributions were chosen once and are the same in every round; the device runs this code.
                A device that does not is bounded only by what its reports prove.
    Source:     an event counts in one total and in one of clicks and no-clicks. The counts of either kind add
                up to at most m, none above r; a sum of squares is greatest where counts are most unequal.
    """
    expect.kind("question", question, Question)
    most = expect.whole("each", each, at_least=1)
    counts = np.zeros(question.cells, np.int64)
    totals, clicks, no_clicks = counts[question.totals], counts[question.clicks], counts[question.no_clicks]
    for event in contributions.events:
        node = node_of(question.levels, event.context)
        place = int(np.searchsorted(question.nodes, node))
        if place == len(question.nodes) or question.nodes[place] != node:
            continue
        totals[place] += 1
        start, end = question.offsets[place : place + 2]
        entry = int(start + np.searchsorted(question.ad[start:end], event.ad))
        if entry < end and question.ad[entry] == event.ad:
            (clicks if event.clicked else no_clicks)[entry] += 1
    return np.minimum(counts, most)
