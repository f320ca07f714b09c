"""The server as a web service: it works through the proxy's jobs, and gives out results; it meets no device.

    POST /jobs, /agreements, /shares              from the proxy, signed
    POST /rounds                                  open a round here and at the proxy (signed by the operator)
    GET  /rounds/{digest}/result                  JSON, or msgpack where Accept asks for application/msgpack
    GET  /healthz

A result that is not there yet (409, not-yet) and one that never will be (410, too-few) are different answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.gather.server.party import Server
from tacit.gather.wire.closing import Result
from tacit.services.admitting import Clock, signed
from tacit.services.announcing import Announced
from tacit.services.problems import HANDLERS, LastResort, OtherUnreachable
from tacit.services.proxy import MSGPACK, from_path
from tacit.services.signing import Gate


class Announcer(Protocol):
    """Opens rounds at the proxy; OSError where it does not answer."""

    def open_round(self, announced: Announced) -> None: ...


def app(server: Server, proxy: Announcer, proxy_gate: Gate, operator_gate: Gate, *, clock: Clock) -> Starlette:
    """The service as a value: who may ask what is in its routes."""

    one_at_a_time = asyncio.Lock()  # a message that is sent again finds the answer, and not its twin at work

    def from_proxy(path: str, decide: Callable[[bytes, int], bytes]) -> Route:
        deciding = partial(_decide, decide, clock, one_at_a_time)
        return Route(path, signed(proxy_gate, clock, deciding), methods=["POST"])

    routes = [
        Route("/healthz", _health, methods=["GET"]),
        from_proxy("/jobs", server.job),
        from_proxy("/agreements", server.agree),
        from_proxy("/shares", server.share),
        Route("/rounds", signed(operator_gate, clock, partial(_open, server, proxy)), methods=["POST"]),
        Route("/rounds/{digest}/result", partial(_result, server, clock, {}), methods=["GET"]),
    ]
    return Starlette(routes=routes, exception_handlers=HANDLERS, middleware=[Middleware(LastResort)])


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _decide(
    decide: Callable[[bytes, int], bytes], clock: Clock, lock: asyncio.Lock, _request: Request, body: bytes
) -> Response:
    async with lock:
        return Response(await asyncio.to_thread(decide, body, clock()), media_type=MSGPACK)


async def _open(server: Server, proxy: Announcer, _request: Request, body: bytes) -> Response:
    """Here first, so that no report can be on its way for a round that the server does not know."""
    announced = Announced.from_bytes(body)
    await asyncio.to_thread(server.open_round, announced.round)
    try:
        await asyncio.to_thread(proxy.open_round, announced)
    except OSError:
        raise OtherUnreachable from None
    return JSONResponse({"digest": announced.round.digest.hex()}, 201)


async def _result(server: Server, clock: Clock, known: dict[bytes, Result], request: Request) -> Response:
    digest = from_path(request, "digest", 32)
    if digest not in known:  # a result never changes: asked for a second time, it costs no transaction
        known[digest] = await asyncio.to_thread(server.result, digest, clock())
    result = known[digest]
    if MSGPACK in request.headers.get("accept", ""):
        return Response(result.to_bytes(), media_type=MSGPACK)
    return JSONResponse(
        {
            "digest": result.digest.hex(),
            "count": result.count,
            "values": result.values.tolist(),
            "noise_variance": result.noise_variance,
        }
    )
