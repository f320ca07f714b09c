"""The room's gRPC service: handlers of its methods, streams with deadlines, and errors as statuses.

The caller's certificate says who it is, and every call ends: a stream that stalls, and a call that takes too
long, are ended. Nothing of a stream is held but the message in hand and the next one. A refusal's reason and
detail survive the wire; every other error is told in general words.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import grpc

from tacit.cleanroom.protocol.answers import (
    BeginAnswer,
    LabelsAnswer,
    RoomDescription,
    StatisticAnswer,
    StepAnswer,
)
from tacit.cleanroom.protocol.audit_log import AuditEntry
from tacit.cleanroom.protocol.encoding import MOST_MESSAGE_BYTES, RoomRefusal
from tacit.cleanroom.protocol.requests import BeginRequest, LabelsRequest, StatisticRequest, StepRequest
from tacit.errors import RoomError, RoomRefused, TacitError
from tacit.expect import RECORD_FAULTS
from tacit.files import parse_json
from tacit.services.log import error_line
from tacit.services.room.settings import RoomPace

# What is wrong with the message itself; every other refusal depends on what was agreed or already happened.
ABOUT_THE_MESSAGE = frozenset(
    {
        RoomRefusal.MALFORMED,
        RoomRefusal.OVERSIZED,
        RoomRefusal.NOT_FINITE,
        RoomRefusal.WRONG_SHAPE,
        RoomRefusal.REPEATED_RECORD,
        RoomRefusal.TOO_SMALL_BATCH,
    }
)
MOST_DETAIL = 1_000  # characters; statuses travel in headers, which are short

TRY_AGAIN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED})
"""The room restarts, ends, or has no place free: the same call may come again."""


class RoomBusy(TacitError):
    """More streams are open than may be; come again."""


class Stalled(TacitError):
    """A stream that nothing came on for too long, or that took too long as a whole."""


def status_from_error(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """What the caller is told. What nobody foresaw says nothing of itself."""
    match error:
        case RoomRefused(reason=reason, detail=detail):
            code = grpc.StatusCode
            about = code.INVALID_ARGUMENT if reason in ABOUT_THE_MESSAGE else code.FAILED_PRECONDITION
            return about, json.dumps({"reason": str(reason), "detail": str(detail)[:MOST_DETAIL]})
        case RoomBusy():
            return grpc.StatusCode.UNAVAILABLE, str(error)
        case Stalled():
            return grpc.StatusCode.DEADLINE_EXCEEDED, str(error)
        case _:
            return grpc.StatusCode.INTERNAL, "something went wrong in the room; its own log says what"


def error_from_status(code: grpc.StatusCode, details: str) -> RoomError:
    """The error that a status stands for, on the platform's side."""
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
        try:
            told = parse_json(details)
            return RoomRefused(RoomRefusal(told["reason"]), str(told["detail"]))
        except RECORD_FAULTS:  # not of our room
            return RoomError(f"the room refused, and did not say why in a known way ({code.name.lower()})")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return RoomRefused(RoomRefusal.OVERSIZED)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return RoomError("expected a room that knows this method, got one that does not: do versions differ?")
    said = details.splitlines()[0] if details else "nothing more"
    return RoomError(f"the room did not answer ({code.name.lower().replace('_', ' ')}): {said}")


END = b""  # the last message of every stream; no other is empty

Result = TypeVar("Result")


class StreamCall:
    """One call under way: its messages for a worker thread, until the caller goes or patience ends."""

    def __init__(self, context: Any, pace: RoomPace) -> None:
        self._context, self._pace = context, pace
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + pace.call_seconds
        self.gone = False

    async def read(self) -> bytes | None:
        """The next message; None at the end of the stream."""
        patience = min(self._pace.stall_seconds, self._ends - self._loop.time())
        try:
            message = await asyncio.wait_for(self._context.read(), max(patience, 0.0))
        except TimeoutError:
            raise Stalled(
                "the stream stood still for longer than the room waits; nothing was released"
            ) from None
        return None if message is grpc.aio.EOF else message

    def messages(self) -> Iterator[bytes]:
        """The stream for a worker thread, one message ahead, up to the caller's own mark of its end.

        To gRPC, a caller that goes looks like one that has no more to say: without the mark, half a stream
        could be taken for a whole one.
        """
        coming = self._ask()
        while (message := coming.result()) != END:
            if message is None or self.gone:
                raise RoomRefused(RoomRefusal.MALFORMED, "the stream was cut off before its end")
            coming = self._ask()
            yield message

    def _ask(self) -> concurrent.futures.Future[bytes | None]:
        return asyncio.run_coroutine_threadsafe(self.read(), self._loop)


