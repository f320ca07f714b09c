"""Group commit: what arrives at the same time is decided and stored together, and answered after that.

A durable commit costs about the same for one upload as for hundreds. The first of a batch waits a few
milliseconds for others; while a batch is being stored the next one gathers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from tacit.services.problems import Busy

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Hands items in batches to `decide`, which runs in a thread and gives an answer for each, in order."""

    def __init__(
        self,
        decide: Callable[[Sequence[Item]], Sequence[Answer]],
        *,
        wait_seconds: float,
        most: int,
    ) -> None:
        self._decide, self._wait_seconds, self._most = decide, wait_seconds, most
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._arrived, self._full = asyncio.Event(), asyncio.Event()
        self._ending = False

    async def decided(self, item: Item) -> Answer:
        """The answer for this item, once its batch is decided; who asks sees to it that not too many wait."""
        if self._ending:
            raise Busy
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        self._arrived.set()
        if len(self._waiting) >= self._most:
            self._full.set()
        return await answer

    async def run(self) -> None:
        """Decide batch after batch, until `end`; what came before it is still decided."""
        while True:
            await self._arrived.wait()
            if self._wait_seconds and not self._ending:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._full.wait(), self._wait_seconds)
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            if len(self._waiting) < self._most:
                self._full.clear()
            if batch:
                await self._answer(batch)
            if not self._waiting:
                if self._ending:
                    return
                self._arrived.clear()

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await asyncio.to_thread(self._decide, [item for item, _ in batch])
        except Exception as error:
            for _, waiting in batch:
                if not waiting.done():  # its caller may have gone away
                    waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)

    def end(self) -> None:
        self._ending = True
        self._arrived.set()
        self._full.set()
