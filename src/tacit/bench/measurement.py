"""One measured figure beside the bar that it is held to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Track(Protocol):
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
