"""A party's app with what its operators see of it: /healthz, /readyz, /metrics, and every request counted.

/readyz is for load balancers. It answers 503

    starting   until health was looked at, and an epoch with menus is there (parties that bill)
    failing    while /healthz says so
    draining   from the moment at which the service was asked to end

and 200 otherwise. A party that was ready once stays so while no epoch is open: reports of the epoch before and
batches still have to come in, and budgets to be raised; that no menu is offered is for /healthz and its alert.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from tacit.services.background import (
    AloneOwner,
    AppPart,
    BackgroundTask,
    Health,
    HealthCheck,
    Look,
    Owner,
    Reading,
    join_parts,
    keep_looking,
    run_background,
)
from tacit.services.log import error_line
from tacit.services.operations.metrics import (
    MeasuringMiddleware,
    MetricsGate,
    PartyMetrics,
    ReadingsCollector,
    answer_metrics,
)
from tacit.services.operations.settings import OperationsSettings
from tacit.services.problems import HANDLERS, CatchAllMiddleware, TroubleLog
from tacit.services.signatures import Party

LOOK_SECONDS = 10.0


class Readiness:
    """Whether a load balancer may send requests here."""

    def __init__(self) -> None:
        self._health: Health | None = None
        self._needed: Mapping[str, HealthCheck] = {}
        self._began = self.is_draining = False

    def watch(self, health: Health, needed: Mapping[str, HealthCheck]) -> None:
        self._health, self._needed = health, needed

    def drain(self) -> None:
        """From now on not, for ever: the service is to end."""
        self.is_draining = True

    def missing(self) -> tuple[str, list[str]]:
        """The word for it ("ready" where all is well), and what is missing."""
        if self.is_draining:
            return "draining", []
        if self._health is None or not self._health.has_looked:
            return "starting", ["look"]
        if not self._health.is_vital_well():
            return "failing", sorted(name for name, well in self._health.found().items() if not well)
        if not self._began:
            if lacking := sorted(name for name, check in self._needed.items() if not check()):
                return "starting", lacking
            self._began = True
        return "ready", []

    def health(self) -> dict[str, bool]:
        """What /healthz last found, by check; nothing before it looked."""
        return {} if self._health is None or not self._health.has_looked else self._health.found()

    async def endpoint(self, _request: Request) -> Response:
        word, lacking = await asyncio.to_thread(self.missing)
        told = {"status": word, **({"missing": lacking} if lacking else {})}
        return JSONResponse(told, 200 if word == "ready" else 503)


class Operations:
    """What one party's app has for its operators; made once, before the app."""

    def __init__(
        self,
        party: Party,
        settings: OperationsSettings | None = None,
        *,
        listening: socket.socket | None = None,
        looks: Sequence[Look] = (),
        owner: Owner | None = None,
    ) -> None:
        """`listening` is where operators are answered, if not by the service itself; `owner` says whether this
        process does what one of several does for all (None: it is the only one)."""
        self._listening, self._looks = listening, looks
        self.owner: Owner = owner or AloneOwner()
        self.settings = settings or OperationsSettings()
        self.metrics, self.readiness = PartyMetrics(str(party)), Readiness()
        shown = self.settings.metrics
        self._gate = MetricsGate(local=shown.local, token=shown.secret)
        self._readings = ReadingsCollector()
        self.metrics.registry.register(self._readings)

    def make_app(
        self,
        routes: Sequence[BaseRoute],
        health: Health,
        works: Callable[[], Sequence[BackgroundTask]],
        more: AppPart,
        owned_works: Callable[[], Sequence[BackgroundTask]] = tuple,
    ) -> Starlette:
        """The app of these routes and works, and of what another part adds to them."""
        both = join_parts([AppPart(works=works, owned_works=owned_works), more])
        self.readiness.watch(health, more.needed)
        for meter in more.meters:
            self.metrics.registry.register(meter)
        own = [
            Route("/healthz", health.endpoint, methods=["GET"]),
            Route("/readyz", self.readiness.endpoint, methods=["GET"]),
        ]
        shown = Route("/metrics", partial(answer_metrics, self.metrics, self._gate), methods=["GET"])
        apart = self.settings.metrics.port is not None
        # Routes are tried in this order: those that are asked most come first.
        everything = [*more.routes, *own, *([] if apart else [shown]), *routes]
        self.metrics.know_routes(everything)

        def all_works() -> list[BackgroundTask]:
            looks = [health.readings, self._tell_owner, *self._looks, *more.looks]
            looking = FigureLooker(looks, self._readings, self.metrics)
            found: list[BackgroundTask] = [health, looking, *both.all_works(self.owner)]
            if self._listening is not None:
                beside = Starlette(routes=[*own, shown], exception_handlers=HANDLERS)
                found.append(OperatorsListener(beside, self._listening))
            return found

        app = Starlette(
            routes=everything,
            exception_handlers=HANDLERS,
            middleware=[Middleware(MeasuringMiddleware, self.metrics), Middleware(CatchAllMiddleware)],
            lifespan=partial(run_background, all_works),
        )
        app.router.redirect_slashes = False  # an answer that names whatever host the request did
        app.state.operations = self
        return app

    def _tell_owner(self) -> list[Reading]:
        words = "1 in the process that opens epochs, learns, drives and forgets for all processes of the party"
        return [Reading("tacit_owner", words, float(self.owner.is_held))]


class FigureLooker:
    """Looks all figures up, again and again: who reads /metrics costs no transaction."""

    def __init__(self, looks: Sequence[Look], kept: ReadingsCollector, metrics: PartyMetrics) -> None:
        self._looks, self._kept, self._metrics, self._ended = looks, kept, metrics, asyncio.Event()
        self._trouble = TroubleLog(level=logging.WARNING)

    def look(self) -> float:
        found: list[Reading] = []
        trouble = ""
        for each in self._looks:
            try:
                found += each()
            except Exception as problem:  # the others may do better
                trouble = f"figures of /metrics are missing: {error_line(problem)}"
                self._metrics.failed_looks.inc()
        self._trouble.tell(trouble)
        self._kept.last = found
        return LOOK_SECONDS

    async def run(self) -> None:
        await keep_looking(self.look, self._ended, lambda: LOOK_SECONDS)

    def end(self) -> None:
        self._ended.set()


class _SignalFreeServer(uvicorn.Server):
    """Leaves signals to the service that it belongs to."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class OperatorsListener:
    """The operators' routes at an address of their own, as long as the service goes on."""

    def __init__(self, app: Starlette, listening: socket.socket) -> None:
        config = uvicorn.Config(
            app, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            server_header=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server, self._listening = _SignalFreeServer(config), listening

    async def run(self) -> None:
        await self._server.serve([self._listening])

    def end(self) -> None:
        self._server.should_exit = True
