"""Blocks of uploads, made here or by other processes that are a few blocks ahead."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice

from tacit import expect
from tacit.errors import GatherError
from tacit.gather.simulate.making import Devices, Made, make

AHEAD = 3
"""Blocks that each process may be ahead: what waits to be taken is all that memory grows by."""


def made_blocks(devices: Devices, processes: int) -> Iterator[Made]:
    """Every block of the population, in any order. Of `processes` one is this one; the others make uploads.

    This one does so too whenever it would have to wait for them.
    """
    others = expect.whole("processes", processes, at_least=1) - 1
    numbers = iter(range(devices.population.blocks))
    if not others or devices.population.blocks < 2:
        yield from (make(devices, number) for number in numbers)
        return
    # Not forked: threads of this process may hold locks that a copy of it would wait for.
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(others, spawn, initializer=_begin, initargs=(devices,))
    try:
        with _born_deaf_to_interrupts():  # the terminal tells all of us, and this process decides
            waiting = deque(pool.submit(_make, number) for number in islice(numbers, AHEAD * others))
        while waiting:
            number = next(numbers, None)
            if number is not None and not waiting[0].done():
                yield make(devices, number)
                continue
            if number is not None:
                waiting.append(pool.submit(_make, number))
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise GatherError("expected every process to finish, got one that died") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _born_deaf_to_interrupts() -> Iterator[None]:
    """Processes begun in here ignore Ctrl-C from their first moment on, imports included."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may change that
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_devices: Devices | None = None  # in a worker: sent once, not with every block


def _begin(devices: Devices) -> None:
    global _devices
    _devices = devices


def _make(number: int) -> Made:
    assert _devices is not None
    return make(_devices, number)
