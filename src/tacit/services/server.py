"""The server as a web service: it works through the proxy's jobs, and gives out results; it meets no device.

    POST /jobs, /agreements, /shares              from the proxy, signed
    POST /rounds                                  open a round here and at the proxy (signed by the operator)
    GET  /rounds                                  names, phases and digests (signed by the operator)
    GET  /rounds/{digest}/result                  JSON, or msgpack where Accept asks for application/msgpack
    GET  /healthz, /readyz, /metrics              for operators: see `operations`

Where it bills, too, `billing_server` adds its routes.

A result that is not there yet (409, not-yet) and one that never will be (410, too-few) are different answers.

Results are public: whoever knows a round's digest may ask. A request that the operator signed gets a signed
answer. Any other answer to a GET, here and at the proxy, is *not* signed: that it comes from this party is
known by its TLS certificate alone. (A device checks what a round says: that it is sealed to the keys it knows,
and that its noise keeps its promise. Every upload is bound to the round's digest.)
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.errors import TacitError
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.rounds import Round
from tacit.gather.server.party import Server
from tacit.gather.server.store import ServerPhase, ServerStore
from tacit.services.background import (
    HEALTH_SECONDS,
    NOTHING_MORE,
    AppPart,
    BackgroundTask,
    Health,
    HealthCheck,
    LookTask,
    Retention,
    store_checks,
)
from tacit.services.endpoints import (
    Clock,
    Endpoint,
    LruCache,
    bytes_from_path,
    signed_endpoint,
    stream_in_pieces,
)
from tacit.services.http_clients import MSGPACK, ClocksDiffer, LinkFailed
from tacit.services.operations.app import Operations
from tacit.services.problems import OtherPartyUnreachable, TroubleLog
from tacit.services.rounds import AnnouncedRound, LedgerAccounts, expect_granted
from tacit.services.signatures import SIGNATURE, Party, RequestGate

MOST_RESULTS = 16  # as they are sent; one of a million counts has 9 MB, or some more in JSON


class RoundOpener(Protocol):
    """Opens rounds at the proxy; OSError where it does not answer."""

    def open_round(self, announced: AnnouncedRound) -> None: ...


class RetentionServerStore(ServerStore, Protocol):
    """A server's store that can delete the report ids of a settled round."""

    def forget(self, digest: bytes) -> None: ...


