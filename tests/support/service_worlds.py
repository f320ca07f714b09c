"""Both services in one process: the real apps over memory, in an event loop of their own, on a set clock."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.applications import Starlette

from tacit.entropy import Entropy, Simulation
from tacit.errors import Refused
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.promises import Promise
from tacit.gather.protocol.rounds import Round
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.store import ProxyPhase
from tacit.gather.server.party import Server
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.noise.distributions import DiscreteLaplace
from tacit.services import proxy as proxy_service
from tacit.services import server as server_service
from tacit.services.http_clients import (
    HttpLink,
    HttpOperator,
    HttpRounds,
    HttpUploads,
    LinkFailed,
    PublicKeys,
    SignedClient,
    error_from_problem,
    fetch,
)
from tacit.services.rounds import AnnouncedRound, QuestionFiles
from tacit.services.settings import ServicePace
from tacit.services.signatures import ExchangeKeys, Party, RequestGate

Found = TypeVar("Found")

PROXY_URL, SERVER_URL = "https://proxy.test", "https://server.test"
PAIR, OPERATOR, ENROLMENT, CHECK = (bytes([number] * 32) for number in range(1, 5))
KEEP_DAYS = 30
OPENS, CLOSES, SKEW = 1_800_000_000, 1_800_000_600, 5
CELLS = 7

# Each server adds discrete Laplace noise of this scale: real noise, and hardly ever any. One server's is not 0
# with probability 2 q / (1 + q), q = exp(-30), so below 2e-13 per cell.
TINY = Fraction(1, 30)
EVENTS, EACH, LEVELS = 40, 9, 3
# A level changes by at most EVENTS in its totals and as much in clicks with no-clicks.
GRANTED = Budget.of(100_000)
PROMISE = Promise(EVENTS, EACH, LEVELS, 2 * EVENTS * LEVELS / TINY, Fraction(0))


def a_round(proxy: SealingKey, server: SealingKey, **changes: Any) -> Round:
    return replace(
        Round(
            task="trial", level=0, cells=CELLS, question=bytes(32), group=Group.RING64,
            opens=OPENS, closes=CLOSES, skew=SKEW, parties=100, smallest_batch=5,
            noise=ServerNoise(DiscreteLaplace(TINY)), bounds=None, scope="clicks", promise=PROMISE,
            check=bytes(32), proxy_key=proxy.public, server_key=server.public,
        ),
        **changes,
    )  # fmt: skip


class ProxyStore(MemoryProxyStore):
    """Notes what it was told to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[bytes] = []

    def forget(self, digest: bytes) -> None:
        self.forgotten.append(digest)


class ServerStore(MemoryServerStore):
    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[bytes] = []

    def forget(self, digest: bytes) -> None:
        self.forgotten.append(digest)


class Loop:
    """An event loop in a thread, so that code that waits can be tried by code that does not."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        found: Future[Found] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return found.result(10)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


def an_answer(status: int, body: bytes, headers: httpx.Headers | None = None) -> httpx.Response:
    """A response that is still to be read, as it is over a network."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))


Meddle = Callable[[httpx.Request, Callable[[httpx.Request], httpx.Response]], httpx.Response]


