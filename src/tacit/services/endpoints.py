"""Building blocks of HTTP endpoints: bounded memory, bounded bodies, signed requests, answers sent in pieces.

Bytes of bodies count against one quota as they arrive, not as they are announced. A body that is too long is
refused as soon as that is known. A long answer is sent piece by piece, so that a caller that does not read
costs one piece of memory. What is asked for again comes from an LRU cache.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Scope, Send

from tacit.bill.protocol.directory import HASH_BYTES
from tacit.bill.protocol.encoding import BillVerdict
from tacit.errors import BillRefused, Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.services.problems import ServiceBusy, problem_from_error
from tacit.services.signatures import SIGNATURE, RequestGate, WrongTime


class QuotaUse:
    """The bytes of one body, which count from their arrival until it is let go."""

    def __init__(self, quota: UploadQuota) -> None:
        self._quota, self._bytes = quota, 0

    def add(self, count: int) -> None:
        """Count `count` more bytes; ServiceBusy where the quota has no room for them."""
        if self._quota.used + count > self._quota.most:
            raise ServiceBusy
        self._quota.used += count
        self._bytes += count

    def let_go(self) -> None:
        self._quota.used -= self._bytes
        self._bytes = 0


class UploadQuota:
    """What all bodies together may take. What is only announced takes nothing: bytes count once they came."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    @contextmanager
    def reserve(self) -> Iterator[QuotaUse]:
        held = QuotaUse(self)
        try:
            yield held
        finally:
            held.let_go()


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Values by key that weigh at most `most` together: those that were not asked for longest go first. Any
    thread may call. A value weighs 1, unless it is said how it is weighed (in bytes, say)."""

    def __init__(self, most: int, weigh: Callable[[Value], int] = lambda _: 1) -> None:
        self._most, self._weigh, self._lock = most, weigh, threading.Lock()
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def drop(self, key: Key) -> None:
        with self._lock:
            if key in self._kept:
                self._weight -= self._weigh(self._kept.pop(key))

    def put(self, key: Key, value: Value) -> Value:
        with self._lock:
            if key in self._kept:
                self._weight -= self._weigh(self._kept.pop(key))
            self._kept[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._most:
                self._weight -= self._weigh(self._kept.popitem(last=False)[1])
            return value


NO_BODY: Message = {"type": "http.response.body", "body": b""}


class PreparedAnswer(NamedTuple):
    """JSON that is the same for all who ask, as it is sent: whole, or to who has it already without a body."""

    etag: bytes
    start: Message
    body: Message
    unchanged: Message

    @classmethod
    def of(cls, body: bytes, etag: str, *headers: tuple[bytes, bytes]) -> PreparedAnswer:
        """With headers for caches, and for pages of whatever origin."""
        quoted = f'"{etag}"'.encode()
        kept = [(b"etag", quoted), *headers, (b"access-control-allow-origin", b"*")]
        described = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        return cls(
            quoted,
            {"type": "http.response.start", "status": 200, "headers": [*described, *kept]},
            {"type": "http.response.body", "body": body},
            {"type": "http.response.start", "status": 304, "headers": kept},
        )

    async def send(self, scope: Scope, send: Send) -> None:
        for name, value in scope["headers"]:
            if name == b"if-none-match" and (self.etag in value or value == b"*"):
                await send(self.unchanged)
                await send(NO_BODY)
                return
        await send(self.start)
        await send(NO_BODY if scope["method"] == "HEAD" else self.body)


Clock = Callable[[], int]
Endpoint = Callable[[Request], Awaitable[Response]]

MOST_MESSAGE_BYTES = 64 * 2**20
"""Between parties that hold the key. A share of a million counts is 8 MB."""


async def read_body(request: Request, most: int, held: QuotaUse | None = None) -> bytes:
    """The body, or Refused(OVERSIZED) as soon as it is known to be longer: it is never held whole.

    Its bytes count on what is `held`; ServiceBusy where there is no room for them.
    """
    claimed = request.headers.get("content-length", "")
    if claimed and not (claimed.isdecimal() and len(claimed) < 16 and int(claimed) <= most):
        raise Refused(MessageVerdict.OVERSIZED)
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > most:
            raise Refused(MessageVerdict.OVERSIZED)
        if held is not None:
            held.add(len(chunk))
        body += chunk
    return bytes(body)


def signed_endpoint(
    gate: RequestGate, clock: Clock, decide: Callable[[Request, bytes], Awaitable[Response]]
) -> Endpoint:
    """An endpoint for requests that pass the gate. Its answers are signed, refusals and failures too, and where
    only a request's time is wrong; the refusal of a stranger is not."""

    async def endpoint(request: Request) -> Response:
        query = request.scope["query_string"].decode("latin-1")
        path = request.scope["path"] + (f"?{query}" if query else "")
        try:
            nonce, digest = gate.admit(request.method, path, request.headers, clock())
        except WrongTime as wrong:
            return _signed_by(gate, wrong.nonce, problem_from_error(wrong))
        try:
            body = await read_body(request, MOST_MESSAGE_BYTES)
            if not hmac.compare_digest(hashlib.sha256(body).hexdigest(), digest):
                raise Refused(MessageVerdict.UNAUTHENTICATED)
            await gate.admit_everywhere(nonce, clock())
            response = await decide(request, body)
        except Exception as error:  # whatever it was, the caller must know that it comes from us
            response = problem_from_error(error)
        return _signed_by(gate, nonce, response)

    return endpoint


def _signed_by(gate: RequestGate, nonce: str, response: Response) -> Response:
    signature = gate.exchange.response_signature(nonce, response.status_code, bytes(response.body))
    response.headers[SIGNATURE] = signature
    return response


def bytes_from_path(request: Request, name: str, size: int) -> bytes:
    """`size` bytes that a part of the path spells in hexadecimal; there is nothing at any other path."""
    spelled = request.path_params[name]
    try:
        found = bytes.fromhex(spelled)
    except ValueError:
        found = b""
    if len(found) != size or found.hex() != spelled:
        raise Refused(MessageVerdict.UNKNOWN_ROUND)
    return found


def menu_id_of(spelled: str) -> bytes:
    """A menu's id as paths spell it; BillRefused(UNKNOWN_MENU) for whatever else."""
    try:
        found = bytes.fromhex(spelled)
    except ValueError:
        found = b""
    if len(found) != HASH_BYTES or found.hex() != spelled:
        raise BillRefused(BillVerdict.UNKNOWN_MENU)
    return found


PIECE_BYTES = 65_536


def stream_in_pieces(answer: Response) -> Response:
    """The same answer; the next piece is handed over when the one before has left."""
    body = bytes(answer.body)
    if len(body) <= PIECE_BYTES:
        return answer

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), PIECE_BYTES):
            yield body[start : start + PIECE_BYTES]

    return StreamingResponse(pieces(), answer.status_code, dict(answer.headers))
