"""Measured figures beside their bars, contestants that take turns, and the benchmark suites by name.

A suite of the name NAME is `run` in the module NAME of this package. Contestants take turns so that a busy
machine slows all of them alike; what counts is the processor's time. `take_turns` gives medians,
`take_paired_turns` keeps every turn, so that ratios can be taken within a turn. Nothing here loads NumPy.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

USUAL = (
    "noise", "accounting", "shuffling", "data", "training", "choice", "deliver", "gather", "cleanroom",
    "billing", "serving", "device",
)  # fmt: skip
ON_REQUEST = ("defaults",)
"""Those that take an hour, and files that not everybody has."""
SUITES = (*USUAL, *ON_REQUEST)


Item = TypeVar("Item")


class SuiteProgress(Protocol):
    """Wraps what a suite works through, to show progress."""

    def __call__(self, items: Sequence[Item], label: str) -> Iterable[Item]: ...


@dataclass(frozen=True)
class Measurement:
    """`value` is held to `bar` (`at_least` or at most); without a bar it is only reported."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    at_least: bool = True
    settings: str = ""

    @property
    def holds(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def as_json(self) -> dict[str, Any]:
        """With None for what could not be measured."""
        return {
            "name": self.name,
            "value": None if math.isnan(self.value) else self.value,
            "bar": self.bar,
            "holds": self.holds,
            "unit": self.unit,
            "settings": self.settings,
        }


def process_kilobytes(field: str) -> int:
    """What Linux says of this process's memory: VmRSS is what it has now, VmHWM the most that it had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def interleaved_seconds(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each contestant, taken in turns so that a busy machine slows all of them alike."""
    for contestant in contestants.values():
        contestant()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            start = time.perf_counter()
            contestant()
            times[name].append(time.perf_counter() - start)
    return {name: median(seconds) for name, seconds in times.items()}


Name = TypeVar("Name")

WARM_UP, PAIRED_WARM_UP = 3, 2
"""Turns before the clock: memory is touched for the first time, and libraries set themselves up."""


@dataclass(frozen=True)
class Contestant:
    """`work` is one turn, `steps` steps of training; a slow one takes part in some rounds only."""

    work: Callable[[], object]
    steps: int = 1
    every: int = 1


@dataclass(frozen=True)
class Seconds:
    """Medians for one step. On a quiet machine both are the same; others' work slows the wall clock alone."""

    processor: float
    wall: float
    turns: int


def take_turns(contestants: Mapping[Name, Contestant], rounds: int) -> dict[Name, Seconds]:
    """The time of a step of each, from interleaved turns. All of them must keep to one thread."""
    for contestant in contestants.values():
        for _ in range(WARM_UP if contestant.every == 1 else 1):
            contestant.work()
    processor: dict[Name, list[float]] = {name: [] for name in contestants}
    wall: dict[Name, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        for name, contestant in contestants.items():
            if turn % contestant.every:
                continue
            wall_start, processor_start = time.perf_counter(), time.process_time()
            contestant.work()
            processor[name].append((time.process_time() - processor_start) / contestant.steps)
            wall[name].append((time.perf_counter() - wall_start) / contestant.steps)
    return {
        name: Seconds(median(processor[name]), median(wall[name]), len(processor[name])) for name in contestants
    }


def milliseconds(seconds: Mapping[str, Seconds]) -> str:
    """All contestants in one line: the processor's time, and in brackets that of the clock on the wall."""
    return ", ".join(
        f"{name} {1000 * each.processor:.1f} ({1000 * each.wall:.1f})" for name, each in seconds.items()
    )


@dataclass(frozen=True)
class PairedContestant:
    """`work` is one turn, over `examples` examples."""

    work: Callable[[], object]
    examples: int


@dataclass(frozen=True)
class UnitCost:
    """Seconds per example or report: the processor's, and those of the clock on the wall, disk included."""

    processor: float
    wall: float


@dataclass(frozen=True)
class TurnCosts:
    """What every turn cost each contestant."""

    costs: Mapping[str, tuple[UnitCost, ...]]

    def __getitem__(self, name: str) -> UnitCost:
        each = self.costs[name]
        return UnitCost(median(one.processor for one in each), median(one.wall for one in each))

    def ratio(self, one: str, other: str) -> float:
        """The median over turns of one's processor time in times of the other's beside it."""
        pairs = zip(self.costs[one], self.costs[other], strict=True)
        return median(first.processor / second.processor for first, second in pairs)

    @property
    def described(self) -> str:
        each = (f"{name} {1e6 * self[name].processor:.0f} ({1e6 * self[name].wall:.0f})" for name in self.costs)
        return f"processor microseconds an example (wall): {', '.join(each)}"


def take_paired_turns(contestants: Mapping[str, PairedContestant], rounds: int) -> TurnCosts:
    """All of them, one after the other, `rounds` times; every other round in the opposite order."""
    costs: dict[str, list[UnitCost]] = {name: [] for name in contestants}
    for turn in range(PAIRED_WARM_UP + rounds):
        order = list(contestants) if turn % 2 else list(contestants)[::-1]
        for name in order:
            each = contestants[name]
            wall, processor = time.perf_counter(), time.process_time()
            each.work()
            spent = UnitCost(
                (time.process_time() - processor) / each.examples, (time.perf_counter() - wall) / each.examples
            )
            if turn >= PAIRED_WARM_UP:
                costs[name].append(spent)
    return TurnCosts({name: tuple(each) for name, each in costs.items()})


def processor_model(lines: Sequence[str] | None = None) -> str:
    """The model of the processor, as the system has it."""
    if lines is None:
        source = Path("/proc/cpuinfo")
        lines = source.read_text().splitlines() if source.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
