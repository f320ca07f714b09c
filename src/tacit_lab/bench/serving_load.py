"""Load on a service over loopback, and what it is measured beside: a bare endpoint that answers the same bytes.

One connection asks, waits for the whole answer, and asks again: with some at once the service is never idle,
and its processor time per request is what a request costs. At a fixed rate requests are due whether earlier
ones were answered or not, and each answer's time counts from when its request was due, so that a service that
stops for a moment is seen to have kept everybody waiting. Bodies have a Content-Length; whatever else comes is
an error here.

`python -m tacit_lab.bench.serving_load bare ANSWER` serves the bytes in a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.services.connections import http_protocol
from tacit.services.settings import ServicePace

PATIENCE_SECONDS, SLOWEST_RATE = 60, 200  # requests a second
END_OF_HEAD = b"\r\n\r\n"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Target:
    """Requests as they are sent, one after the other and then again from the first, to a port of this machine,
    and the process that answers them."""

    port: int
    requests: Sequence[bytes]
    process: int

    def processor_seconds(self) -> float:
        """What its process has worked so far, by the system's clock of some milliseconds."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_bytes(self) -> int:
        lines = Path(f"/proc/{self.process}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@dataclass(frozen=True)
class LoadFigures:
    """What a load took: requests, seconds on the wall, the service's processor seconds; latencies, sorted."""

    requests: int
    wall: float
    processor: float
    latencies: tuple[float, ...]

    def percentile(self, share: float) -> float:
        return self.latencies[min(int(share * len(self.latencies)), len(self.latencies) - 1)]


class _Asker(asyncio.Protocol):
    """One connection; `done` is told of each whole answer."""

    def __init__(self, load: _Load) -> None:
        self._load, self._came, self._due = load, bytearray(), 0.0
        self._length: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, due: float) -> None:
        self._due = due
        self._transport.write(next(self._load.requests))

    def data_received(self, data: bytes) -> None:
        self._came += data
        if self._length is None:
            head, found, _ = bytes(self._came).partition(END_OF_HEAD)
            if not found:
                return
            self._length = len(head) + len(END_OF_HEAD) + _body_length(head)
        if len(self._came) < self._length:
            return
        if len(self._came) > self._length:
            self._load.fail(ValueError("expected one answer, got more bytes than it has"))
            return
        self._came.clear()
        self._length = None
        self._load.answered(self, self._due)

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.fail(exc or ConnectionError("expected connections that stay open, got an end"))

    def close(self) -> None:
        self._transport.abort()


def _body_length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    status = lines[0].split()[1]
    if status not in (b"200", b"204"):
        raise ValueError(f"expected an answer of 200 or 204, got {status.decode()}")
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0


class _Load:
    """Connections that ask until so many requests were answered."""

    def __init__(self, requests: Sequence[bytes], count: int) -> None:
        self.requests, self._count, self._begun = cycle(requests), count, 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.latencies: list[float] = []
        self._free: deque[_Asker] = deque()
        self._waiting: deque[float] = deque()  # when requests were due for which no connection was free
        self._by_rate = False

    def answered(self, asker: _Asker, due: float) -> None:
        self.latencies.append(time.perf_counter() - due)
        if len(self.latencies) == self._count:
            if not self._done.done():
                self._done.set_result(None)
        elif self._by_rate:
            if self._waiting:
                asker.ask(self._waiting.popleft())
            else:
                self._free.append(asker)
        elif self._begun < self._count:
            self._begun += 1
            asker.ask(time.perf_counter())

    def fail(self, problem: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(problem)

    async def run(self, port: int, connections: int, rate: float | None) -> None:
        loop = asyncio.get_running_loop()
        askers = [
            (await loop.create_connection(lambda: _Asker(self), "127.0.0.1", port))[1]
            for _ in range(connections)
        ]
        try:
            if rate is None:
                self._begun = min(connections, self._count)
                for asker in askers[: self._begun]:
                    asker.ask(time.perf_counter())
            else:
                self._by_rate = True
                self._free.extend(askers)
                await self._send_at(rate)
            await asyncio.wait_for(self._done, PATIENCE_SECONDS + self._count / SLOWEST_RATE)
        finally:
            self._done.done() or self._done.cancel()
            for asker in askers:
                asker.close()

    async def _send_at(self, rate: float) -> None:
        began = time.perf_counter()
        for number in range(self._count):
            due = began + number / rate
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            elif number % 16 == 0:
                await asyncio.sleep(0)  # answers are read, too
            if self._free:
                self._free.popleft().ask(due)
            else:
                self._waiting.append(due)


def load(target: Target, requests: int, connections: int, rate: float | None = None) -> LoadFigures:
    """Ask so often, as fast as it answers or at a rate; whatever is no whole answer of 200 or 204 raises."""

    async def work() -> _Load:
        made = _Load(target.requests, requests)
        await made.run(target.port, connections, rate)
        return made

    wall, processor = time.perf_counter(), target.processor_seconds()
    done = asyncio.run(work())
    return LoadFigures(
        requests,
        time.perf_counter() - wall,
        target.processor_seconds() - processor,
        tuple(sorted(done.latencies)),
    )


def fetch(port: int, request: bytes) -> tuple[dict[str, str], bytes]:
    """One answer's headers and body."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        came = b""
        while END_OF_HEAD not in came:
            came += _more(connection)
        head, _, body = came.partition(END_OF_HEAD)
        while len(body) < _body_length(head):
            body += _more(connection)
    lines = [line.decode().partition(": ") for line in head.split(b"\r\n")[1:]]
    return {name.lower(): value for name, _, value in lines}, body


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionError("expected an answer, got an end")
    return data


@contextmanager
def on_cores_apart(*targets: Target) -> Iterator[None]:
    """The services on one core, by turns, and this process on another; where there is but one, on that."""
    known = sorted(os.sched_getaffinity(0))
    try:
        for target in targets:
            for thread in Path(f"/proc/{target.process}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {known[0]})
        os.sched_setaffinity(0, {known[-1]})
        yield
    finally:
        os.sched_setaffinity(0, known)


class BareServer:
    """A process with one endpoint of the same framework and server, which answers the same bytes."""

    def __init__(self, folder: Path, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        self._answer = folder / "answer.json"
        self._answer.write_text(json.dumps({"headers": list(headers), "body": body.decode("latin-1")}))

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tacit_lab.bench.serving_load", "bare", str(self._answer)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.process = self._process.pid
        return self

    def __exit__(self, *_raised: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE_SECONDS)


def serve_bare(answer: Path) -> None:
    """The framework's own answer, behind the protocol that our services have; of a POST the body is read."""
    said = json.loads(answer.read_text())
    body, headers = said["body"].encode("latin-1"), dict(said["headers"])

    async def bare(request: Request) -> Response:
        if request.method == "POST":
            await request.body()
        return Response(body, headers=headers)

    app = Starlette(routes=[Route("/{rest:path}", bare, methods=["GET", "POST"])])
    config = uvicorn.Config(
        app, http=http_protocol(ServicePace()), ws="none", loop="asyncio", lifespan="off", log_config=None,
        log_level="error", access_log=False, proxy_headers=False, server_header=False,
    )  # fmt: skip
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listening])


def run(words: Sequence[str]) -> None:
    assert words[0] == "bare", words
    serve_bare(Path(words[1]))


if __name__ == "__main__":
    run(sys.argv[1:])
