"""Clean room: bytes by codec, what room and platform compute, growth, a whole run over mTLS, AUC.

The baselines are the codecs that Li et al. (RecSys 2024) measured, on derivatives written out: fp32, QSGD,
top-k and PowerSGD, in the same run on the same model. Frameworks for vertical federated learning take no
part: they are platforms of several services, train by other protocols, and are no small package to install
beside.

Each part runs in a process of its own with one thread: `python -m tacit_lab.bench.cleanroom NAME SCALE`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version

import torch

from tacit_lab.bench.cleanroom_costs import platform_work, room_memory, room_work, sizes, step_growth
from tacit_lab.bench.cleanroom_runs import loopback, quality
from tacit_lab.bench.cleanroom_workload import CleanroomScale
from tacit_lab.bench.measurement import Measurement, SuiteProgress
from tacit_lab.bench.training import ONE_THREAD

PARTS: dict[str, Callable[[CleanroomScale], list[Measurement]]] = {
    "sizes": sizes,
    "room": room_work,
    "platform": platform_work,
    "growth": step_growth,
    "memory": room_memory,
    "loopback": loopback,
    "quality": quality,
}


FULL = CleanroomScale()
BASELINES = "1 thread; no framework of vertical learning beside: baselines are the published codecs"


def run(progress: SuiteProgress, scale: CleanroomScale = FULL) -> list[Measurement]:
    parts: list[Callable[[], list[Measurement]]] = [partial(_in_a_process, name, scale) for name in PARTS]
    return [measured for part in progress(parts, "cleanroom") for measured in part()]


def _in_a_process(name: str, scale: CleanroomScale) -> list[Measurement]:
    """One part, by a process whose environment is this one's but for the number of threads."""
    arguments = ["tacit_lab.bench.cleanroom", name, json.dumps(scale.as_json())]
    command = [
        "env",
        *(f"{key}={value}" for key, value in ONE_THREAD.items()),
        sys.executable,
        "-m",
        *arguments,
    ]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    versions = ", ".join(f"{package} {version(package)}" for package in ("numpy", "torch", "grpcio"))
    return [
        replace(measured, settings=f"{measured.settings}; {BASELINES}; {versions}")
        for measured in (Measurement(**record) for record in json.loads(child.stdout))
    ]


def main() -> None:
    name, scale = sys.argv[1], CleanroomScale.from_json(json.loads(sys.argv[2]))
    torch.set_num_threads(1)
    print(json.dumps([asdict(measured) for measured in PARTS[name](scale)]))


if __name__ == "__main__":
    main()
