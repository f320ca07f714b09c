"""Strangers who hold connections as long as they can, and come back when they are dropped.

Each storm is of one way to be slow. All on this machine: an attacker is known by its address, 127.0.0.x.
Honest callers ask on new connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tacit import expect


class Slow(expect.Choice):
    """Where a stranger stops."""

    HEAD = "a head byte by byte"
    BODY = "a body byte by byte"
    SILENT = "connected, and nothing said"
    IDLE = "answered once, and kept"
    DEAF = "an answer that is not read"
    HANDSHAKE = "TLS that is never agreed"


@dataclass(frozen=True)
class Target:
    """Where to storm: what is asked for is there, and `long` has a long answer."""

    port: int
    short: str = "/healthz"
    long: str = "/rounds"
    upload: str = "/rounds"
    method: str = "PUT"  # of an upload
    upload_bytes: int = 200  # said to come, and sent at once
    upload_sent: int = 3
    tls: ssl.SSLContext | None = None

    def first_words(self, kind: Slow) -> bytes:
        match kind:
            case Slow.HEAD:
                return f"{self.method} {self.upload} HTTP/1.1\r\nHost: x\r\nX: ".encode()
            case Slow.BODY:
                asked = f"{self.method} {self.upload} HTTP/1.1\r\nHost: x\r\n"
                head = f"{asked}Content-Length: {self.upload_bytes}\r\n\r\n"
                return head.encode() + b"a" * self.upload_sent
            case Slow.IDLE:
                return f"GET {self.short} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            case Slow.DEAF:
                return f"GET {self.long} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        return b""


@dataclass
class Storm:
    """`count` connections of one kind, held until the end."""

    target: Target
    kind: Slow
    count: int
    addresses: tuple[str, ...]
    byte_seconds: float = 1.0
    again_seconds: float = 0.05
    held: int = 0
    made: int = 0
    ends: Counter[str] = field(default_factory=Counter)  # how those that were dropped heard of it

    async def blow(self, ended: asyncio.Event) -> None:
        await asyncio.gather(*(self._hold(number, ended) for number in range(self.count)))

    async def _hold(self, number: int, ended: asyncio.Event) -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await self._once(self.addresses[number % len(self.addresses)], ended)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), self.again_seconds)

    async def _once(self, address: str, ended: asyncio.Event) -> None:
        secure = self.target.tls if self.kind is not Slow.HANDSHAKE else None
        opening = asyncio.open_connection(
            "127.0.0.1", self.target.port, local_addr=(address, 0), ssl=secure, limit=1024
        )
        reader, writer = await asyncio.wait_for(opening, 10)
        self.held += 1
        self.made += 1
        try:
            writer.write(self.target.first_words(self.kind))
            if self.kind is Slow.DEAF:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            await self._wait(reader, writer, ended)
        finally:
            self.held -= 1
            writer.transport.abort()

    async def _wait(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ended: asyncio.Event
    ) -> None:
        said = b""
        answers = 2 if self.kind is Slow.IDLE else 1
        while not ended.is_set():
            try:
                got = await asyncio.wait_for(reader.read(1024), self.byte_seconds)
            except TimeoutError:
                if writer.is_closing():
                    return
                if self.kind in (Slow.HEAD, Slow.BODY):
                    writer.write(b"a")
                continue
            except ConnectionError:
                self.ends["reset"] += 1
                return
            said += got
            if not got or (self.kind is not Slow.IDLE and b" 503 " in said[:20]):
                status = said[9:12].decode() if said.count(b"HTTP/1.1") == answers or answers == 1 else "closed"
                self.ends[status or "closed"] += 1
                return


@contextlib.contextmanager
def storming(*storms: Storm, most_seconds: float = 60) -> Iterator[None]:
    """While the storms last; begins once most of the connections are there, or were tried."""
    loop, ended = asyncio.new_event_loop(), asyncio.Event()

    async def all_of_them() -> None:
        blowing = asyncio.gather(*(each.blow(ended) for each in storms))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(ended.wait()), most_seconds)
        ended.set()
        await blowing

    thread = threading.Thread(target=loop.run_until_complete, args=(all_of_them(),))
    thread.start()
    try:
        end = time.monotonic() + 10
        while any(each.made < each.count for each in storms) and time.monotonic() < end:
            time.sleep(0.01)
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
        loop.close()


def asked(target: Target, address: str, path: str, body: bytes | None = None, seconds: float = 20) -> int:
    """The status that an honest caller gets on a new connection; 0 for none."""
    source = (address, 0)
    connection = (
        http.client.HTTPConnection("127.0.0.1", target.port, timeout=seconds, source_address=source)
        if target.tls is None
        else http.client.HTTPSConnection(
            "127.0.0.1", target.port, timeout=seconds, source_address=source, context=target.tls
        )
    )
    try:
        connection.request("GET" if body is None else "PUT", path, body)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return 0
    else:
        return answer.status
    finally:
        connection.close()


def slowly_asked(target: Target, address: str, pause: float, seconds: float = 5) -> int:
    """The same of an upload on a slow link: its body comes a while after its head."""
    try:
        with socket.create_connection(("127.0.0.1", target.port), seconds, (address, 0)) as caller:
            words = ("Host: x", "Content-Length: 5", "Connection: close", "", "")
            caller.sendall("\r\n".join((f"PUT {target.upload} HTTP/1.1", *words)).encode())
            time.sleep(pause)
            caller.sendall(b"hello")
            return int(caller.recv(65536)[9:12] or 0)
    except OSError:
        return 0
