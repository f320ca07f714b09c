"""A market that streams: time a row and memory as logs grow; `python -m tacit.bench.choice_growth ROWS`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tacit.bench.measurement import Measurement
from tacit.data.generators.markets import Market
from tacit.deliver.auction.choices import NonPersonalised, TopOf
from tacit.deliver.auction.logs import generated_blocks
from tacit.deliver.auction.market import Arm, measure

MOST_RISE = 1.1
"""Of time a row and of memory, from the shortest log to any longer one."""

CANDIDATES = 4.2
"""What an auction of the Taobao-like market has on average."""

TURNS = 3


def growth(rows: Sequence[int]) -> list[Measurement]:
    """Each in processes of its own, in turns; the least time of each, the most memory."""
    found: dict[int, list[dict[str, float]]] = {size: [] for size in rows}
    for _ in range(TURNS):
        for size in rows:
            command = [sys.executable, "-m", "tacit.bench.choice_growth", str(size)]
            child = subprocess.run(command, capture_output=True, text=True, check=True)
            found[size].append(json.loads(child.stdout))
    return rises(rows, found)


def rises(rows: Sequence[int], found: Mapping[int, Sequence[Mapping[str, float]]]) -> list[Measurement]:
    """How much more a row of a longer log takes, and the whole of it holds."""
    nanoseconds = {size: min(one["nanoseconds"] for one in turns) for size, turns in found.items()}
    peaks = {size: max(one["peak"] for one in turns) for size, turns in found.items()}
    first = min(rows)
    settings = (
        "Taobao-like market, generated and measured block by block: non-personalised, and randomized response "
        f"at epsilon 5; processor nanoseconds a row: {_listed(nanoseconds)}; peak megabytes of the process: "
        f"{_listed(peaks)}; least times and largest peaks of {TURNS} processes each, in turns"
    )
    return [
        Measurement(name, max(values.values()) / values[first], "x", MOST_RISE, False, settings)
        for name, values in (("market_time_a_row_rise", nanoseconds), ("market_memory_rise", peaks))
    ]


def stream(rows: int) -> dict[str, float]:
    """Measure about so many rows, by this process itself."""
    arms = {"public": Arm(NonPersonalised()), "private": Arm(TopOf(5.0))}
    measure(generated_blocks(Market.taobao_like().auctions(1000, seed=1)), arms)  # imports and tables
    count = int(rows / CANDIDATES)
    start = time.process_time()
    measure(generated_blocks(Market.taobao_like().auctions(count, seed=1)), arms)
    taken = time.process_time() - start
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return {"nanoseconds": 1e9 * taken / rows, "peak": peak / 1024}


def _listed(values: dict[int, float]) -> str:
    return ", ".join(f"{size:,} rows: {value:.0f}" for size, value in values.items())


if __name__ == "__main__":
    print(json.dumps(stream(int(sys.argv[1]))))
