"""Connections that never finish: half a head, half a body, an answer that nobody reads, too many at once."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit.services.connections import http_protocol
from tacit.services.endpoints import stream_in_pieces
from tacit.services.launch import ACCEPTED_AT_ONCE, QUEUE_MOST
from tacit.services.problems import HANDLERS, CatchAllMiddleware
from tacit.services.settings import ServicePace
from tests.support.service_certificates import a_certificate
from tests.support.storms import Slow, Storm, Target, asked, slowly_asked, storming

HALF_A_HEAD = b"POST /rounds HTTP/1.1\r\nHost: x\r\nX: "
HALF_A_BODY = b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"
WHOLE = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
LONG_ANSWER = bytes(2**26)
LARGE = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def large(_request: Request) -> Response:
    return stream_in_pieces(Response(LONG_ANSWER))


async def work(request: Request) -> Response:
    """At work until the caller has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()


async def health(_request: Request) -> Response:
    return Response(b"well")


APP = Starlette(
    routes=[
        Route("/echo", echo, methods=["GET", "PUT"]),
        Route("/large", large),
        Route("/work", work),
        Route("/healthz", health),
    ],
    exception_handlers=HANDLERS,
    middleware=[Middleware(CatchAllMiddleware)],
)


@contextmanager
def served(
    most_per_address: int | None = None, tls: ssl.SSLContext | None = None, **pace: int
) -> Iterator[tuple[uvicorn.Server, int]]:
    protocol = http_protocol(ServicePace(**pace), most_per_address=most_per_address, tls=tls)
    config = uvicorn.Config(
        APP, http=protocol, loop="asyncio", lifespan="off", log_config=None, log_level="critical",
        access_log=False, timeout_graceful_shutdown=5, backlog=ACCEPTED_AT_ONCE,
    )  # fmt: skip
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        listening.listen(QUEUE_MOST)
        yield server, listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


Connect = Callable[[int, bytes], socket.socket]


@pytest.fixture
def connected() -> Iterator[Connect]:
    with ExitStack() as open_ones:

        def connect(port: int, said: bytes) -> socket.socket:
            made = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            made.sendall(said)
            return made

        yield connect


def wait_until(done: Callable[[], bool], seconds: float = 8) -> float:
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < seconds, "it never happened"
        time.sleep(0.01)
    return time.monotonic() - began


