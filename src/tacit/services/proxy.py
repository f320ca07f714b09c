"""The proxy as a web service: devices fetch rounds and put uploads, the server opens rounds.

    GET  /rounds                                  the rounds that take reports now
    GET  /rounds/{digest}                         one round
    GET  /rounds/{digest}/status                  how far it is
    PUT  /rounds/{digest}/reports/{report_id}     an upload; the same bytes again are the same report
    POST /rounds                                  open a round (signed by the server)
    GET  /healthz

A device's address is seen here, as it must be, and kept nowhere: not in the store, not in a log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.errors import Refused
from tacit.gather.proxy.driving import Link
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.store import Phase, ProxyStore, StoredRound
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.uploads import Upload, upload_bytes
from tacit.services import announcing
from tacit.services.admitting import Clock, body_within, signed
from tacit.services.announcing import Announced, Questions
from tacit.services.batching import Batcher
from tacit.services.driving import Driver
from tacit.services.problems import HANDLERS, LastResort
from tacit.services.settings import Pace
from tacit.services.signing import Gate

MSGPACK = "application/msgpack"


class Intake:
    """What the endpoints share: rounds as they were last read, and the batcher."""

    def __init__(self, proxy: Proxy, store: ProxyStore, questions: Questions, clock: Clock, pace: Pace) -> None:
        self.proxy, self.store, self.questions, self.clock = proxy, store, questions, clock
        self.read: dict[bytes, Round] = {}  # a round never changes, only its phase does
        self._listed: tuple[int, bytes] | None = None  # the second at which the list was made
        self.batcher: Batcher[bytes, Refusal] = Batcher(
            self._take,
            wait_seconds=pace.commit_wait_ms / 1000,
            most=pace.commit_most,
            waiting_most=pace.waiting_most,
        )

    def _take(self, uploads: Sequence[bytes]) -> Sequence[Refusal]:
        return self.proxy.take(uploads, self.clock())

    def open(self, announced: Announced) -> None:
        # The question first: a round that is open can be asked for.
        self.questions.keep(announced.round.question, announced.question)
        self.proxy.open_round(announced.round)
        self._listed = None

    def stored(self, digest: bytes) -> StoredRound:
        found = self.store.round(digest)
        if found is None:
            raise Refused(Refusal.UNKNOWN_ROUND)
        return found

    def round(self, digest: bytes) -> Round:
        if digest not in self.read:
            self.read[digest] = Round.from_bytes(self.stored(digest).body)
        return self.read[digest]

    def listed(self) -> bytes:
        """The open rounds, made anew at most once a second."""
        now = self.clock()
        if self._listed is None or self._listed[0] != now:
            rounds = [Round.from_bytes(each.body) for each in self.store.rounds() if each.phase is Phase.OPEN]
            here = [each for each in rounds if each.opens - each.skew <= now < each.closes + each.skew]
            parts = [(each.to_bytes(), self.questions.find(each.question)) for each in here]
            self._listed = now, announcing.to_bytes(parts)
        return self._listed[1]


def app(
    proxy: Proxy, store: ProxyStore, questions: Questions, link: Link, gate: Gate, *, clock: Clock, pace: Pace
) -> Starlette:
    """The service as a value; its background work begins and ends with it."""
    intake = Intake(proxy, store, questions, clock, pace)
    driver = partial(
        Driver,
        proxy, store, link, clock=clock, enough=pace.job_reports, every_seconds=pace.look_every_ms / 1000,
    )  # fmt: skip
    routes = [
        Route("/healthz", _health, methods=["GET"]),
        Route("/rounds", partial(_list, intake), methods=["GET"]),
        Route("/rounds", signed(gate, clock, partial(_open, intake)), methods=["POST"]),
        Route("/rounds/{digest}", partial(_show, intake), methods=["GET"]),
        Route("/rounds/{digest}/status", partial(_status, intake), methods=["GET"]),
        Route("/rounds/{digest}/reports/{report_id}", partial(_put, intake), methods=["PUT"]),
    ]
    return Starlette(
        routes=routes,
        exception_handlers=HANDLERS,
        middleware=[Middleware(LastResort)],
        lifespan=partial(_background, intake.batcher, driver),
    )


@asynccontextmanager
async def _background(
    batcher: Batcher[bytes, Refusal], driver: partial[Driver], _app: Starlette
) -> AsyncIterator[None]:
    driving = driver()
    tasks = [asyncio.create_task(batcher.run()), asyncio.create_task(driving.run())]
    try:
        yield
    finally:
        batcher.end()
        driving.end()
        await asyncio.gather(*tasks)


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _list(intake: Intake, _request: Request) -> Response:
    return Response(await asyncio.to_thread(intake.listed), media_type=MSGPACK)


async def _show(intake: Intake, request: Request) -> Response:
    round = await asyncio.to_thread(intake.round, from_path(request, "digest", 32))
    question = await asyncio.to_thread(intake.questions.find, round.question)
    return Response(Announced(round, question).to_bytes(), media_type=MSGPACK)


async def _status(intake: Intake, request: Request) -> Response:
    found = await asyncio.to_thread(intake.stored, from_path(request, "digest", 32))
    return JSONResponse({"phase": str(found.phase)})


async def _open(intake: Intake, _request: Request, body: bytes) -> Response:
    announced = Announced.from_bytes(body)
    await asyncio.to_thread(intake.open, announced)
    return JSONResponse({"digest": announced.round.digest.hex()}, 201)


async def _put(intake: Intake, request: Request) -> Response:
    digest, report_id = from_path(request, "digest", 32), from_path(request, "report_id", 16)
    round = intake.read.get(digest) or await asyncio.to_thread(intake.round, digest)
    body = await body_within(request, upload_bytes(round))
    upload = Upload.from_bytes(body)
    if (upload.digest, upload.report_id) != (digest, report_id):
        raise Refused(Refusal.MALFORMED, "expected the upload that its path names")
    refusal = await intake.batcher.decided(body)
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
