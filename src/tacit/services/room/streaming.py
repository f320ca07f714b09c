"""A call's messages, read with patience that ends: nothing is held but the message in hand and the next one."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import RoomRefused
from tacit.services.room.pace import Pace
from tacit.services.room.statuses import Busy, Stalled

END = b""  # the last message of every stream; no other is empty

Result = TypeVar("Result")


class Call:
    """One call under way: its messages for a worker thread, until the caller goes or patience ends."""

    def __init__(self, context: Any, pace: Pace) -> None:
        self._context, self._pace = context, pace
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + pace.call_seconds
        self.gone = False

    async def read(self) -> bytes | None:
        """The next message; None at the end of the stream."""
        patience = min(self._pace.stall_seconds, self._ends - self._loop.time())
        try:
            message = await asyncio.wait_for(self._context.read(), max(patience, 0.0))
        except TimeoutError:
            raise Stalled(
                "the stream stood still for longer than the room waits; nothing was released"
            ) from None
        return None if message is grpc.aio.EOF else message

    def messages(self) -> Iterator[bytes]:
        """The stream for a worker thread, one message ahead, up to the caller's own mark of its end.

        To gRPC, a caller who goes looks like one who has no more to say: without the mark, half a stream could
        be taken for a whole one.
        """
        coming = self._ask()
        while (message := coming.result()) != END:
            if message is None or self.gone:
                raise RoomRefused(Refusal.MALFORMED, "the stream was cut off before its end")
            coming = self._ask()
            yield message

    def _ask(self) -> concurrent.futures.Future[bytes | None]:
        return asyncio.run_coroutine_threadsafe(self.read(), self._loop)


class Places:
    """So many calls may be open, and so many worked on; the rest is refused, or waits without being read."""

    def __init__(self, pace: Pace) -> None:
        self._pace, self._open = pace, 0
        self._threads = concurrent.futures.ThreadPoolExecutor(pace.steps_most, thread_name_prefix="room")

    def take(self) -> None:
        if self._open >= self._pace.streams_most:
            raise Busy(f"the room has {self._pace.streams_most} calls open, and takes no more: come again")
        self._open += 1

    def give_back(self) -> None:
        self._open -= 1

    async def work(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