class CallSlots:
    """Limits on calls that are open, and worked on; the rest is refused, or waits without being read."""

    def __init__(self, pace: RoomPace) -> None:
        self._pace, self._open = pace, 0
        self._threads = concurrent.futures.ThreadPoolExecutor(pace.steps_most, thread_name_prefix="room")

    def take(self) -> None:
        if self._open >= self._pace.streams_most:
            raise RoomBusy(f"the room has {self._pace.streams_most} calls open, and takes no more: come again")
        self._open += 1

    def give_back(self) -> None:
        self._open -= 1

    async def work(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


LOG = logging.getLogger("tacit.services.room")
SERVICE = "tacit.Room"
CHUNK_BYTES, PORTION_BYTES = 2**20, 2**18

Clock = Callable[[], int]
MethodHandler = Callable[[str, StreamCall], Awaitable[Iterable[bytes]]]

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", 128),  # of one connection, before any of them is looked at
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),  # a second room on the port is refused instead of sharing its calls
)


class RoomParty(Protocol):
    """The room as its service sees it."""

    def describe(self, *, peer: str, now: int) -> RoomDescription: ...
    def step(self, request: StepRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> StepAnswer: ...
    def statistic(
        self, request: StatisticRequest, slabs: Iterable[bytes], *, peer: str, now: int
    ) -> StatisticAnswer: ...
    def labels(
        self, request: LabelsRequest, slabs: Iterable[bytes], *, peer: str, now: int
    ) -> LabelsAnswer: ...
    def begin(self, request: BeginRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> BeginAnswer: ...
    def exchange(self, points: bytes | None, *, peer: str, now: int) -> bytes: ...
    def audit(self, after: int, *, peer: str) -> list[AuditEntry]: ...


class RoomService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Hands each method its handler. Reads, decides in a worker thread, answers in chunks."""

    def __init__(self, room: RoomParty, *, clock: Clock, pace: RoomPace) -> None:
        self._room, self._clock, self._pace = room, clock, pace
        self._places = CallSlots(pace)
        self._methods = {
            f"/{SERVICE}/{name}": grpc.stream_stream_rpc_method_handler(self._handler(answer))
            for name, answer in {
                "Describe": self._describe,
                "Step": self._step,
                "Statistic": self._statistic,
                "Labels": self._labels,
                "Begin": self._begin,
                "Exchange": self._exchange,
                "Audit": self._audit,
            }.items()
        }

    def service(self, handler_call_details: Any) -> Any:
        return self._methods.get(handler_call_details.method)

    def close(self) -> None:
        self._places.close()

    def _handler(self, answer: MethodHandler) -> Callable[[Any, Any], Awaitable[None]]:
        async def handle(_requests: Any, context: Any) -> None:
            call, refused = StreamCall(context, self._pace), None
            try:
                self._places.take()
                try:
                    chunks_of_it = await answer(peer_name(context), call)
                    await self._write(context, chunks_of_it)
                finally:
                    call.gone = True
                    self._places.give_back()
            except Exception as error:  # whatever it was, the caller hears of it and the room goes on
                refused = status_from_error(error)
                if refused[0] is grpc.StatusCode.INTERNAL:
                    LOG.error("%s", error_line(error))
            if refused is not None:
                await context.abort(*refused)

        return handle

    async def _write(self, context: Any, answer: Iterable[bytes]) -> None:
        for chunk in answer:
            try:
                await asyncio.wait_for(context.write(chunk), self._pace.stall_seconds)
            except TimeoutError:
                raise Stalled("the answer was not read in time") from None
            except Exception:  # the caller has gone: nobody is there to be told
                return

    async def _describe(self, peer: str, call: StreamCall) -> Iterable[bytes]:
        await call.read()
        return [await self._places.work(lambda: self._room.describe(peer=peer, now=self._clock()).to_bytes())]

    async def _step(self, peer: str, call: StreamCall) -> Iterable[bytes]:
        request, room = StepRequest.from_bytes(await _read_first(call)), self._room
        answer = await self._places.work(
            lambda: room.step(request, call.messages(), peer=peer, now=self._clock())
        )
        return answer.to_chunks()

    async def _statistic(self, peer: str, call: StreamCall) -> Iterable[bytes]:
        request, room = StatisticRequest.from_bytes(await _read_first(call)), self._room
        answer = await self._places.work(
            lambda: room.statistic(request, call.messages(), peer=peer, now=self._clock())
        )
        return answer.to_chunks()

    async def _labels(self, peer: str, call: StreamCall) -> Iterable[bytes]:
        request, room = LabelsRequest.from_bytes(await _read_first(call)), self._room
        answer = await self._places.work(
            lambda: room.labels(request, call.messages(), peer=peer, now=self._clock())
        )
        return answer.to_chunks()

    async def _begin(self, peer: str, call: StreamCall) -> Iterable[bytes]:
        request, room = BeginRequest.from_bytes(await _read_first(call)), self._room
        answer = await self._places.work(
            lambda: room.begin(request, call.messages(), peer=peer, now=self._clock())
        )
        return [answer.to_bytes()]

    async def _exchange(self, peer: str, call: StreamCall) -> Iterable[bytes]:
        def work() -> bytes:
            room, now = self._room, self._clock()
            offered = room.exchange(None, peer=peer, now=now)  # refuses whom it must before anything is read
            points = _join_messages(call.messages(), len(offered))
            return room.exchange(points, peer=peer, now=now) if points else offered

        answer = await self._places.work(work)
        return split_chunks(answer)

    async def _audit(self, peer: str, call: StreamCall) -> Iterable[bytes]:
        after = _parse_after(await _read_first(call))
        entries = await self._places.work(lambda: self._room.audit(after, peer=peer))
        return _split_portions([entry.as_json() for entry in entries])


def peer_name(context: Any) -> str:
    """The party's name on the caller's certificate; empty, which is nobody's name, if there is none."""
    found = context.auth_context()
    common, names = found.get("x509_common_name", []), found.get("x509_subject_alternative_name", [])
    known = len(common) == 1 and common[0] in names
    return str(common[0], "utf-8", "replace") if known else ""


def split_chunks(data: bytes) -> Iterable[bytes]:
    return (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))


def _join_messages(messages: Iterable[bytes], most: int) -> bytes:
    """All messages as one, of at most `most` bytes."""
    gathered = bytearray()
    for message in messages:
        if len(gathered) + len(message) > most:
            raise RoomRefused(RoomRefusal.OVERSIZED, f"expected at most {most} bytes of points")
        gathered += message
    return bytes(gathered)


def _split_portions(records: list[dict[str, Any]]) -> Iterable[bytes]:
    """Lists of records, each of about PORTION_BYTES and with at least one."""
    portion: list[dict[str, Any]] = []
    size = 0
    for record in records:
        portion.append(record)
        size += len(json.dumps(record))
        if size >= PORTION_BYTES:
            yield json.dumps(portion).encode()
            portion, size = [], 0
    if portion:
        yield json.dumps(portion).encode()


async def _read_first(call: StreamCall) -> bytes:
    message = await call.read()
    if not message:
        raise RoomRefused(RoomRefusal.MALFORMED, "expected a request, got an empty stream")
    return message


def _parse_after(message: bytes) -> int:
    try:
        after = parse_json(message)["after"] if len(message) < 100 else None
    except RECORD_FAULTS:
        after = None
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < 2**63:
        raise RoomRefused(RoomRefusal.MALFORMED, 'expected {"after": a whole number from 0 on}')
    return after
