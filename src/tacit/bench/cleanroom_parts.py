"""The clean-room suite's parts by name: `python -m tacit.bench.cleanroom_parts` runs one of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict

import torch

from tacit.bench.cleanroom_growth import growth, memory
from tacit.bench.cleanroom_loopback import loopback
from tacit.bench.cleanroom_platform import platform_work
from tacit.bench.cleanroom_quality import quality
from tacit.bench.cleanroom_rooms import room_work
from tacit.bench.cleanroom_sizes import sizes
from tacit.bench.cleanroom_workload import Scale
from tacit.bench.measurement import Measurement

PARTS: dict[str, Callable[[Scale], list[Measurement]]] = {
    "sizes": sizes,
    "room": room_work,
    "platform": platform_work,
    "growth": growth,
    "memory": memory,
    "loopback": loopback,
    "quality": quality,
}


def main() -> None:
    name, scale = sys.argv[1], Scale.from_json(json.loads(sys.argv[2]))
    torch.set_num_threads(1)
    print(json.dumps([asdict(measured) for measured in PARTS[name](scale)]))


if __name__ == "__main__":
    main()
