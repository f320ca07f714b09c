"""How threads of torch, MKL and BLAS wait for each other, and how many there are: set before they are loaded.

torch splits a step over threads that meet at a barrier. By default the first one there spins, on a core
that the last one may be waiting for: on a machine that others use, quickstart took three times as long, and
three times the processor. Asleep they cost nothing. Where the environment says how threads wait, or how many
there are, it stays so.
"""

from __future__ import annotations

import os

WAIT_POLICY, SPIN_COUNT = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
THREAD_NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def set_passive_waiting() -> None:
    """Threads that wait for others sleep, in libraries that are loaded from now on."""
    if SPIN_COUNT not in os.environ:
        os.environ.setdefault(WAIT_POLICY, "PASSIVE")


def limit_threads(threads: int) -> None:
    """No more threads than this, or than cores, in libraries that are loaded from now on: for small models."""
    if any(name in os.environ for name in THREAD_NUMBERS):
        return
    for name in THREAD_NUMBERS:
        os.environ[name] = str(min(threads, _cores()))


def _cores() -> int:
    """That this process may use: a container may have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
