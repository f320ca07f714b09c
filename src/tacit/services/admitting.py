"""Bodies that are never larger than they may be, and endpoints that only a party with the key can use."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from tacit.errors import Refused
from tacit.gather.wire.refusals import Refusal
from tacit.services.holding import Held
from tacit.services.problems import problem_of
from tacit.services.signing import SIGNATURE, Gate, WrongTime

Clock = Callable[[], int]
Endpoint = Callable[[Request], Awaitable[Response]]

MOST_MESSAGE_BYTES = 64 * 2**20
"""Between parties that hold the key. A share of a million counts is 8 MB."""


async def body_within(request: Request, most: int, held: Held | None = None) -> bytes:
    """The body, or Refused(OVERSIZED) as soon as it is known to be longer: it is never held whole.

    Its bytes count on what is `held`; Busy where there is no room for them.
    """
    claimed = request.headers.get("content-length", "")
    if claimed and not (claimed.isdecimal() and len(claimed) < 16 and int(claimed) <= most):
        raise Refused(Refusal.OVERSIZED)
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > most:
            raise Refused(Refusal.OVERSIZED)
        if held is not None:
            held.add(len(chunk))
        body += chunk
    return bytes(body)


def signed(gate: Gate, clock: Clock, decide: Callable[[Request, bytes], Awaitable[Response]]) -> Endpoint:
    """An endpoint for requests that pass the gate. Its answers are signed, refusals and failures too, and where
    only a request's time is wrong; the refusal of a stranger is not."""

    async def endpoint(request: Request) -> Response:
        query = request.scope["query_string"].decode("latin-1")
        path = request.scope["path"] + (f"?{query}" if query else "")
        try:
            nonce, digest = gate.admit(request.method, path, request.headers, clock())
        except WrongTime as wrong:
            return _signed_by(gate, wrong.nonce, problem_of(wrong))
        try:
            body = await body_within(request, MOST_MESSAGE_BYTES)
            if not hmac.compare_digest(hashlib.sha256(body).hexdigest(), digest):
                raise Refused(Refusal.UNAUTHENTICATED)
            response = await decide(request, body)
        except Exception as error:  # whatever it was, the caller must know that it comes from us
            response = problem_of(error)
        return _signed_by(gate, nonce, response)

    return endpoint


def _signed_by(gate: Gate, nonce: str, response: Response) -> Response:
    signature = gate.exchange.response_signature(nonce, response.status_code, bytes(response.body))
    response.headers[SIGNATURE] = signature
    return response