def honest(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
    return send(request)


class InProcess(httpx.BaseTransport):
    """Hands requests to the apps by host; `meddle` stands in between, as a network does."""

    def __init__(self, loop: Loop, apps: dict[str, Starlette]) -> None:
        self._loop, self._apps = loop, apps
        self.meddle: Meddle = honest
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.asked.append(f"{request.method} {request.url.host}{request.url.path}")
        return self.meddle(request, self._send)

    def _send(self, request: httpx.Request) -> httpx.Response:
        if request.url.host not in self._apps:
            raise httpx.ConnectError("nobody listens", request=request)
        return self._loop.run(self._sent(self._apps[request.url.host], request))

    async def _sent(self, app: Starlette, request: httpx.Request) -> httpx.Response:
        response = await httpx.ASGITransport(app).handle_async_request(request)
        return an_answer(response.status_code, await response.aread(), response.headers)


class World:
    """A proxy and a server that reach each other, and devices that reach the proxy."""

    def __init__(self, folder: Path, **pace: int) -> None:
        self.now = OPENS
        self.proxy_now: int | None = None  # by its own clock, where that is wrong
        self.server_now: int | None = None
        self.watched: dict[str, Callable[[], bool]] = {}
        self.pace = ServicePace(**{"commit_wait_ms": 2, "look_every_ms": 5, **pace})
        self.keys = {party: SealingKey.generate() for party in (Party.PROXY, Party.SERVER)}
        self.proxy_store, self.server_store = ProxyStore(), ServerStore()
        self.proxy_ledger, self.server_ledger = MemoryLedger(), MemoryLedger()
        self.round = self.a_round()
        for ledger in (self.proxy_ledger, self.server_ledger):
            ledger.grant(self.round.line, GRANTED)
        self._questions = QuestionFiles(folder / "questions")
        self._loop = Loop()
        self._living: dict[str, AbstractAsyncContextManager[Any]] = {}
        self._apps: dict[str, Starlette] = {}
        self.network = InProcess(self._loop, self._apps)
        self.client = httpx.Client(transport=self.network)
        self.start_proxy()
        self.start_server()  # which asks at once whether the proxy is there

    def a_round(self, **changes: Any) -> Round:
        return a_round(self.keys[Party.PROXY], self.keys[Party.SERVER], **changes)

    def clock(self) -> int:
        return self.now

    def clock_of(self, party: Party) -> Callable[[], int]:
        def clock() -> int:
            wrong = {Party.PROXY: self.proxy_now, Party.SERVER: self.server_now}.get(party)
            return self.now if wrong is None else wrong

        return clock

    def calls(self, caller: Party, called: Party, secret: bytes = PAIR) -> SignedClient:
        url = PROXY_URL if called is Party.PROXY else SERVER_URL
        exchange = ExchangeKeys.between(secret, caller=caller, called=called)
        return SignedClient(self.client, url, exchange, entropy=Entropy(), clock=self.clock_of(caller))

    def gate(self, caller: Party, called: Party, secret: bytes = PAIR) -> RequestGate:
        exchange = ExchangeKeys.between(secret, caller=caller, called=called)
        return RequestGate(exchange, tolerance_seconds=60, began=self.clock_of(called)())

    def start_proxy(self, *, pair: bytes = PAIR) -> None:
        """(Re)start the proxy on what its store holds."""
        proxy = Proxy(
            self.keys[Party.PROXY], self.proxy_store, self.proxy_ledger,
            enrolment_secret=ENROLMENT, check_key=CHECK,
        )  # fmt: skip
        app = proxy_service.create_app(
            proxy, self.proxy_store, self.proxy_ledger, self._questions,
            HttpLink(self.calls(Party.PROXY, Party.SERVER, pair)),
            self.gate(Party.SERVER, Party.PROXY),
            enrolment_secret=ENROLMENT, clock=self.clock_of(Party.PROXY), timer=lambda: float(self.now),
            entropy=Simulation("pauses"), pace=self.pace, keep_days=KEEP_DAYS, watched=self.watched,
        )  # fmt: skip
        self._start("proxy.test", app)

    def start_server(self) -> None:
        server = Server(self.keys[Party.SERVER], self.server_store, self.server_ledger, check_key=CHECK)
        app = server_service.create_app(
            server, self.server_store, self.server_ledger,
            HttpRounds(self.calls(Party.SERVER, Party.PROXY)), self.gate(Party.PROXY, Party.SERVER),
            self.gate(Party.OPERATOR, Party.SERVER, OPERATOR), clock=self.clock_of(Party.SERVER),
            keep_days=KEEP_DAYS, watched=self.watched,
            ask_link=HttpRounds(self.calls(Party.SERVER, Party.PROXY)).ask_link,
        )  # fmt: skip
        self._start("server.test", app)

    def _start(self, host: str, app: Starlette) -> None:
        self.stop(host)
        living = app.router.lifespan_context(app)
        self._loop.run(_entered(living))
        self._living[host], self._apps[host] = living, app

    def stop(self, host: str) -> None:
        if host in self._living:
            del self._apps[host]
            self._loop.run(_left(self._living.pop(host)))

    def end(self) -> None:
        self.network.meddle = honest
        for host in list(self._living):
            self.stop(host)
        self._loop.end()

    def open(self, announced: AnnouncedRound | None = None) -> None:
        self.operator().open_round(announced or AnnouncedRound(self.round))

    def operator(self, secret: bytes = OPERATOR) -> HttpOperator:
        return HttpOperator(self.calls(Party.OPERATOR, Party.SERVER, secret))

    def device(self, number: int, **options: Any) -> HttpUploads:
        name, keys = number.to_bytes(16, "little"), PublicKeys(self.round.proxy_key, self.round.server_key)
        reporter = Reporter(
            name, credentials.issue_device_key(ENROLMENT, name), Simulation(number), MemoryDeviceStore(),
            proxy_key=keys.proxy, server_key=keys.server, simulated=True,
        )  # fmt: skip
        return HttpUploads(
            self.client, PROXY_URL, reporter, keys,
            **{"entropy": Simulation(number), "sleep": lambda _: None, **options},
        )  # fmt: skip

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Background work has a few seconds."""
        end = time.monotonic() + 5
        while not done():
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.005)


async def _entered(living: AbstractAsyncContextManager[Any]) -> None:
    await living.__aenter__()


async def _left(living: AbstractAsyncContextManager[Any]) -> None:
    await living.__aexit__(None, None, None)


@contextmanager
def a_world(folder: Path, **pace: int) -> Iterator[World]:
    world = World(folder, **pace)
    try:
        yield world
    finally:
        world.end()


def counts_of(number: int, cells: int = CELLS) -> NDArray[np.int64]:
    """What device `number` answers: other counts for each."""
    return (np.arange(cells, dtype=np.int64) * number) % 10


def reason(work: Callable[[], Any]) -> MessageVerdict:
    with pytest.raises(Refused) as caught:
        work()
    found: MessageVerdict = caught.value.reason
    return found


def fetch_result(client: httpx.Client, url: str, digest: bytes) -> RoundResult:
    """A round's result, as anybody may ask for it; NotYet, TooFew or Refused where there is none.

    The answer is not signed: that it is the server's is known by its TLS certificate alone.
    """
    place = f"{url}/rounds/{digest.hex()}/result"
    answer = fetch(client, client.build_request("GET", place, headers={"accept": "application/msgpack"}))
    if answer.status >= 500:
        raise LinkFailed(f"the server failed with status {answer.status}")
    if answer.status != 200:
        raise error_from_problem(answer.body)
    return RoundResult.from_bytes(answer.body)


def settle(world: World) -> None:
    world.now = max(world.now, CLOSES + SKEW)
    digest = world.round.digest
    world.wait_until(lambda: world.proxy_store.rounds()[0].phase in (ProxyPhase.RELEASED, ProxyPhase.TOO_FEW))
    assert world.proxy_store.round(digest) is not None


def put(world: World, body: bytes, *, digest: str | None = None, report: str | None = None) -> httpx.Response:
    digest = world.round.digest.hex() if digest is None else digest
    return world.client.put(f"{PROXY_URL}/rounds/{digest}/reports/{report or '00' * 16}", content=body)


def an_upload(world: World, number: int) -> tuple[bytes, str]:
    """The bytes that device `number` sends, and its report's id."""
    body = world.device(number)._reporter.upload(world.round, counts_of(number))
    report_id = msgpack.unpackb(body)[3]
    assert isinstance(report_id, bytes)
    return body, report_id.hex()
