"""Starts a party from its settings: opens its stores, builds the app, and serves until asked to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
import uvicorn
from starlette.applications import Starlette

from tacit.config import blame_key
from tacit.entropy import Entropy
from tacit.errors import BadInput, BillError, GatherError
from tacit.files import hold_lock
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.rounds import check_key_hash
from tacit.gather.proxy.party import Proxy
from tacit.gather.server.party import Server
from tacit.services import proxy as proxy_service
from tacit.services import server as server_service
from tacit.services.background import NOTHING_MORE, AppPart, HealthCheck, has_free_disk
from tacit.services.billing_clients import HttpBillingOperator
from tacit.services.connections import http_protocol, parting_places, reserve_places
from tacit.services.http_clients import (
    ClocksDiffer,
    HttpLink,
    HttpOperator,
    HttpRounds,
    LinkFailed,
    OtherPartyFailed,
    SignedClient,
    open_client,
)
from tacit.services.log import configure_logging
from tacit.services.operations.app import Operations
from tacit.services.operations.readings import look_at_disks, look_at_ledger, look_at_rounds
from tacit.services.problems import LOG
from tacit.services.rounds import QuestionFiles
from tacit.services.server import OwnRounds
from tacit.services.settings import ListenSettings, Parties, PartySettings, ServicePace
from tacit.services.signatures import ExchangeKeys, Party, RequestGate, derive_key
from tacit.store.figures import takes_writes
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tacit.store.ownership import OwnerLock

CHECK_LABEL = "the point at which proofs are checked"
FINISH_SECONDS = 10
LINK_SECONDS = 5  # for the proxy to say that it is there
QUEUE_MOST = 2048  # connections that wait in the kernel until they are accepted
ACCEPTED_AT_ONCE = 32  # so that those that came are heard before many more come
OTHER_FILES = 150  # stores, ledger, the other party, standard streams


def clock() -> int:
    return int(time.time())


def proxy_app(settings: PartySettings, listening: socket.socket | None = None) -> Starlette:
    """The proxy of these settings, its stores opened; `listening` is where only its operators are answered."""
    secrets, pace, entropy = settings.secrets, settings.pace, Entropy()
    store, ledger = _open_store(settings, SqlProxyStore.open), _open_ledger(settings)
    proxy = Proxy(
        SealingKey.from_bytes(secrets["sealing"]),
        store,
        ledger,
        enrolment_secret=secrets["enrolment"],
        check_key=derive_check_key(settings),
    )
    calls = _signed_client(settings, pace.timeout_seconds, Party.SERVER, entropy)
    assert settings.questions is not None, "a proxy's settings name a folder for questions"
    with blame_key("store.questions"):
        questions = QuestionFiles(settings.questions)
    return proxy_service.create_app(
        proxy,
        store,
        ledger,
        questions,
        HttpLink(calls),
        _gate(settings, "pair", caller=Party.SERVER),
        enrolment_secret=secrets["enrolment"],
        clock=clock,
        timer=time.monotonic,
        entropy=entropy,
        pace=pace,
        keep_days=settings.keep_days,
        watched=_watched(settings, store),
        billing=_proxy_billing(settings),
        operations=_operations(settings, store, ledger, listening),
    )


def server_app(settings: PartySettings, listening: socket.socket | None = None) -> Starlette:
    """The server of these settings, its stores opened; `listening` is where only its operators are answered."""
    secrets, entropy = settings.secrets, Entropy()
    store, ledger = _open_store(settings, SqlServerStore.open), _open_ledger(settings)
    server = Server(
        SealingKey.from_bytes(secrets["sealing"]),
        store,
        ledger,
        check_key=derive_check_key(settings),
    )
    calls = _signed_client(settings, settings.pace.timeout_seconds, Party.PROXY, entropy)
    return server_service.create_app(
        server,
        store,
        ledger,
        HttpRounds(calls),
        _gate(settings, "pair", caller=Party.PROXY),
        _gate(settings, "operator", caller=Party.OPERATOR),
        clock=clock,
        keep_days=settings.keep_days,
        watched=_watched(settings, store),
        billing=_server_billing(settings, store, ledger, OwnRounds(server, ledger, HttpRounds(calls))),
        operations=_operations(settings, store, ledger, listening),
        ask_link=HttpRounds(_signed_client(settings, LINK_SECONDS, Party.PROXY, entropy)).ask_link,
    )


def _proxy_billing(settings: PartySettings) -> AppPart:
    """What billing adds, which is loaded only where it is asked for."""
    if settings.billing is None:
        return NOTHING_MORE
    from tacit.services.billing_launch import proxy_billing

    return proxy_billing(settings, clock=clock)


def _server_billing(
    settings: PartySettings, store: SqlServerStore, ledger: LedgerStore, rounds: OwnRounds
) -> AppPart:
    if settings.billing is None:
        return NOTHING_MORE
    from tacit.services.ads.parts import Gathering
    from tacit.services.billing_launch import ad_server_billing

    gathering = Gathering(store, ledger, rounds, check_key_hash(derive_check_key(settings)))
    return ad_server_billing(settings, clock=clock, gathering=gathering)


def _watched(settings: PartySettings, store: SqlProxyStore | SqlServerStore) -> dict[str, HealthCheck]:
    """The disk of a store in files (PostgreSQL's is elsewhere), and that the store takes writes."""
    checks: dict[str, HealthCheck] = {"store": partial(takes_writes, store.database)}
    if "://" not in settings.gathered:
        checks["disk"] = partial(has_free_disk, Path(settings.gathered))
    return checks


def _operations(
    settings: PartySettings,
    store: SqlProxyStore | SqlServerStore,
    ledger: LedgerStore,
    listening: socket.socket | None,
) -> Operations:
    places = [settings.gathered, settings.ledger]
    if settings.billing is not None:
        places.append(settings.billing.store)
    looks = [look_at_rounds(store, clock), look_at_ledger(ledger), look_at_disks(places)]
    owner = OwnerLock(served_places(settings), store.database.kind)
    return Operations(settings.party, settings.operations, listening=listening, looks=looks, owner=owner)


def served_places(settings: PartySettings) -> list[str]:
    """Stores of which several processes have one owner."""
    return [settings.gathered, *([] if settings.billing is None else [settings.billing.store])]


Store = TypeVar("Store")


def _open_store(settings: PartySettings, opened: Callable[[str], Store]) -> Store:
    with blame_key("store.gathered"):
        return opened(settings.gathered)


def _open_ledger(settings: PartySettings) -> LedgerStore:
    with blame_key("store.ledger"):
        return LedgerStore.open(settings.ledger, witness=settings.witness)


def _signed_client(settings: PartySettings, seconds: float, called: Party, entropy: Entropy) -> SignedClient:
    exchange = ExchangeKeys.between(settings.secrets["pair"], caller=settings.party, called=called)
    client = open_client(settings.other.trust, seconds)
    return SignedClient(client, settings.other.url, exchange, entropy=entropy, clock=clock)


def _gate(settings: PartySettings, secret: str, *, caller: Party) -> RequestGate:
    exchange = ExchangeKeys.between(settings.secrets[secret], caller=caller, called=settings.party)
    return RequestGate(exchange, tolerance_seconds=settings.pace.tolerance_seconds, began=clock())


def operator_calls(settings: PartySettings, client: httpx.Client, url: str) -> SignedClient:
    """Calls of the operator of the server with these settings, which is reached at `url`."""
    exchange = ExchangeKeys.between(settings.secrets["operator"], caller=Party.OPERATOR, called=Party.SERVER)
    return SignedClient(client, url, exchange, entropy=Entropy(), clock=clock)


@contextlib.contextmanager
def open_operator(settings: PartySettings, parties: Parties) -> Iterator[HttpOperator]:
    """Calls to the server as its operator; what fails on the way is a GatherError of one line."""
    with _open_calls(settings, parties, GatherError) as calls:
        yield HttpOperator(calls)


@contextlib.contextmanager
def open_billing_operator(settings: PartySettings, parties: Parties) -> Iterator[HttpBillingOperator]:
    """Calls to the ad server as its operator; what fails on the way is a BillError of one line."""
    with _open_calls(settings, parties, BillError) as calls:
        yield HttpBillingOperator(calls)


@contextlib.contextmanager
def _open_calls(
    settings: PartySettings, parties: Parties, trouble: type[GatherError | BillError]
) -> Iterator[SignedClient]:
    server = parties.server
    try:
        with open_client(server.trust, settings.pace.timeout_seconds) as client:
            yield operator_calls(settings, client, server.url)
    except (ClocksDiffer, OtherPartyFailed) as problem:
        raise trouble(str(problem)) from None
    except LinkFailed as problem:
        raise trouble(f"expected an answer from the server at {server.url}, got none: {problem}") from None


def derive_check_key(settings: PartySettings) -> bytes:
    """What both parties check proofs with, and no device knows."""
    return derive_key(settings.secrets["pair"], CHECK_LABEL)


APPS = {Party.PROXY: proxy_app, Party.SERVER: server_app}


def run_party(settings: PartySettings) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are answered first."""
    configure_logging(LOG, settings.operations.log_form, str(settings.party))
    _allow_files(settings.pace)
    listening = _open_socket(settings.listen)  # before the stores: a second one on the port stops here
    with contextlib.closing(listening), _operators_socket(settings) as beside, lock_stores(settings):
        _run_server(settings, listening, beside)


@contextlib.contextmanager
def _operators_socket(settings: PartySettings) -> Iterator[socket.socket | None]:
    """Where operators are answered, if that is a place of its own."""
    place = settings.operations.metrics
    if place.port is None:
        yield None
        return
    with contextlib.closing(_open_socket(ListenSettings(place.host, place.port), "metrics")) as listening:
        yield listening


def _run_server(settings: PartySettings, listening: socket.socket, beside: socket.socket | None) -> None:
    app = APPS[settings.party](settings, beside)
    operations: Operations = app.state.operations
    config = uvicorn.Config(
        app,
        http=http_protocol(
            settings.pace, tls=_tls_context(settings.listen), most_per_address=_most_per_address(settings)
        ),
        loop="asyncio",  # uvloop reads on before TLS can begin, and loses what it reads
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,
        log_level=logging.ERROR,  # below, strangers who send nonsense could fill the disk line by line
        access_log=False,  # it would write down every device's address
        proxy_headers=False,  # nobody here asks for an address
        server_header=False,
        timeout_graceful_shutdown=FINISH_SECONDS,
    )
    scheme = "http" if settings.listen.certificate is None else "https"
    address = f"{scheme}://{_bracket(settings.listen.host)}:{listening.getsockname()[1]}"
    line = f"tacit {settings.party} listens on {address}"
    drain = settings.pace.drain_seconds
    _AnnouncingServer(config, line, operations.readiness.drain, drain).run(sockets=[listening])


def _tls_context(listen: ListenSettings) -> ssl.SSLContext | None:
    """Agreed on by `http_protocol` itself: a connection counts, and can be ended, from its first moment."""
    if listen.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(listen.certificate, listen.private_key)
    return context


def _most_per_address(settings: PartySettings) -> int | None:
    """None behind a reverse proxy: all connections have its address, and it must limit those of others."""
    return None if settings.listen.behind_tls else settings.pace.address_connections_most


def _allow_files(pace: ServicePace) -> None:
    """As many open files as there may be connections, which the system's first word is often too few for."""
    most = pace.connections_most
    needed = most + reserve_places(most) + parting_places(most) + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BadInput(
            f"pace.connections_most: expected a system that lets a process open {needed} files (ulimit -Hn), "
            f"got {hard}"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@contextlib.contextmanager
def lock_stores(settings: PartySettings) -> Iterator[None]:
    """One process per SQLite file. On PostgreSQL several may serve: every step is one transaction and may come
    twice, and what one does for all the owner does (`store.ownership`)."""
    places = {"store.gathered": settings.gathered}
    if settings.billing is not None:
        places["billing.store"] = settings.billing.store
    with contextlib.ExitStack() as held:
        for key, place in places.items():
            if "://" not in place:
                refusal = (
                    f"expected a store that nobody else serves, got {place}, which another {settings.party} is "
                    "running on"
                )
                held.enter_context(hold_lock(Path(f"{place}.serving"), key, refusal))
        yield


class _AnnouncingServer(uvicorn.Server):
    """Says one line once it listens, and takes a signal to end as a wish, not as a failure.

    The first signal tells load balancers, by /readyz, and after `drain_seconds` nobody new is let in; a second
    one does not wait for that.
    """

    def __init__(
        self, config: uvicorn.Config, line: str, drain: Callable[[], None], drain_seconds: int
    ) -> None:
        super().__init__(config)
        self._line, self._drain, self._drain_seconds = line, drain, drain_seconds
        self._asked = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or []:
            each.listen(QUEUE_MOST)  # asyncio has one number for the queue and for what it accepts at once
        print(self._line, flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._be_asked, each, loop)
        try:
            yield
        finally:
            for each in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(each)

    def _be_asked(self, which: signal.Signals, loop: asyncio.AbstractEventLoop) -> None:
        self._drain()
        if self._asked or not self._drain_seconds:
            self.handle_exit(which, None)
        else:
            LOG.info("asked to end: in %d seconds nobody new is let in", self._drain_seconds)
            loop.call_later(self._drain_seconds, self.handle_exit, which, None)
        self._asked = True


def _open_socket(listen: ListenSettings, table: str = "listen") -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        opened = socket.create_server((listen.host, listen.port), family=family, backlog=QUEUE_MOST)
        # Accepted sockets inherit it. Without, the end of an answer waits 40 ms for the caller's delayed word
        # that the beginning arrived; asyncio sets it by itself only where a socket names its protocol.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened
    except OSError as problem:
        known = (problem.strerror or str(problem)).lower()  # of a name that nobody knows, too
        reason = known.partition(" (while")[0]  # Python repeats the address
        place = f"{_bracket(listen.host)}:{listen.port}"
        raise BadInput(f"{table}: expected a free place to listen on, got {place}: {reason}") from None


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
