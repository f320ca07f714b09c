"""Optimizers and learning-rate schedules as frozen values.

`updates` applies an optimizer to tables and dense parameters. A rate depends on the step alone, so it tells
nothing about the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tacit import expect
from tacit.errors import BadInput
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


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent, with momentum or without: v <- momentum v + g; w <- w - rate v."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        expect.probability("momentum", self.momentum, zero=True)


@dataclass(frozen=True)
class Adam:
    """The Adam optimizer: Kingma and Ba 2015 (arXiv 1412.6980), algorithm 1."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        expect.probability("beta1", self.beta1, zero=True)
        expect.probability("beta2", self.beta2, zero=True)
        expect.positive("epsilon of the optimizer", self.epsilon)


@dataclass(frozen=True)
class Yogi:
    """The Yogi optimizer: Adam whose second moment moves by a bounded amount (Zaheer et al. 2018, algorithm 2).

    With Adam's bias correction of both moments, which that algorithm leaves out: moments start at 0 here.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        Adam(self.beta1, self.beta2, self.epsilon)


@dataclass(frozen=True)
class RmsProp:
    """The RMSProp optimizer: g over the root of a running mean of its square (Tieleman and Hinton 2012)."""

    beta2: float = 0.99
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        Adam(0.0, self.beta2, self.epsilon)


Optimizer = Sgd | Adam | Yogi | RmsProp

OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": Sgd, "adam": Adam, "yogi": Yogi, "rmsprop": RmsProp}


def optimizer(name: str, settings: dict[str, Any] | None = None) -> Optimizer:
    """By the name that a configuration file says."""
    if name not in OPTIMIZERS:
        raise BadInput(f"expected optimizer to be one of {', '.join(OPTIMIZERS)}, got {name!r}")
    kind = OPTIMIZERS[name]
    allowed = kind.__dataclass_fields__
    for key in settings or {}:
        if key not in allowed:
            raise BadInput(f"optimizer {name}: expected one of {', '.join(allowed)}, got {key!r}")
    return kind(**(settings or {}))


def optimizer_name(chosen: Optimizer) -> str:
    return next(name for name, kind in OPTIMIZERS.items() if isinstance(chosen, kind))
