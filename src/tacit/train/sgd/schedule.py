"""How the learning rate changes over a run. It depends on the step alone, so it tells nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit import expect
from tacit.expect import Choice


class Decay(Choice):
    CONSTANT = "constant"
    COSINE = "cosine"  # half a cosine from the rate to 0 (Loshchilov and Hutter 2017)


@dataclass(frozen=True)
class Schedule:
    """The rate of step 0, 1, ..., steps - 1."""

    rate: float
    steps: int
    decay: Decay = Decay.COSINE

    def __post_init__(self) -> None:
        expect.positive("learning rate", self.rate)
        expect.whole("steps", self.steps, at_least=1)
        object.__setattr__(self, "decay", Decay(self.decay))

    def at(self, step: int) -> float:
        if self.decay is Decay.CONSTANT:
            return self.rate
        return self.rate * 0.5 * (1 + math.cos(math.pi * step / self.steps))
