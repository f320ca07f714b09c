"""Group commit: together, in order, answered after the commit; trouble reaches everybody it concerns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from tacit.services.problems import ServiceBusy
from tacit.services.proxy_intake import Batcher


def doubled(batches: list[list[int]]) -> Callable[[Sequence[int]], list[int]]:
    def decide(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        return [2 * item for item in items]

    return decide


def made(decide: Callable[[Sequence[int]], list[int]], **settings: Any) -> Batcher[int, int]:
    return Batcher(decide, **{"wait_seconds": 0.01, "most": 100, **settings})


def run(batcher: Batcher[int, int], work: Coroutine[Any, Any, None]) -> None:
    async def whole() -> None:
        running = asyncio.create_task(batcher.run())
        await asyncio.wait_for(work, 5)
        batcher.end()
        await asyncio.wait_for(running, 5)

    asyncio.run(whole())


def test_what_arrives_together_is_decided_together() -> None:
    batches: list[list[int]] = []
    batcher = made(doubled(batches), wait_seconds=0.05)

    async def work() -> None:
        assert await asyncio.gather(*map(batcher.submit, range(60))) == [2 * each for each in range(60)]
        assert await batcher.submit(7) == 14

    run(batcher, work())
    assert batches == [list(range(60)), [7]]


def test_no_batch_is_too_large_and_a_full_one_does_not_wait() -> None:
    batches: list[list[int]] = []
    batcher = made(doubled(batches), wait_seconds=60, most=10)

    async def work() -> None:
        assert len(await asyncio.gather(*map(batcher.submit, range(30)))) == 30

    run(batcher, work())
    assert [len(batch) for batch in batches] == [10, 10, 10]


def test_the_next_batch_gathers_while_one_is_stored() -> None:
    batches: list[list[int]] = []
    first_is_in, go_on = threading.Event(), threading.Event()

    def decide(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        first_is_in.set()
        assert go_on.wait(5)
        return list(items)

    batcher = made(decide, wait_seconds=0)

    async def work() -> None:
        first = asyncio.create_task(batcher.submit(0))
        assert await asyncio.to_thread(first_is_in.wait, 5)
        rest = [asyncio.create_task(batcher.submit(each)) for each in range(1, 20)]
        await asyncio.sleep(0.01)
        assert not first.done(), "an answer left before the commit"
        go_on.set()
        await asyncio.gather(first, *rest)

    run(batcher, work())
    assert batches == [[0], list(range(1, 20))]


def test_a_failed_commit_fails_its_own_batch_only() -> None:
    def decide(items: Sequence[int]) -> list[int]:
        if 13 in items:
            raise OSError("the disk is full")
        return list(items)

    batcher = made(decide)

    async def work() -> None:
        found = await asyncio.gather(batcher.submit(13), batcher.submit(1), return_exceptions=True)
        assert [type(each) for each in found] == [OSError, OSError]
        assert await batcher.submit(2) == 2

    run(batcher, work())


def test_a_caller_that_went_away_harms_nobody_else() -> None:
    batcher = made(doubled([]), wait_seconds=0.05)

    async def work() -> None:
        gone, stays = asyncio.create_task(batcher.submit(1)), asyncio.create_task(batcher.submit(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == 4

    run(batcher, work())


def test_what_came_before_the_end_is_decided_and_nothing_after() -> None:
    batches: list[list[int]] = []
    batcher = made(doubled(batches), wait_seconds=60)

    async def work() -> None:
        waiting = [asyncio.create_task(batcher.submit(each)) for each in range(3)]
        await asyncio.sleep(0)
        batcher.end()
        assert await asyncio.gather(*waiting) == [0, 2, 4]
        with pytest.raises(ServiceBusy):
            await batcher.submit(9)

    run(batcher, work())