class ProxyWatch:
    """Whether the proxy answers a signed call, asked every few seconds beside the requests.

    Every process asks for itself: each has a network of its own, and answers its own /healthz. Without the
    proxy a server is degraded and no more: menus are offered until their epoch ends, and its API goes on.
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        """`ask` raises an OSError where there is no answer, or the clocks differ."""
        self._ask, self.works = ask, True
        self._trouble = TroubleLog("the proxy answers again", logging.WARNING)

    def look(self) -> float:
        """Ask; the seconds until the next time."""
        trouble = ""
        try:
            self._ask()
        except OSError as problem:
            said = str(problem) if isinstance(problem, LinkFailed) else type(problem).__name__
            trouble = f"the proxy does not answer: {said}"
        except TacitError:  # an answer, if not the one that was hoped for
            pass
        self.works = not trouble
        self._trouble.tell(trouble)
        return HEALTH_SECONDS


def create_app(
    server: Server,
    store: RetentionServerStore,
    accounts: LedgerAccounts,
    proxy: RoundOpener,
    proxy_gate: RequestGate,
    operator_gate: RequestGate,
    *,
    clock: Clock,
    keep_days: int,
    watched: Mapping[str, HealthCheck],
    billing: AppPart = NOTHING_MORE,
    operations: Operations | None = None,
    ask_link: Callable[[], None] | None = None,
) -> Starlette:
    """The service as a value: who may ask what is in its routes. /healthz tells of `watched`, too, and of the
    proxy where `ask_link` asks it something."""

    watch = None if ask_link is None else ProxyWatch(ask_link)
    linked: dict[str, HealthCheck] = {} if watch is None else {"link": lambda: watch.works}
    health = Health({**store_checks(store, accounts), **linked, **watched, **billing.checks})
    one_at_a_time = asyncio.Lock()  # a message that is sent again finds the answer, and not its twin at work

    def from_proxy(path: str, decide: Callable[[bytes, int], bytes]) -> Route:
        deciding = partial(_decide, decide, clock, one_at_a_time)
        return Route(path, signed_endpoint(proxy_gate, clock, deciding), methods=["POST"])

    def from_operator(decide: Callable[[Request, bytes], Awaitable[Response]]) -> Endpoint:
        return signed_endpoint(operator_gate, clock, decide)

    results = partial(_result, server, clock, LruCache[tuple[bytes, str], bytes](MOST_RESULTS))
    signed_results = from_operator(lambda request, _body: results(request))

    async def result(request: Request) -> Response:
        if SIGNATURE in request.headers:
            return await signed_results(request)
        return stream_in_pieces(await results(request))

    routes = [
        from_proxy("/jobs", server.job),
        from_proxy("/agreements", server.agree),
        from_proxy("/shares", server.share),
        Route("/rounds", from_operator(partial(_open, server, accounts, proxy)), methods=["POST"]),
        Route("/rounds", from_operator(partial(_list, store)), methods=["GET"]),
        Route("/rounds/{digest}/result", result, methods=["GET"]),
    ]

    def works() -> list[BackgroundTask]:
        return [] if watch is None else [LookTask(watch.look, HEALTH_SECONDS)]

    def owned_works() -> list[BackgroundTask]:
        return [Retention(store, clock=clock, keep_days=keep_days)]

    return (operations or Operations(Party.SERVER)).make_app(routes, health, works, billing, owned_works)


async def _decide(
    decide: Callable[[bytes, int], bytes], clock: Clock, lock: asyncio.Lock, _request: Request, body: bytes
) -> Response:
    async with lock:
        return Response(await asyncio.to_thread(decide, body, clock()), media_type=MSGPACK)


async def _open(
    server: Server, accounts: LedgerAccounts, proxy: RoundOpener, _request: Request, body: bytes
) -> Response:
    announced = AnnouncedRound.from_bytes(body)
    try:
        await asyncio.to_thread(open_at_both, server, accounts, proxy, announced)
    except ClocksDiffer as problem:
        raise OtherPartyUnreachable(str(problem)) from None
    except OSError as problem:
        said = str(problem) if isinstance(problem, LinkFailed) else type(problem).__name__
        raise OtherPartyUnreachable(f"the proxy does not answer it ({said}): ask again") from None
    return JSONResponse({"digest": announced.round.digest.hex()}, 201)


def open_at_both(
    server: Server, accounts: LedgerAccounts, proxy: RoundOpener, announced: AnnouncedRound
) -> None:
    """Here first, so that no report can be on its way for a round that the server does not know; nowhere where
    the server's ledger cannot pay (NotGranted). Again: the same round, which changes nothing."""
    expect_granted(accounts, announced.round, PartyRole.SERVER)
    server.open_round(announced.round)
    proxy.open_round(announced)


@dataclass(frozen=True)
class OwnRounds:
    """Rounds that the server opens by itself, and what they released: as for its operator, without a call."""

    server: Server
    accounts: LedgerAccounts
    proxy: RoundOpener

    def expect_granted(self, round: Round, beside: Iterable[Round] = ()) -> None:
        expect_granted(self.accounts, round, PartyRole.SERVER, beside)

    def open(self, announced: AnnouncedRound) -> None:
        open_at_both(self.server, self.accounts, self.proxy, announced)

    def result(self, digest: bytes, now: int) -> RoundResult:
        return self.server.result(digest, now)


async def _list(store: ServerStore, _request: Request, _body: bytes) -> Response:
    stored = await asyncio.to_thread(store.rounds)
    return JSONResponse([_round_record(Round.from_bytes(each.body), each.phase) for each in stored])


def _round_record(round: Round, phase: ServerPhase) -> dict[str, object]:
    return {
        "task": round.task,
        "level": round.level,
        "phase": str(phase),
        "closes": round.closes,
        "digest": round.digest.hex(),
    }


async def _result(
    server: Server, clock: Clock, known: LruCache[tuple[bytes, str], bytes], request: Request
) -> Response:
    digest = bytes_from_path(request, "digest", 32)
    media = MSGPACK if MSGPACK in request.headers.get("accept", "") else "application/json"
    body = known.get((digest, media))
    if body is None:  # a result never changes: asked for again, it costs no transaction
        result = await asyncio.to_thread(server.result, digest, clock())
        written = result.to_bytes if media == MSGPACK else partial(_json, result)
        body = known.put((digest, media), await asyncio.to_thread(written))
    return Response(body, media_type=media)


def _json(result: RoundResult) -> bytes:
    return json.dumps(
        {
            "digest": result.digest.hex(),
            "count": result.count,
            "values": result.values.tolist(),
            "noise_variance": result.noise_variance,
        }
    ).encode()
