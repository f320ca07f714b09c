"""Contestants take turns on one thread; what counts is the processor's time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Name = TypeVar("Name")

WARM_UP = 3
"""Turns before the clock: memory is touched for the first time, and libraries set themselves up."""


@dataclass(frozen=True)
class Contestant:
    """`work` is one turn, `steps` steps of training; a slow one takes part in every so many rounds only."""

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
