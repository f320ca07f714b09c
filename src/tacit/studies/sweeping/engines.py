"""Where runs are done: processes of this machine with one thread each, or a Ray cluster."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from tacit.errors import BadInput
from tacit.expect import Choice

Item = TypeVar("Item")
Result = TypeVar("Result")
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Engine(Choice):
    LOCAL = "local"
    RAY = "ray"


def spread(
    engine: Engine, work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with what came of it, in the order in which they are done, at most `jobs` at a time."""
    if engine is Engine.RAY:
        yield from _on_ray(_ray(), work, items, jobs)
    elif jobs == 1:
        yield from ((item, work(item)) for item in items)
    else:
        yield from _in_processes(work, items, jobs)


def check(engine: Engine) -> None:
    """Refuse before any work what could not be done."""
    if engine is Engine.RAY:
        _ray()


def _in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    before = set(multiprocessing.active_children())
    # Not forked: threads of this process may hold locks that a copy of it would wait for.
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, max(1, len(items))), spawn, initializer=_settle_in)
    finished = False
    try:
        under_way = {pool.submit(work, item): item for item in items}
        for done in as_completed(under_way):
            yield under_way[done], done.result()
        finished = True
    except BrokenProcessPool:
        raise BadInput(
            "expected every process to finish, got one that died (out of memory, perhaps); what is done is "
            "kept: run again to go on, with fewer --jobs"
        ) from None
    finally:
        if not finished:  # nobody waits for what they are doing
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
        pool.shutdown(wait=finished, cancel_futures=True)


def _settle_in() -> None:
    """What a worker does first: one thread, no say in Ctrl-C, and no life after its parent's."""
    for name in THREAD_SETTINGS:
        os.putenv(name, "1")  # read by libraries that are loaded from now on
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells all of us, and the parent decides
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    """A parent that was killed cannot tell its workers to stop."""
    parent.join()
    os._exit(1)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise BadInput("--engine: expected ray to be installed, got none: pip install 'tacit[ray]'") from None


def _on_ray(
    ray: Any, work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    """Joins the cluster that Ray's own settings name, or starts one here. Its nodes must see the data."""
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote = ray.remote(num_cpus=1)(work)
    left = list(reversed(items))
    waiting: dict[Any, Item] = {}
    try:
        while left or waiting:
            while left and len(waiting) < jobs:
                item = left.pop()
                waiting[remote.remote(item)] = item
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            yield waiting.pop(done), ray.get(done)
    finally:
        for reference in waiting:
            ray.cancel(reference)
