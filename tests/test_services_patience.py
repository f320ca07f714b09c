"""Connections that never finish: half a head, half a body, an answer that nobody reads, too many at once."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit.services.answering import in_pieces
from tacit.services.patience import patient
from tacit.services.settings import Pace

HALF_A_HEAD = b"POST /rounds HTTP/1.1\r\nHost: x\r\nX: "
HALF_A_BODY = b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"
WHOLE = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def large(_request: Request) -> Response:
    return in_pieces(Response(bytes(2**26)))


APP = Starlette(routes=[Route("/echo", echo, methods=["GET", "PUT"]), Route("/large", large)])


@contextmanager
def served(**pace: int) -> Iterator[tuple[uvicorn.Server, int]]:
    config = uvicorn.Config(
        APP, http=patient(Pace(**pace)), lifespan="off", log_config=None, access_log=False,
        timeout_graceful_shutdown=0,
    )  # fmt: skip
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
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
        assert not server.server_state.connections
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
        assert httpx.get(f"http://127.0.0.1:{port}/large", trust_env=False).content == bytes(2**26)


def test_a_new_connection_takes_the_place_of_the_one_that_asked_longest(connected: Connect) -> None:
    with served(connections_most=20, head_seconds=600, body_seconds=600) as (server, port):
        sending = connected(port, HALF_A_BODY)
        wait_until(lambda: len(server.server_state.connections) == 1)
        held = []
        for number in range(30):
            held.append(connected(port, HALF_A_HEAD))
            wait_until(lambda: len(server.server_state.connections) == min(2 + len(held) - 1, 20))
            time.sleep(0.002 if number < 20 else 0)
        wait_until(lambda: sum(map(ended, held)) == 11)
        assert all(map(ended, held[:11])), "not the oldest"
        assert not ended(sending), "a request that is being sent was dropped for one that is not"
        for _ in range(5):  # and whoever asks at once is answered
            assert httpx.put(f"http://127.0.0.1:{port}/echo", content=b"x", trust_env=False).text == "x"
        assert len(server.server_state.connections) <= 20


def test_where_all_are_at_work_a_new_connection_is_dropped(connected: Connect) -> None:
    with served(connections_most=3, head_seconds=600, body_seconds=600) as (server, port):
        held = [connected(port, HALF_A_BODY) for _ in range(3)]
        wait_until(lambda: len(server.server_state.connections) == 3)
        time.sleep(0.2)  # until what they said is read
        late = connected(port, b"")
        wait_until(lambda: ended(late))
        assert not any(map(ended, held))
