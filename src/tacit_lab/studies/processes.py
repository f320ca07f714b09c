"""Runs independent pieces of work in processes of this machine that have one thread each.

Nothing here loads NumPy: a process that starts imports this module first, sets how many threads it wants,
and only then loads what the work needs.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import BadInput

Item = TypeVar("Item")
Result = TypeVar("Result")
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MAPPED = Path("/proc/self/maps")
THREAD_SETTERS = {  # by a part of the library's name; wheels of NumPy and SciPy rename OpenBLAS's functions
    "openblas": (
        "openblas_set_num_threads",
        "openblas_set_num_threads64_",
        "scipy_openblas_set_num_threads",
        "scipy_openblas_set_num_threads64_",
    ),
    "libgomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
    "libmkl_rt": ("MKL_Set_Num_Threads",),
}


def map_in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with what came of it, in the order in which they are done, at most `processes` at a time.

    With one process everything happens in this one. Workers end with whoever stops listening, and with this
    process, however it ends.
    """
    if processes == 1 or len(items) < 2:
        yield from ((item, work(item)) for item in items)
        return
    before = set(multiprocessing.active_children())
    # Not forked: threads of this process may hold locks that a copy of it would wait for.
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(items)), spawn, initializer=_prepare_worker)
    finished = False
    try:
        under_way = {pool.submit(work, item): item for item in items}
        for done in as_completed(under_way):
            yield under_way[done], done.result()
        finished = True
    except BrokenProcessPool:
        raise BadInput(
            "expected every process to finish, got one that died (out of memory, perhaps); what is done is "
            "kept: run again to go on, with fewer at a time"
        ) from None
    finally:
        if not finished:  # nobody waits for what they are doing
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
        pool.shutdown(wait=finished, cancel_futures=True)


def _prepare_worker() -> None:
    """What a worker does first: one thread, no say in Ctrl-C, and no life after its parent's."""
    for name in THREAD_SETTINGS:
        os.putenv(name, "1")  # read by libraries that are loaded from now on
    _limit_loaded()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells all of us, and the parent decides
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _limit_loaded() -> None:
    """A parent's own script is imported before us, and what it loads has counted the cores already."""
    if not MAPPED.exists():  # not Linux: the settings have to do
        return
    mapped = os.fsdecode(MAPPED.read_bytes())
    loaded = {line.split(maxsplit=5)[5] for line in mapped.splitlines() if ".so" in line}
    for place in sorted(loaded):
        for part, setters in THREAD_SETTERS.items():
            if part in Path(place).name:
                library = ctypes.CDLL(place)
                for setter in setters:
                    if hasattr(library, setter):
                        getattr(library, setter)(ctypes.c_int(1))


def _end_with(parent: Any) -> None:
    """A parent that was killed cannot tell its workers to stop."""
    parent.join()
    os._exit(1)
