"""The room's methods as gRPC handlers: the certificate says who calls, and every call ends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import grpc

from tacit.cleanroom.wire.answers import Begun, Description, LabelsAnswer, StatisticAnswer, StepAnswer
from tacit.cleanroom.wire.audit_log import Entry
from tacit.cleanroom.wire.framing import MOST_MESSAGE_BYTES
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.requests import BeginRequest, LabelsRequest, StatisticRequest, StepRequest
from tacit.errors import RoomRefused
from tacit.records import FAULTS, parse_record
from tacit.services.one_line import in_one_line
from tacit.services.room.pace import Pace
from tacit.services.room.statuses import Stalled, status_of
from tacit.services.room.streaming import Call, Places

LOG = logging.getLogger("tacit.services.room")
SERVICE = "tacit.Room"
CHUNK_BYTES, PORTION_BYTES = 2**20, 2**18

Clock = Callable[[], int]
Answer = Callable[[str, Call], Awaitable[Iterable[bytes]]]

OPTIONS = (
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


class Party(Protocol):
    """The room as its service sees it."""

    def describe(self, *, peer: str, now: int) -> Description: ...
    def step(self, request: StepRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> StepAnswer: ...
    def statistic(
        self, request: StatisticRequest, slabs: Iterable[bytes], *, peer: str, now: int
    ) -> StatisticAnswer: ...
    def labels(
        self, request: LabelsRequest, slabs: Iterable[bytes], *, peer: str, now: int
    ) -> LabelsAnswer: ...
    def begin(self, request: BeginRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> Begun: ...
    def exchange(self, points: bytes | None, *, peer: str, now: int) -> bytes: ...
    def audit(self, after: int, *, peer: str) -> list[Entry]: ...


class RoomService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Hands each method its handler. Reads, decides in a worker thread, answers in chunks."""

    def __init__(self, room: Party, *, clock: Clock, pace: Pace) -> None:
        self._room, self._clock, self._pace = room, clock, pace
        self._places = Places(pace)
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

    def _handler(self, answer: Answer) -> Callable[[Any, Any], Awaitable[None]]:
        async def handle(_requests: Any, context: Any) -> None:
            call, refused = Call(context, self._pace), None
            try:
                self._places.take()
                try:
                    chunks_of_it = await answer(peer_of(context), call)
                    await self._write(context, chunks_of_it)
                finally:
                    call.gone = True
                    self._places.give_back()
            except Exception as error:  # whatever it was, the caller hears of it and the room goes on
                refused = status_of(error)
                if refused[0] is grpc.StatusCode.INTERNAL:
                    LOG.error("%s", in_one_line(error))
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

    async def _describe(self, peer: str, call: Call) -> Iterable[bytes]:
        await call.read()
        return [await self._places.work(lambda: self._room.describe(peer=peer, now=self._clock()).to_bytes())]

    async def _step(self, peer: str, call: Call) -> Iterable[bytes]:
        request, room = StepRequest.from_bytes(await _first(call)), self._room
        answer = await self._places.work(
            lambda: room.step(request, call.messages(), peer=peer, now=self._clock())
        )
        return answer.to_chunks()

    async def _statistic(self, peer: str, call: Call) -> Iterable[bytes]:
        request, room = StatisticRequest.from_bytes(await _first(call)), self._room
        answer = await self._places.work(
            lambda: room.statistic(request, call.messages(), peer=peer, now=self._clock())
        )
        return answer.to_chunks()

    async def _labels(self, peer: str, call: Call) -> Iterable[bytes]:
        request, room = LabelsRequest.from_bytes(await _first(call)), self._room
        answer = await self._places.work(
            lambda: room.labels(request, call.messages(), peer=peer, now=self._clock())
        )
        return answer.to_chunks()

    async def _begin(self, peer: str, call: Call) -> Iterable[bytes]:
        request, room = BeginRequest.from_bytes(await _first(call)), self._room
        answer = await self._places.work(
            lambda: room.begin(request, call.messages(), peer=peer, now=self._clock())
        )
        return [answer.to_bytes()]

    async def _exchange(self, peer: str, call: Call) -> Iterable[bytes]:
        def work() -> bytes:
            room, now = self._room, self._clock()
            offered = room.exchange(None, peer=peer, now=now)  # refuses whom it must before anything is read
            points = _gathered(call.messages(), len(offered))
            return room.exchange(points, peer=peer, now=now) if points else offered

        answer = await self._places.work(work)
        return chunks(answer)

    async def _audit(self, peer: str, call: Call) -> Iterable[bytes]:
        after = _after(await _first(call))
        entries = await self._places.work(lambda: self._room.audit(after, peer=peer))
        return _in_portions([entry.as_json() for entry in entries])


def peer_of(context: Any) -> str:
    """The party's name on the caller's certificate; empty, which is nobody's name, if there is none."""
    found = context.auth_context()
    common, names = found.get("x509_common_name", []), found.get("x509_subject_alternative_name", [])
    known = len(common) == 1 and common[0] in names
    return str(common[0], "utf-8", "replace") if known else ""


def chunks(data: bytes) -> Iterable[bytes]:
    return (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))


def _gathered(messages: Iterable[bytes], most: int) -> bytes:
    """All messages as one, of at most so many bytes."""
    gathered = bytearray()
    for message in messages:
        if len(gathered) + len(message) > most:
            raise RoomRefused(Refusal.OVERSIZED, f"expected at most {most} bytes of points")
        gathered += message
    return bytes(gathered)


def _in_portions(records: list[dict[str, Any]]) -> Iterable[bytes]:
    """Lists of records, each of about so many bytes and with at least one."""
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


async def _first(call: Call) -> bytes:
    message = await call.read()
    if not message:
        raise RoomRefused(Refusal.MALFORMED, "expected a request, got an empty stream")
    return message


def _after(message: bytes) -> int:
    try:
        after = parse_record(message)["after"] if len(message) < 100 else None
    except FAULTS:
        after = None
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < 2**63:
        raise RoomRefused(Refusal.MALFORMED, 'expected {"after": a whole number from 0 on}')
    return after
