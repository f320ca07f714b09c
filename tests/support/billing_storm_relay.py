"""A relay between two parties on this machine that loses, repeats and delays what they say, and keeps a copy.

Callers keep their own address: the party behind it sees the one that they came from. It reads no HTTP: what is
said until the other side answers is one request.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.support.billing_storm_faults import LATE, LOST, TWICE, UNANSWERED, Weather

HOST, PIECE, MOST_SECONDS = "127.0.0.1", 65_536, 5.0


@dataclass
class Relay:
    """From one port to another, in the weather."""

    link: str
    port: int
    target: int
    weather: Weather
    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername")[0]
        try:
            behind = await asyncio.open_connection(HOST, self.target, local_addr=(address, 0))
        except OSError:
            writer.transport.abort()
            return
        call = _Call(self, address)
        pumps = [
            asyncio.create_task(call.pump_request(reader, behind[1])),
            asyncio.create_task(call.pump_answer(behind[0], writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            for end in (writer, behind[1]):
                with suppress(OSError):
                    end.write_eof()
                end.close()

    async def repeat(self, request: bytes, address: str) -> None:
        """Say it once more; nobody hears the answer."""
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection(HOST, self.target, local_addr=(address, 0))
            try:
                writer.write(request)
                await asyncio.wait_for(reader.read(PIECE), MOST_SECONDS)
            finally:
                writer.close()


class _Call:
    """One connection: requests and answers in turn."""

    def __init__(self, relay: Relay, address: str) -> None:
        self._relay, self._address = relay, address
        self._request, self._fate = b"", ""
        self._repeats: set[asyncio.Task[None]] = set()

    async def pump_request(self, reader: asyncio.StreamReader, behind: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                if not self._request:
                    self._fate = self._relay.weather.fate(self._relay.link)
                    if self._fate == LOST:
                        return
                    if self._fate == LATE:
                        await asyncio.sleep(self._relay.weather.below(200) / 1000)
                self._request += data
                self._relay.asked += data
                behind.write(data)
                await behind.drain()

    async def pump_answer(self, behind: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await behind.read(PIECE):
                request, self._request = self._request, b""
                self._relay.answered += data
                if request and self._fate == UNANSWERED:
                    return
                if request and self._fate == TWICE:
                    again = asyncio.create_task(self._relay.repeat(request, self._address))
                    self._repeats.add(again)
                    again.add_done_callback(self._repeats.discard)
                writer.write(data)
                await writer.drain()


@contextmanager
def relaying(*relays: Relay) -> Iterator[None]:
    """While they relay, in a thread of their own."""
    loop, ended, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def run() -> None:
        servers = [await asyncio.start_server(each.serve, HOST, each.port) for each in relays]
        ready.set()
        await ended.wait()
        for each in servers:
            each.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(MOST_SECONDS), "the relays did not start"
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(2 * MOST_SECONDS)
        loop.close()
