"""Optimizers and learning-rate schedules as frozen values, and how an optimizer changes a whole table.

A rate depends on the step alone, so it tells nothing about the data. SGD can do with less than a whole table:
`draws.SparseTable` changes the rows that a step reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from tacit import expect
from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.kernels import training as kernels
from tacit.train.sgd.draws import BLOCK, TrainingNoise, add_noise, noise_blocks
from tacit.train.sgd.monitor import NoiseMonitor
from tacit.train.sgd.self_checks import ExpectedMove, expect_moved


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
MOMENTS: dict[type[Optimizer], tuple[str, ...]] = {
    Sgd: (),  # a velocity is kept where gradients are added up
    RmsProp: ("second",),
    Adam: ("first", "second"),
    Yogi: ("first", "second"),
}
"""What each remembers of earlier gradients, an array of the table's size each."""


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


class DenseTable:
    """Any optimizer over all rows in every step, with or without noise; `penalty` is the L2 penalty of
    embeddings."""

    def __init__(
        self,
        weights: Floats32,
        rows: slice,
        optimizer: Optimizer,
        noise: TrainingNoise | None,
        monitor: NoiseMonitor | None = None,
        *,
        penalty: float = 0.0,
        penalised_from: int = 0,
    ) -> None:
        if (noise is None) != (monitor is None):
            raise BadInput("expected noise and its monitor, got one without the other")
        self.accumulator = np.zeros_like(weights)
        self.pulls: Floats32 | None = None
        self._penalised = slice(penalised_from, None)
        self._weights, self._rows, self._optimizer = weights, rows, optimizer
        self._noise, self._monitor = noise, monitor
        self._penalty = penalty
        self._moments = {name: np.zeros_like(weights) for name in MOMENTS[type(optimizer)]}
        self._steps = 0

    def prepare(self, ids: Ids) -> None:
        """All rows are always up to date."""

    def finish(self, rate: float) -> None:
        self._steps += 1
        rows_at_once = max(1, BLOCK // self._weights.shape[1])
        size, below = self._rows.stop - self._rows.start, None if self._monitor is None else self._monitor.below
        for block, look in noise_blocks(size, rows_at_once, self._steps, below):
            rows = slice(self._rows.start + block.start, self._rows.start + block.stop)
            if self._noise is None or self._monitor is None:
                self._change(rows, rate)
                continue
            add_noise(self._noise, self._monitor, self.accumulator[rows].reshape(-1), look=look)
            if not look:
                self._change(rows, rate)
                continue
            row = rows.start + self._monitor.below(rows.stop - rows.start)
            expected = self._stepped_row(row, rate)
            self._change(rows, rate)
            arrays = {"weights": self._weights, "velocity": self.accumulator, **self._moments}
            for name, moved in expected.items():
                what = f"noise: expected the {name} of a row to take its step with its noise"
                expect_moved(what, arrays[name][row], moved)

    def settle(self) -> None:
        """Nothing is ever owed."""

    @property
    def memory(self) -> dict[str, Floats32]:
        if isinstance(self._optimizer, Sgd):
            return {"velocity": self.accumulator} if self._optimizer.momentum else {}
        return dict(self._moments)

    @property
    def steps(self) -> int:
        """How many steps the moments have seen; a checkpoint keeps it for their bias corrections."""
        return self._steps

    @steps.setter
    def steps(self, taken: int) -> None:
        self._steps = taken

    def _stepped_row(self, row: int, rate: float) -> dict[str, ExpectedMove]:
        """What a step must make of a row's weights and moments, in textbook form."""
        gradient, weights = self.accumulator[row].astype(np.float64), self._weights[row].astype(np.float64)
        pull = np.zeros_like(gradient)
        pull[self._penalised] = self._penalty * weights[self._penalised]
        size, gradient = np.abs(gradient) + np.abs(pull), gradient + pull
        if isinstance(self._optimizer, Sgd):
            return {
                "weights": ExpectedMove(weights, -rate * gradient, rate * size),
                "velocity": ExpectedMove(self._optimizer.momentum * gradient, 0 * gradient, size),
            }
        beta1, beta2 = getattr(self._optimizer, "beta1", 0.0), self._optimizer.beta2
        old, square = self._moments["second"][row].astype(np.float64), gradient**2
        second = ExpectedMove(beta2 * old, (1 - beta2) * square, size**2 - square)
        if isinstance(self._optimizer, Yogi):
            second = ExpectedMove(old, -(1 - beta2) * np.sign(old - square) * square, size**2 - square)
            # Where both are equal but for rounding, either sign is right.
            second.size[np.abs(old - square) <= 1e-5 * (old + size**2)] = np.inf
        steps, mean, root = {"second": second}, gradient, second.was + second.move
        if "first" in self._moments:
            kept = beta1 * self._moments["first"][row].astype(np.float64)
            steps["first"] = ExpectedMove(kept, (1 - beta1) * gradient, (1 - beta1) * size)
            mean = (kept + (1 - beta1) * gradient) / (1 - beta1**self._steps)
            size = (np.abs(kept) + (1 - beta1) * size) / (1 - beta1**self._steps)
            root = root / (1 - beta2**self._steps)
        speed = rate / (np.sqrt(root) + self._optimizer.epsilon)
        undecided = np.isinf(second.size)
        steps["weights"] = ExpectedMove(weights, -speed * mean, np.where(undecided, np.inf, speed * size))
        return steps

    def _change(self, rows: slice, rate: float) -> None:
        weights, gradient = self._weights[rows].reshape(-1), self.accumulator[rows].reshape(-1)
        moments = {name: moment[rows].reshape(-1) for name, moment in self._moments.items()}
        # The kernels know a penalty that leaves a row's first entry alone, which saves two ways through memory.
        known = self._penalised.start == 1 and not isinstance(self._optimizer, Sgd)
        penalty = {"shrink": self._penalty, "width": self._weights.shape[1]} if known else {}
        if self._penalty and not known:
            # Whole rows: NumPy is slow over parts of them. What adds nothing is -0, which leaves 0 its sign.
            pull = np.float32(self._penalty) * self._weights[rows]
            pull[:, : self._penalised.start] = -0.0
            self.accumulator[rows] += pull
        match self._optimizer:
            case Sgd(momentum):
                kernels.sgd_block(weights, gradient, rate, momentum)
            case RmsProp(beta2, epsilon):
                kernels.rmsprop_block(
                    weights, moments["second"], gradient, rate=rate, decay=beta2, epsilon=epsilon, **penalty,
                )  # fmt: skip
            case Adam(beta1, beta2, epsilon) | Yogi(beta1, beta2, epsilon):
                block = kernels.adam_block if isinstance(self._optimizer, Adam) else kernels.yogi_block
                block(
                    weights, moments["first"], moments["second"], gradient, rate=rate, beta1=beta1,
                    beta2=beta2, epsilon=epsilon, correction1=1 - beta1**self._steps,
                    correction2=1 - beta2**self._steps, **penalty,
                )  # fmt: skip
            case unknown:
                assert_never(unknown)
