"""Training: private steps beside plain ones, stock torch and Opacus; memory; growth; one thread.

Each part runs in a process of its own, with one thread and the C allocator set so that torch reuses its
memory: as it comes, glibc hands large tensors back after every step, and torch takes three times as long.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from tacit.bench.measurement import Measurement, Track
from tacit.bench.training_memory import memory
from tacit.bench.training_parts import PARTS
from tacit.bench.training_steps import Scale, make_log

ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
FULL = Scale()


def run(track: Track, scale: Scale = FULL) -> list[Measurement]:
    measured: list[Measurement] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "columns"
        parts: list[Callable[[], list[Measurement]]] = [
            partial(_log_made, scale, folder),
            *(partial(_in_a_process, name, scale, folder) for name in PARTS),
            partial(memory, scale, folder),
        ]
        for part in track(parts, "training"):
            measured.extend(part())
    return measured


def _log_made(scale: Scale, folder: Path) -> list[Measurement]:
    make_log(scale, folder)
    return []


def _in_a_process(name: str, scale: Scale, folder: Path) -> list[Measurement]:
    """One part, by a process whose environment is this one's but for threads and allocator."""
    variables = {**ONE_THREAD, **ALLOCATOR}
    arguments = ["tacit.bench.training_parts", name, str(folder), json.dumps(asdict(scale))]
    command = ["env", *(f"{key}={value}" for key, value in variables.items()), sys.executable, "-m", *arguments]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    chosen = ", ".join(f"{key}={value}" for key, value in ALLOCATOR.items())
    return [
        replace(measured, settings=f"{measured.settings}; 1 thread; {chosen}")
        for measured in (Measurement(**record) for record in json.loads(child.stdout))
    ]
