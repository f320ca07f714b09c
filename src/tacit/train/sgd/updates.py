"""How the gradient sum of a step changes a table: row by row where only the rows that were read move, or
wholly.

An update owns the accumulator that the model adds its (already clipped and averaged) gradients to, and
everything an optimizer remembers. A step is: `prepare` the rows that a microbatch reads, let the model
accumulate, `finish`.
"""

from __future__ import annotations

import math
from typing import Protocol, assert_never

import numpy as np

from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput
from tacit.kernels import training as kernels
from tacit.train.sgd.draws import BLOCK, PendingNoise, TrainingNoise, noise_blocks
from tacit.train.sgd.monitor import NoiseMonitor, is_looked_at
from tacit.train.sgd.optimizers import Adam, Optimizer, RmsProp, Sgd, Yogi
from tacit.train.sgd.self_checks import ExpectedMove, expect_moved


def add_noise(
    noise: TrainingNoise, monitor: NoiseMonitor, array: Floats32, factor: float = 1.0, *, look: bool
) -> None:
    """array += factor * noise, for a flat array, in place; with a look at how far some of it moved."""
    before = monitor.before_adding(array) if look else None
    noise.add_to(array, factor)
    if before is not None:
        monitor.check_added(array, before, factor)


class TableUpdate(Protocol):
    """Changes one table (rows, width), or a dense parameter as a table of width 1."""

    accumulator: Floats32
    pulls: Floats32 | None  # the second part of a gradient, where it may come in two (`model.GradientSums`)

    def prepare(self, ids: Ids) -> None:
        """Bring the rows that these ids read up to date, before the model looks at them."""
        ...

    def finish(self, rate: float) -> None:
        """Take the step: what was accumulated, plus noise."""
        ...

    def settle(self) -> None:
        """Pay all noise that rows are still owed. Nothing may look at the weights from outside before this."""
        ...

    @property
    def memory(self) -> dict[str, Floats32]:
        """What a checkpoint must keep besides the weights, once settled."""
        ...


class SparseTable:
    """SGD that touches only the rows that a step reads; noise waits until a row is read again (`lazy`), or is
    added to the whole table (dense, without momentum), or there is none."""

    def __init__(
        self,
        weights: Floats32,
        rows: slice,
        momentum: float,
        noise: TrainingNoise | None,
        monitor: NoiseMonitor | None = None,
        *,
        lazy: bool,
    ) -> None:
        if noise is not None and not lazy and momentum:
            raise BadInput("expected lazy noise for row-wise SGD with momentum, got dense noise")
        if (noise is None) != (monitor is None):
            raise BadInput("expected noise and its monitor, got one without the other")
        self.accumulator = np.zeros_like(weights)
        self.pulls: Floats32 | None = np.zeros(len(weights), np.float32)
        self._weights, self._rows, self._momentum = weights, rows, momentum
        self._noise, self._monitor = noise, monitor
        self._waits = momentum > 0 or (noise is not None and lazy)
        stddev = noise.stddev if noise is not None and lazy else 0.0
        self._pending = PendingNoise(stddev, momentum)
        self._stamps = np.full(len(weights), -1, np.int32)
        self._since = np.zeros(len(weights) if self._waits else 0, np.int32)
        self._read = np.empty(2 * len(weights), np.int32)  # each microbatch is offered room for every row
        self._reads, self._step = 0, 0

    def prepare(self, ids: Ids) -> None:
        first = self._reads
        self._reads += kernels.touch(ids, self._stamps, self._step, self._read[first:])
        if self._waits:
            self._catch_up(self._read[first : self._reads])

    def finish(self, rate: float) -> None:
        read = self._read[: self._reads]
        keep = 1.0 if self._momentum else 0.0  # a velocity slows down when its row is next brought up to date
        kernels.apply_rows(self._weights, self.accumulator, read, rate, keep, self.pulls)
        if self._waits:
            self._pending.advance(rate)
            if self._monitor is not None:
                self._monitor.step(rate)
            if self._pending.full:
                self.settle()
        elif self._noise is not None and self._monitor is not None:
            weights = self._weights[self._rows].reshape(-1)
            for block, look in noise_blocks(len(weights), 4 * BLOCK, self._step, self._monitor.below):
                add_noise(self._noise, self._monitor, weights[block], rate, look=look)
        self._reads, self._step = 0, self._step + 1

    def settle(self) -> None:
        if not self._waits or self._pending.steps == 0:
            return
        self._catch_up(range(self._rows.start, self._rows.stop), next_step=False)
        self._pending.begin()
        if self._monitor is not None:
            self._monitor.clear_owed()
        self._since[:] = 0

    @property
    def memory(self) -> dict[str, Floats32]:
        return {"velocity": self.accumulator} if self._momentum else {}

    def _catch_up(self, rows: Ids | range, *, next_step: bool = True) -> None:
        """Pay what these rows are owed; before the next step also decay their velocity, which it will add
        to."""
        pending, width = self._pending, self._weights.shape[1]
        keep = self._momentum if next_step else 1.0
        velocity = self.accumulator if self._momentum else None
        factors = pending.factors if self._momentum else pending.weight_factors
        if self._momentum:
            factors[:, 0] *= keep
        decay, drift = (pending.decay * keep).astype(np.float32), pending.drift.astype(np.float32)
        owed = kernels.never_closer_to_zero(factors)
        monitor = self._monitor if self._monitor is not None and self._monitor.waits else None
        if monitor is not None and next_step and not is_looked_at(self._step, monitor.below):
            monitor = None
        if monitor is not None:
            monitor.check_factors(owed, keep)
        now = pending.steps + 1  # the step to come, from which these rows will wait next
        at_once = max(1, BLOCK // (width * (2 if self._momentum else 1)))
        for first in range(0, len(rows), at_once):
            some = rows[first : first + at_once]
            normals = None
            if self._noise is not None:
                shape = (2, len(some), width) if self._momentum else (len(some), width)
                normals = self._noise.draw_unit(math.prod(shape)).reshape(shape)
            before = None
            if monitor is not None:
                before = monitor.before_paying(some, self._since, self._weights, velocity)
            kernels.catch_up(self._weights, velocity, some, self._since, 0, now, decay, drift, owed, normals)
            if monitor is not None and before is not None:
                monitor.check_paid(before, self._weights, velocity, keep)


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
        kept = {Sgd: (), RmsProp: ("second",), Adam: ("first", "second"), Yogi: ("first", "second")}[
            type(optimizer)
        ]
        self._moments = {name: np.zeros_like(weights) for name in kept}
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
