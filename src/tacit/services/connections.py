"""The HTTP protocol of one connection, with a deadline per step and a limit on how many are open.

An open connection holds memory and a file of this process. Each step has a time limit of its own, counted from
where the step began, however often a few more bytes arrive in between:

    agreeing    on TLS, where it is spoken
    asking      from there, or the previous answer, to the end of a request's head
    sending     from there to the end of its body
    answering   from there until the answer is written, which a caller that does not read can hold up

A step that takes longer ends the connection, with 408. Where the limit is reached, in all or for one address,
the connection that is furthest behind is closed for the newcomer, with 503 and Retry-After (see
`connection_limits`). Where all are being worked on, the newcomer itself is told so: only /healthz is still
answered. No answer is sent where none would be understood: before TLS is agreed, in the middle of an answer,
and between two requests, where HTTP lets either side close.

After its last answer a connection is still read for a moment. Closed with bytes unread it would be reset, and
the answer lost.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit import expect
from tacit.services.connection_limits import LEAST_BYTES_PER_SECOND, Address, ConnectionPlaces, networks_of
from tacit.services.problems import ServiceBusy, problem_from_error, problem_response
from tacit.services.settings import ServicePace

HEALTH = "/healthz"
NEWCOMER_SECONDS = 1.0
AHEAD_SECONDS = 1.0  # however much is sent at once, it counts for no longer than that
LAST_WORDS_SECONDS = 2.0
ENDING_SECONDS = 0.2  # the same, once the service is ending


class ConnectionStep(expect.Choice):
    """What a connection is waited for."""

    AGREEING = "agreeing"
    ASKING = "asking"
    SENDING = "sending"
    ANSWERING = "answering"


def reserve_places(most: int) -> int:
    """Connections beyond the limit that are let in to be told so."""
    return max(4, most // 16)


def fair_places(most: int) -> int:
    """Connections of one address that may keep us waiting before any has to leave for being one of many."""
    return max(8, most // 16)


def parting_places(most: int) -> int:
    """Connections that are read for a moment after they were told to go."""
    return max(8, most // 8)


def http_protocol(
    pace: ServicePace, *, tls: ssl.SSLContext | None = None, most_per_address: int | None = None
) -> type[H11Protocol]:
    """The protocol of one connection, with these deadlines and limits; `tls`: it is agreed on first."""
    seconds = {
        ConnectionStep.AGREEING: pace.head_seconds,
        ConnectionStep.ASKING: pace.head_seconds,
        ConnectionStep.SENDING: pace.body_seconds,
        ConnectionStep.ANSWERING: pace.answer_seconds,
    }
    most = pace.connections_most
    places: ConnectionPlaces[Patient] = ConnectionPlaces(
        most, most_per_address, reserve_places(most), fair_places(most)
    )
    parting: dict[Patient, None] = {}  # read for a moment more, in the order in which they were told to go

    class Patient(H11Protocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.address: Address = ()
            self.is_beyond, self.is_parting = False, False
            self.step: tuple[ConnectionStep, object] | None = None  # with the request that it belongs to
            self.ends: asyncio.TimerHandle | None = None
            self.has_moved = False  # whether a byte of the step came or went
            self.since = 0.0  # when the step began, and on from there with each byte
            self.unread = 0  # bytes to be written when we last looked, while writing is paused
            self.agreement: asyncio.Task[None] | None = None
            self.early: list[bytes] = []

        # A connection begins.

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self.address = networks_of(transport.get_extra_info("peername"))
            entered = places.enter(self)
            self.is_beyond = entered.beyond
            if entered.beyond:
                self.app = _only_health(self.app)
            if entered.leaves is not None:
                entered.leaves.part(BUSY)
            if tls is None:
                self.made(transport)
                return
            self.transport = transport
            self.connections.add(self)
            self.begin(ConnectionStep.AGREEING, None)
            self.agreement = self.loop.create_task(self.agree(transport, tls))

        async def agree(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
            try:
                secure = await self.loop.start_tls(
                    transport, self, context, server_side=True, ssl_handshake_timeout=pace.head_seconds
                )
            except OSError:  # no agreement, or it went away; nobody else says so
                self.connection_lost(None)
                return
            if secure is not None and not self.is_parting:
                self.made(secure)
                early, self.early = self.early, []
                for data in early:
                    self.data_received(data)

        def made(self, transport: asyncio.Transport) -> None:
            super().connection_made(_DrainedTransport(transport, self))  # type: ignore[arg-type]
            self.watch()

        # It goes on.

        def data_received(self, data: bytes) -> None:
            if self.is_parting:
                return
            if self.flow is None:  # TLS was agreed a moment ago, and `made` is still to come
                self.early.append(data)
                return
            super().data_received(data)
            self.watch()
            self.move(len(data))  # in the step that it led to: a head often comes with all of its body

        def pause_writing(self) -> None:
            self.unread = self.transport.get_write_buffer_size()
            super().pause_writing()

        def resume_writing(self) -> None:
            self.look_what_was_read()
            super().resume_writing()

        def look_what_was_read(self) -> None:
            before, self.unread = self.unread, self.transport.get_write_buffer_size()
            if self.unread < before:
                self.move(before - self.unread)

        def move(self, count: int) -> None:
            """`count` bytes came or went. Much at once does not buy a long time in which nothing does."""
            self.has_moved = True
            self.since = min(self.since + count / LEAST_BYTES_PER_SECOND, self.loop.time() + AHEAD_SECONDS)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.watch()

        def watch(self) -> None:
            """Begin a new deadline where a new step has begun, and only there."""
            if self.cycle is None or self.cycle.response_complete:
                step = ConnectionStep.ASKING
            else:
                step = ConnectionStep.SENDING if self.cycle.more_body else ConnectionStep.ANSWERING
            if self.step != (step, self.cycle) and not self.is_parting:
                self.begin(step, self.cycle)

        def begin(self, step: ConnectionStep, request: object) -> None:
            if self.ends is not None:
                self.ends.cancel()
            self.step, self.since, self.has_moved = (step, request), self.loop.time(), False
            # Where an answer takes too long, it is we that are slow.
            words = BUSY if step is ConnectionStep.ANSWERING else SLOW
            self.ends = self.loop.call_later(seconds[step], self.part, words)

        def keeps_waiting_since(self) -> tuple[bool, float] | None:
            if self.step is None or (self.step[0] is ConnectionStep.ANSWERING and not self.flow.write_paused):
                return None
            if self.step[0] is ConnectionStep.ANSWERING:
                self.look_what_was_read()
            # One that has said nothing yet is given a moment more than one that began and sends no more.
            moment = NEWCOMER_SECONDS if self.cycle is None else 0.0
            return not self.is_idle, self.since + moment

        @property
        def is_idle(self) -> bool:
            """Answered, and nothing of a next request has come."""
            if self.cycle is None or not self.cycle.response_complete:
                return False
            return not self.has_moved or self.conn.their_state is h11.SEND_BODY

        # It ends.

        def part(self, words: bytes) -> None:
            """Give the place up, after these words where they can be understood."""
            if self.is_parting:
                return
            cycle, is_idle = self.cycle, self.is_idle
            in_an_answer = cycle is not None and cycle.response_started and not cycle.response_complete
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True  # whatever the app still says is for nobody
                cycle.message_event.set()
            if self.flow is None and self.agreement is not None:
                self.agreement.cancel()
                self.connection_lost(None)
                return
            if in_an_answer:
                self.go()
                self.transport.abort()
                return
            if not is_idle:
                self.transport.write(words)
            self.hear_out()

        def hear_out(self) -> None:
            """Read on for a moment, so that the last words arrive; then it ends, whether they did or not."""
            self.go()
            self.flow.resume_reading()
            with suppress(OSError):  # it may be gone already
                if self.transport.can_write_eof():
                    self.transport.write_eof()
            parting[self] = None
            self.ends = self.loop.call_later(LAST_WORDS_SECONDS, self.transport.abort)
            if len(parting) > parting_places(most):
                oldest = next(iter(parting))
                del parting[oldest]
                oldest.transport.abort()

        def go(self) -> None:
            """Hold no place any more; now, not when the loop comes round: others may arrive before that."""
            self.is_parting = True
            self._unset_keepalive_if_required()
            if self.ends is not None:
                self.ends.cancel()
            if self.flow is not None:
                self.flow.resume_writing()
            places.leave(self)

        def shutdown(self) -> None:
            """The service is ending: only connections that we are at work for are still waited for."""
            if self.is_parting:
                self.transport.abort()
            elif self.is_idle or self.keeps_waiting_since() is None:
                super().shutdown()
            else:
                self.part(BUSY)
                self.loop.call_later(ENDING_SECONDS, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self.go()
            parting.pop(self, None)
            super().connection_lost(exc)

    return Patient


class _DrainedTransport:
    """A transport that is closed only when nothing more can come in: until then it is heard out."""

    def __init__(self, transport: asyncio.Transport, connection: Any) -> None:
        self._transport, self._connection = transport, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._connection.is_parting or self._transport.is_closing()

    def close(self) -> None:
        unheard = self._connection.conn.their_state in (h11.SEND_BODY, h11.ERROR)
        if unheard and not self.is_closing():
            self._connection.hear_out()
        else:
            self._transport.close()


def _only_health(app: ASGIApp) -> ASGIApp:
    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        known = scope["type"] != "http" or scope["path"] == HEALTH
        await (app if known else problem_from_error(ServiceBusy()))(scope, receive, send)

    return answering


def _response_bytes(answer: Response) -> bytes:
    """A whole answer as it is sent, for a connection whose request may not even have begun."""
    answer.headers["connection"] = "close"
    head = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()]
    head += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])


BUSY = _response_bytes(problem_from_error(ServiceBusy()))
SLOW = _response_bytes(problem_response("slow", 408, "the request did not come to its end in time"))