def ended(connection: socket.socket) -> bool:
    """Whether the other side has ended it; what it said before that does not matter."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("said", [HALF_A_HEAD, HALF_A_BODY, b""])
def test_a_request_that_does_not_end_is_dropped(connected: Connect, said: bytes) -> None:
    with served(head_seconds=1, body_seconds=1) as (server, port):
        held = [connected(port, said) for _ in range(100)]
        wait_until(lambda: len(server.server_state.connections) == 100)
        assert not ended(held[0])
        assert 0.2 < wait_until(lambda: all(map(ended, held))) < 5
        assert httpx.put(f"http://127.0.0.1:{port}/echo", content=b"still here", trust_env=False).text


def test_a_byte_now_and_then_buys_no_time(connected: Connect) -> None:
    with served(head_seconds=1, body_seconds=600) as (_, port):
        slow = connected(port, HALF_A_HEAD)
        began = time.monotonic()
        while not ended(slow):
            assert time.monotonic() - began < 5
            try:
                slow.send(b"a")
            except OSError:
                break
            time.sleep(0.05)
        assert time.monotonic() - began > 0.5


def test_each_step_has_its_own_time_and_a_connection_many_requests(connected: Connect) -> None:
    """Each pause is within its step's time, all of them together are not."""
    with served(head_seconds=2, body_seconds=2, answer_seconds=2) as (_, port):
        connection = connected(port, b"")
        for _ in range(3):
            time.sleep(0.4)
            connection.sendall(b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n")
            time.sleep(0.2)
            connection.sendall(b"\r\nabc")
            time.sleep(0.4)
            connection.sendall(b"def")
            answer = connection.recv(65536)
            while not answer.endswith(b"abcdef"):
                answer += connection.recv(65536)


def test_who_does_not_read_the_answer_is_dropped() -> None:
    with (
        served(head_seconds=600, body_seconds=600, answer_seconds=1) as (server, port),
        socket.socket() as deaf,
    ):
        deaf.connect(("127.0.0.1", port))
        deaf.sendall(LARGE)
        wait_until(lambda: len(server.server_state.connections) == 1)
        [connection] = server.server_state.connections
        assert isinstance(connection, H11Protocol)
        wait_until(lambda: connection.flow.write_paused)
        assert connection.transport.get_write_buffer_size() < 2**20, "all of the answer is in memory"
        wait_until(lambda: not server.server_state.connections)


def test_a_long_answer_comes_whole() -> None:
    with served() as (_, port):
        assert httpx.get(f"http://127.0.0.1:{port}/large", trust_env=False).content == LONG_ANSWER


def words_of(connection: socket.socket) -> bytes:
    """All that the other side says until it ends; a reset is an error."""
    connection.setblocking(True)
    said = b""
    while got := connection.recv(65536):
        said += got
    return said


def expect_busy(said: bytes) -> None:
    head, _, body = said.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"http/1.1 503 service unavailable"
    assert b"retry-after: 1" in lines
    assert b"connection: close" in lines
    assert json.loads(body)["type"] == "tacit:busy"


@pytest.mark.parametrize("said", [HALF_A_HEAD, HALF_A_BODY, b""])
def test_a_new_connection_takes_the_place_of_the_one_that_is_furthest_behind(
    connected: Connect, said: bytes
) -> None:
    with served(connections_most=20, head_seconds=600, body_seconds=600) as (_, port):
        held = []
        for _ in range(30):
            held.append(connected(port, said))
            time.sleep(0.01)  # until it is heard
        for each in held[:10]:
            expect_busy(words_of(each))
        assert not any(map(ended, held[10:])), "not the oldest"
        for _ in range(5):  # and whoever asks at once is answered
            assert httpx.put(f"http://127.0.0.1:{port}/echo", content=b"x", trust_env=False).text == "x"


def test_who_sends_fast_enough_stays_where_others_dribble(connected: Connect) -> None:
    """It came first, and takes the longest; what it has sent counts as the time that it needs."""
    with served(connections_most=10, head_seconds=600, body_seconds=600) as (_, port):
        steady = connected(port, b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 8000\r\n\r\n")
        steady.sendall(bytes(4000))
        time.sleep(0.1)
        for _ in range(30):
            connected(port, HALF_A_BODY)
            time.sleep(0.005)
        steady.sendall(bytes(4000))
        answer = b""
        while not answer.endswith(bytes(8000)) and (got := steady.recv(65536)):
            answer += got
        assert answer.startswith(b"HTTP/1.1 200 ")


@contextmanager
def at_work(server: uvicorn.Server, port: int, connect: Connect) -> Iterator[list[socket.socket]]:
    """Three connections that the service is at work for: their requests are read, and none is answered."""
    held = [connect(port, b"GET /work HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(3)]
    try:
        wait_until(lambda: len(server.server_state.tasks) == 3)
        yield held
    finally:
        for each in held:
            each.close()


def test_where_all_are_at_work_the_newcomer_is_told_so(connected: Connect) -> None:
    with served(connections_most=3) as (server, port), at_work(server, port, connected) as held:
        expect_busy(words_of(connected(port, WHOLE)))
        answer = httpx.put(f"http://127.0.0.1:{port}/echo", content=bytes(500_000), trust_env=False)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).text == "well"
        silent = [connected(port, b"") for _ in range(20)]  # nor can they use up what is kept for this
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).text == "well"
        wait_until(lambda: sum(map(ended, silent)) >= 10)
        assert not any(map(ended, held))


def test_one_address_takes_no_more_than_its_places(connected: Connect) -> None:
    with (
        served(connections_most=100, most_per_address=3) as (server, port),
        at_work(server, port, connected) as held,
    ):
        expect_busy(words_of(connected(port, WHOLE)))
        target = Target(port, short="/echo")
        assert asked(target, "127.0.0.2", "/echo") == 200
        assert not any(map(ended, held))


def test_a_body_that_is_refused_unread_does_not_cost_the_caller_the_answer(connected: Connect) -> None:
    """Closed with bytes unread a connection is reset, and what was said on it lost."""
    with served() as (_, port):
        for said in (
            b"no request at all\r\n\r\n",
            b"PUT /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n",
        ):
            connection = connected(port, said)
            if said.startswith(b"PUT"):
                connection.sendall(b"Content-Length: 5000000\r\n\r\n")
            time.sleep(0.1)
            connection.sendall(bytes(100_000))
            assert words_of(connection)[9:10] == b"4"


@pytest.mark.parametrize("kind", [kind for kind in Slow if kind is not Slow.HANDSHAKE])
def test_a_small_storm_shuts_nobody_out(kind: Slow) -> None:
    """More slow strangers than there are places, who come back at once: honest callers are answered all the
    same, and who is sent away is told so."""
    with served(connections_most=50, most_per_address=40) as (_, port):
        target = Target(port, short="/echo", long="/large", upload="/echo")
        storm = Storm(target, kind, count=60, addresses=("127.0.0.2",), byte_seconds=0.2)
        with storming(storm):
            callers = ("127.0.0.1", "127.0.0.2") * 10  # apart from the strangers, and at their own address
            answers = [asked(target, address, "/echo", b"x") for address in callers]
            if kind in (Slow.HEAD, Slow.BODY, Slow.SILENT):
                wait_until(lambda: storm.ends["503"] >= 20)
        assert answers == [200] * 20
        assert storm.made >= 60
        assert storm.ends["reset"] == 0
        assert set(storm.ends) <= {"503", "closed"}


@pytest.mark.parametrize("sent", [3, 20_000], ids=["little", "much"])
def test_a_storm_from_many_addresses_does_not_shut_out_those_who_share_one(sent: int) -> None:
    """Each stranger has an address to itself, and what it sends at once buys it no more than a moment."""
    with served(connections_most=50, most_per_address=40) as (_, port):
        addresses = tuple(f"127.1.0.{number + 1}" for number in range(60))
        target = Target(port, upload="/echo", upload_bytes=30_000, upload_sent=sent)
        storm = Storm(target, Slow.BODY, count=60, addresses=addresses, again_seconds=1)
        with storming(storm), ThreadPoolExecutor(3) as callers:
            time.sleep(1)
            answers = list(callers.map(lambda _: slowly_asked(target, "127.0.0.1", 0.3), range(15)))
        assert answers == [200] * 15
        assert storm.made > 60


@pytest.mark.parametrize("kind", [Slow.HANDSHAKE, Slow.BODY])
def test_a_small_storm_on_tls_shuts_nobody_out(tmp_path: Path, kind: Slow) -> None:
    """A connection counts, and can be ended, before TLS is agreed on it."""
    certificate, key = tmp_path / "it.crt", tmp_path / "it.key"
    a_certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with served(connections_most=20, tls=context) as (server, port):
        trusting = ssl.create_default_context(cafile=str(certificate))
        target = Target(port, short="/echo", upload="/echo", tls=trusting)
        # They come back seldom enough that a slow machine agrees on TLS before a caller is the oldest.
        storm = Storm(target, kind, count=40, addresses=("127.0.0.1",), again_seconds=1.5, byte_seconds=0.2)
        with storming(storm):
            answers = [asked(target, "127.0.0.1", "/echo", b"x") for _ in range(10)]
            wait_until(lambda: len(server.server_state.connections) <= 20 + 4 + 8)  # with those that leave
        assert answers == [200] * 10


def test_a_handshake_that_does_not_end_is_dropped(tmp_path: Path, connected: Connect) -> None:
    certificate, key = tmp_path / "it.crt", tmp_path / "it.key"
    a_certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with served(head_seconds=1, tls=context) as (server, port):
        held = [connected(port, said) for said in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n")]
        wait_until(lambda: all(map(ended, held)))
        wait_until(lambda: not server.server_state.connections)


@pytest.mark.parametrize("said", [HALF_A_BODY.replace(b"/echo", b"/nowhere"), LARGE], ids=["unread", "deaf"])
def test_who_has_given_its_place_up_is_gone_soon(said: bytes) -> None:
    """Also where its end is still to send, or to read: it is waited for a moment, and then no more."""
    with served(connections_most=5) as (server, port), ExitStack() as open_ones:
        for _ in range(25):
            stranger = open_ones.enter_context(socket.socket())
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stranger.connect(("127.0.0.1", port))
            stranger.sendall(said)
            assert stranger.recv(1).startswith(b"H"), "it was answered, and reads no more than that"
        wait_until(lambda: len(server.server_state.connections) <= 5)
