"""What memory gathering takes as devices become more: `python -m tacit.bench.gather_memory` for one case."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tacit.bench.measurement import Measurement
from tacit.entropy import Entropy
from tacit.gather.simulate.memory import MemoryLedger
from tacit.gather.simulate.population import Population
from tacit.gather.simulate.setting import Keys, round_for
from tacit.gather.simulate.world import Books, World
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore

TIMES = 4
MOST_RISE = 1.1
"""Of the peak, from some devices to four times as many: 1 is none."""


def memory(devices: int, cells: int) -> list[Measurement]:
    """The most that a process grew by over a whole round, both parties in it, with stores on disk."""
    few, many = (_in_a_process(count, cells) for count in (devices, TIMES * devices))
    settings = (
        f"peak growth of a process that makes, takes, judges and sums reports of {cells:,} counts, with both "
        f"parties and SQLite in it: {devices:,} devices {few / 1e6:.1f} MB, {TIMES * devices:,} devices "
        f"{many / 1e6:.1f} MB"
    )
    return [
        Measurement(f"memory_rise_at_{TIMES}_times_the_devices", many / few, "x", MOST_RISE, False, settings)
    ]


def growth(folder: Path, devices: int, cells: int) -> int:
    """By this process itself, in bytes; it should have done nothing else."""
    keys, population = Keys.drawn(Entropy()), Population(devices, cells)
    round = round_for(population, keys, epsilon=1.0)
    ledgers = MemoryLedger(), MemoryLedger()
    for ledger in ledgers:
        ledger.grant(round.line, round.cost)
    books = Books(
        SqlProxyStore.open(folder / "proxy.sqlite"), SqlServerStore.open(folder / "server.sqlite"), *ledgers
    )
    world = World(round, population, keys, books, clock=time.process_time)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _kilobytes("VmRSS")
    found = world.run()
    assert found.accepted == devices
    return 1024 * (_kilobytes("VmHWM") - before)


def _in_a_process(devices: int, cells: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tacit.bench.gather_memory", folder, str(devices), str(cells)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    print(growth(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
