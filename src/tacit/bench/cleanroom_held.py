"""A room in this process, and what its own work takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.in_process import HeldRoom, room_in_process
from tacit.cleanroom.wire.answers import StepAnswer
from tacit.cleanroom.wire.requests import StepRequest
from tacit.entropy import Simulation


def held_room(tokens: NDArray[np.uint8], labels: NDArray[np.uint8], **agreed: Any) -> HeldRoom:
    """With these labels (n,) of one task. Simulated: its secrets come from a seed."""
    return room_in_process(tokens, labels[:, None], source=Simulation("room"), **agreed)


@dataclass(eq=False)
class Watched:
    """The link to a held room, which notes how long its steps take: slabs are there before they begin."""

    held: HeldRoom
    stopwatch: Callable[[], float] = time.perf_counter
    seconds: float = field(default=0.0, init=False)

    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer:
        came = list(slabs)
        began = self.stopwatch()
        answer = self.held.step(request, came)
        self.seconds += self.stopwatch() - began
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.held, name)
