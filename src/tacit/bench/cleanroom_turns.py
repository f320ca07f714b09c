"""Contestants take turns; ratios are taken within a turn, where a busy machine slows both alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

WARM_UP = 2


@dataclass(frozen=True)
class Contestant:
    """`work` is one turn, over so many examples."""

    work: Callable[[], object]
    examples: int


@dataclass(frozen=True)
class Cost:
    """Seconds for one example: the processor's, and those of the clock on the wall."""

    processor: float
    wall: float


@dataclass(frozen=True)
class Turns:
    """What every turn cost each contestant."""

    costs: Mapping[str, tuple[Cost, ...]]

    def __getitem__(self, name: str) -> Cost:
        each = self.costs[name]
        return Cost(median(one.processor for one in each), median(one.wall for one in each))

    def ratio(self, one: str, other: str) -> float:
        """The median over turns of one's processor time in times of the other's beside it."""
        pairs = zip(self.costs[one], self.costs[other], strict=True)
        return median(first.processor / second.processor for first, second in pairs)

    @property
    def described(self) -> str:
        each = (f"{name} {1e6 * self[name].processor:.0f} ({1e6 * self[name].wall:.0f})" for name in self.costs)
        return f"processor microseconds an example (wall): {', '.join(each)}"


def take_turns(contestants: Mapping[str, Contestant], rounds: int) -> Turns:
    """All of them, one after the other, so many times; every other round in the opposite order."""
    costs: dict[str, list[Cost]] = {name: [] for name in contestants}
    for turn in range(WARM_UP + rounds):
        order = list(contestants) if turn % 2 else list(contestants)[::-1]
        for name in order:
            each = contestants[name]
            wall, processor = time.perf_counter(), time.process_time()
            each.work()
            spent = Cost(
                (time.process_time() - processor) / each.examples, (time.perf_counter() - wall) / each.examples
            )
            if turn >= WARM_UP:
                costs[name].append(spent)
    return Turns({name: tuple(each) for name, each in costs.items()})
