"""The proxy as a web service: devices fetch rounds and put uploads, the server opens rounds.

    GET  /rounds                                  the rounds that take reports now
    GET  /rounds/{digest}                         one round
    GET  /rounds/{digest}/status                  how far it is
    PUT  /rounds/{digest}/reports/{report_id}     an upload; the same bytes again are the same report
    POST /rounds                                  open a round (signed by the server)
    GET  /link                                    nothing, and that the proxy is there (signed by the server)
    GET  /healthz, /readyz, /metrics              for operators: see `operations`

Where it bills, too, `billing_proxy` adds its routes. Devices that are pages call from any origin: rounds and
uploads may be asked for and handed in from everywhere (`any_origin`).

A device's address is seen here, as it must be, and kept nowhere: not in the store, not in a log. (While its
connection lasts it is in memory, where connections are counted by address.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.entropy import Entropy, Simulation
from tacit.errors import Refused
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.proxy.party import Proxy, ServerLink
from tacit.gather.proxy.store import ProxyStore
from tacit.services.any_origin import page_routes
from tacit.services.background import (
    DAY_SECONDS,
    NOTHING_MORE,
    AppPart,
    BackgroundTask,
    Health,
    HealthCheck,
    LookTask,
    Retention,
    store_checks,
)
from tacit.services.endpoints import Clock, bytes_from_path, read_body, signed_endpoint, stream_in_pieces
from tacit.services.http_clients import MSGPACK
from tacit.services.operations.app import Operations
from tacit.services.proxy_driver import LinkState, RoundDriver, Timer
from tacit.services.proxy_intake import REFRESH_SECONDS, Intake, UnsettledRounds
from tacit.services.rounds import AnnouncedRound, LedgerAccounts, QuestionFiles, expect_granted
from tacit.services.settings import ServicePace
from tacit.services.signatures import Party, RequestGate


class RetentionProxyStore(ProxyStore, Protocol):
    """A proxy's store that can delete who reported in a settled round."""

    def forget(self, digest: bytes) -> None: ...


def create_app(
    proxy: Proxy,
    store: RetentionProxyStore,
    accounts: LedgerAccounts,
    questions: QuestionFiles,
    link: ServerLink,
    gate: RequestGate,
    *,
    enrolment_secret: bytes,
    clock: Clock,
    timer: Timer,
    entropy: Entropy | Simulation,
    pace: ServicePace,
    keep_days: int,
    watched: Mapping[str, HealthCheck],
    billing: AppPart = NOTHING_MORE,
    operations: Operations | None = None,
) -> Starlette:
    """The service as a value; its background work begins and ends with it. /healthz tells of `watched`, too."""
    operations = operations or Operations(Party.PROXY)
    reach = LinkState()
    health = Health({**store_checks(store, accounts), "link": lambda: reach.works, **watched, **billing.checks})
    live = UnsettledRounds(store, not_before=clock() - keep_days * DAY_SECONDS)
    intake = Intake(
        proxy, store, live, questions, enrolment_secret=enrolment_secret, clock=clock, pace=pace
    )  # fmt: skip

    def works() -> list[BackgroundTask]:
        refreshing = [LookTask(live.refresh, REFRESH_SECONDS)] if operations.owner.is_shared else []
        return [intake.batcher, *refreshing]

    def owned_works() -> list[BackgroundTask]:
        every_seconds = pace.look_every_ms / 1000
        return [
            RoundDriver(
                proxy, store, live, link, reach=reach, clock=clock, timer=timer, entropy=entropy,
                enough=pace.job_reports, every_seconds=every_seconds,
            ),
            Retention(store, clock=clock, keep_days=keep_days),
        ]  # fmt: skip

    routes = [
        *page_routes("/rounds", GET=partial(_list, intake)),
        Route("/rounds", signed_endpoint(gate, clock, partial(_open, intake, accounts)), methods=["POST"]),
        Route("/link", signed_endpoint(gate, clock, _answer_link), methods=["GET"]),
        *page_routes("/rounds/{digest}", GET=partial(_show, intake)),
        Route("/rounds/{digest}/status", partial(_status, intake), methods=["GET"]),
        *page_routes("/rounds/{digest}/reports/{report_id}", PUT=partial(_put, intake)),
    ]
    return operations.make_app(routes, health, works, billing, owned_works)


async def _list(intake: Intake, _request: Request) -> Response:
    return stream_in_pieces(Response(await asyncio.to_thread(intake.open_rounds), media_type=MSGPACK))


async def _answer_link(_request: Request, _body: bytes) -> Response:
    """Whoever may ask is told that both share a secret, and a time within the tolerance."""
    return JSONResponse({})


async def _show(intake: Intake, request: Request) -> Response:
    known = await asyncio.to_thread(intake.known_round, bytes_from_path(request, "digest", 32))
    question = await asyncio.to_thread(intake.questions.find, known.round.question)
    return stream_in_pieces(Response(AnnouncedRound(known.round, question).to_bytes(), media_type=MSGPACK))


async def _status(intake: Intake, request: Request) -> Response:
    found = await asyncio.to_thread(intake.stored_round, bytes_from_path(request, "digest", 32))
    return JSONResponse({"phase": str(found.phase)})


async def _open(intake: Intake, accounts: LedgerAccounts, _request: Request, body: bytes) -> Response:
    announced = AnnouncedRound.from_bytes(body)
    await asyncio.to_thread(expect_granted, accounts, announced.round, PartyRole.PROXY)
    await asyncio.to_thread(intake.open, announced)
    return JSONResponse({"digest": announced.round.digest.hex()}, 201)


async def _put(intake: Intake, request: Request) -> Response:
    digest, report_id = bytes_from_path(request, "digest", 32), bytes_from_path(request, "report_id", 16)
    known = intake.cached_round(digest)
    if known is None:
        known = await asyncio.to_thread(intake.known_round, digest)
    with intake.quota.reserve() as held:
        body = await read_body(request, known.layout.size, held)
        report = intake.report_in(body, known, report_id)  # what comes from no enrolled device never waits
        refusal = await intake.batcher.submit(report)
    if refusal is not MessageVerdict.ACCEPTED:
        raise Refused(refusal)
    return Response(status_code=201)
