"""The proxy as a web service: devices fetch rounds and put uploads, the server opens rounds.

    GET  /rounds                                  the rounds that take reports now
    GET  /rounds/{digest}                         one round
    GET  /rounds/{digest}/status                  how far it is
    PUT  /rounds/{digest}/reports/{report_id}     an upload; the same bytes again are the same report
    POST /rounds                                  open a round (signed by the server)
    GET  /healthz                                 whether store, disk, ledger and link are well

A device's address is seen here, as it must be, and kept nowhere: not in the store, not in a log. (While its
connection lasts it is in memory, where connections are counted by address.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.entropy import Entropy, Simulation
from tacit.errors import Refused
from tacit.gather.proxy.driving import Link
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.store import ProxyStore
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.sealing import Role
from tacit.services.admitting import Clock, body_within, signed
from tacit.services.announcing import Announced, Questions
from tacit.services.answering import in_pieces
from tacit.services.driving import Driver, Reach, Timer
from tacit.services.forgetting import DAY_SECONDS, Forgetting
from tacit.services.granting import Accounts, expect_granted
from tacit.services.health import Check, Health, looked_up
from tacit.services.intake import Intake
from tacit.services.linking import MSGPACK
from tacit.services.live import LiveRounds
from tacit.services.problems import HANDLERS, LastResort
from tacit.services.settings import Pace
from tacit.services.signing import Gate


class ForgettingProxyStore(ProxyStore, Protocol):
    """A proxy's store that can delete who reported in a settled round."""

    def forget(self, digest: bytes) -> None: ...


def app(
    proxy: Proxy,
    store: ForgettingProxyStore,
    accounts: Accounts,
    questions: Questions,
    link: Link,
    gate: Gate,
    *,
    enrolment_secret: bytes,
    clock: Clock,
    timer: Timer,
    entropy: Entropy | Simulation,
    pace: Pace,
    keep_days: int,
    watched: Mapping[str, Check],
) -> Starlette:
    """The service as a value; its background work begins and ends with it. /healthz tells of `watched`, too."""
    reach = Reach()
    health = Health({**looked_up(store, accounts), "link": lambda: reach.works, **watched})
    live = LiveRounds(store, not_before=clock() - keep_days * DAY_SECONDS)
    intake = Intake(
        proxy, store, live, questions, enrolment_secret=enrolment_secret, clock=clock, pace=pace
    )  # fmt: skip

    def works() -> list[Work]:
        every_seconds = pace.look_every_ms / 1000
        return [
            health,
            intake.batcher,
            Driver(
                proxy, store, live, link, reach=reach, clock=clock, timer=timer, entropy=entropy,
                enough=pace.job_reports, every_seconds=every_seconds,
            ),
            Forgetting(store, clock=clock, keep_days=keep_days),
        ]  # fmt: skip

    routes = [
        Route("/healthz", health.endpoint, methods=["GET"]),
        Route("/rounds", partial(_list, intake), methods=["GET"]),
        Route("/rounds", signed(gate, clock, partial(_open, intake, accounts)), methods=["POST"]),
        Route("/rounds/{digest}", partial(_show, intake), methods=["GET"]),
        Route("/rounds/{digest}/status", partial(_status, intake), methods=["GET"]),
        Route("/rounds/{digest}/reports/{report_id}", partial(_put, intake), methods=["PUT"]),
    ]
    return Starlette(
        routes=routes,
        exception_handlers=HANDLERS,
        middleware=[Middleware(LastResort)],
        lifespan=partial(background, works),
    )


class Work(Protocol):
    """Something that goes on until it is told to end."""

    async def run(self) -> None: ...

    def end(self) -> None: ...


@asynccontextmanager
async def background(works: Callable[[], Sequence[Work]], _app: Starlette) -> AsyncIterator[None]:
    """What goes on beside the requests, from the first to the last of them."""
    running = works()  # made here, in the loop that they belong to
    tasks = [asyncio.create_task(each.run()) for each in running]
    try:
        yield
    finally:
        for each in running:
            each.end()
        await asyncio.gather(*tasks)


async def _list(intake: Intake, _request: Request) -> Response:
    return in_pieces(Response(await asyncio.to_thread(intake.listed), media_type=MSGPACK))


async def _show(intake: Intake, request: Request) -> Response:
    known = await asyncio.to_thread(intake.known, from_path(request, "digest", 32))
    question = await asyncio.to_thread(intake.questions.find, known.round.question)
    return in_pieces(Response(Announced(known.round, question).to_bytes(), media_type=MSGPACK))


async def _status(intake: Intake, request: Request) -> Response:
    found = await asyncio.to_thread(intake.stored, from_path(request, "digest", 32))
    return JSONResponse({"phase": str(found.phase)})


async def _open(intake: Intake, accounts: Accounts, _request: Request, body: bytes) -> Response:
    announced = Announced.from_bytes(body)
    await asyncio.to_thread(expect_granted, accounts, announced.round, Role.PROXY)
    await asyncio.to_thread(intake.open, announced)
    return JSONResponse({"digest": announced.round.digest.hex()}, 201)


async def _put(intake: Intake, request: Request) -> Response:
    digest, report_id = from_path(request, "digest", 32), from_path(request, "report_id", 16)
    known = intake.remembered(digest)
    if known is None:
        known = await asyncio.to_thread(intake.known, digest)
    with intake.room.held() as held:
        body = await body_within(request, known.layout.size, held)
        report = intake.report_in(body, known, report_id)  # whoever is no enrolled device never waits
        refusal = await intake.batcher.decided(report)
    if refusal is not Refusal.ACCEPTED:
        raise Refused(refusal)
    return Response(status_code=201)


def from_path(request: Request, name: str, size: int) -> bytes:
    """So many bytes in hexadecimal; there is nothing at any other path."""
    spelled = request.path_params[name]
    try:
        found = bytes.fromhex(spelled)
    except ValueError:
        found = b""
    if len(found) != size or found.hex() != spelled:
        raise Refused(Refusal.UNKNOWN_ROUND)
    return found
