"""Connections that are not waited for beyond measure: a deadline for each step, and never more than so many.

Whoever opens a connection holds some memory and a file of this process until it ends. Three steps have a time
of their own, counted from where the step began, however often a few more bytes come in between:

    asking      from the connection, or the answer before, to the end of a request's head
    sending     from there to the end of its body
    answering   from there until the answer is written, which a caller that does not read can hold up

A step that takes longer ends the connection without a word. Where there are as many connections as there may
be, a new one takes the place of the one that has been asking the longest: those that never finish their request
push out each other. (While TLS is being agreed on a connection is not ours yet; asyncio gives that 60 s.)
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit import expect
from tacit.services.settings import Pace


class Step(expect.Choice):
    """What a connection is waited for."""

    ASKING = "asking"
    SENDING = "sending"
    ANSWERING = "answering"


def patient(pace: Pace) -> type[H11Protocol]:
    """The protocol of one connection, with these deadlines."""
    seconds = {
        Step.ASKING: pace.head_seconds,
        Step.SENDING: pace.body_seconds,
        Step.ANSWERING: pace.answer_seconds,
    }

    class Patient(H11Protocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.step: tuple[Step, object] | None = None  # with the request that it belongs to
            self.ends: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > pace.connections_most:
                asking = [each for each in self.connections if isinstance(each, Patient) and each.is_asking]
                # Within the step all deadlines are equally long: the first to end began first.
                longest = min(asking, key=lambda each: each.ends.when() if each.ends else 0.0, default=self)
                longest.drop()
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.watch()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.ends is not None:
                self.ends.cancel()
            super().connection_lost(exc)

        @property
        def is_asking(self) -> bool:
            return self.step is not None and self.step[0] is Step.ASKING

        def watch(self) -> None:
            """Begin a new deadline where a new step has begun, and only there."""
            if self.cycle is None or self.cycle.response_complete:
                step = Step.ASKING
            else:
                step = Step.SENDING if self.cycle.more_body else Step.ANSWERING
            if self.step == (step, self.cycle):
                return
            if self.ends is not None:
                self.ends.cancel()
            self.step = step, self.cycle
            self.ends = self.loop.call_later(seconds[step], self.drop)

        def drop(self) -> None:
            """At once, with whatever was to be written: the other side may never read it."""
            self.connections.discard(self)  # now, not when the loop comes round: others may arrive before that
            self.transport.abort()

    return Patient
