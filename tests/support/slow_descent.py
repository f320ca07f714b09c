"""The fast step's twin, slow and obvious: one gradient for each example, clipped, added up, noised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tacit.train.examples import Examples, Places
from tacit.train.models.model import Model
from tacit.train.sgd.descent import DescentSettings
from tacit.train.sgd.optimizers import Adam, RmsProp, Sgd, Yogi
from tacit.train.targets import Targets

Doubles = NDArray[np.float64]


class SlowDescent:
    """The same steps as `descent.GradientDescent`; `noise(shape)` draws one step's noise, dense."""

    def __init__(
        self, model: Model, settings: DescentSettings, noise: Callable[[tuple[int, ...]], Doubles] | None = None
    ) -> None:
        self.model, self.settings, self.noise = model, settings, noise
        self.memory: dict[str, list[Doubles]] = {}
        self.taken = 0

    def step(
        self, examples: Examples, targets: Targets, places: Places, rate: float, groups: Places | None = None
    ) -> None:
        part = self.settings.part
        chosen = places if targets.rows is None else targets.rows[places]
        ids = self.model.ids(examples, examples.rows(chosen), part)
        residual = targets.residual(self.model.forward(ids, part).scores, places)
        sums: dict[str, Doubles] = {}
        for members in _records(len(places), groups):
            gradient: dict[str, Doubles] = {}
            for index in members:
                for name, own in self.model.example_gradient(ids, index, part).items():
                    gradient[name] = gradient.get(name, np.float64(0)) + float(residual[index]) * own.astype(
                        float
                    )
            scale = self._scale(gradient)
            for name, slope in gradient.items():
                sums[name] = sums.get(name, np.float64(0)) + scale * slope
        self.taken += 1
        for name, rows in self.model.trained_rows(part).items():
            table = self.model.tables[name]
            mean = np.zeros(table.shape)
            for row in range(rows.start, rows.stop):
                mean[row] = sums.get(f"{name}[{row}]", np.float64(0)) / self.settings.expected_batch
            noised = mean + (self.noise(table.shape) if self.noise else 0.0)
            embedding = slice(self.model.penalised_from, None)
            noised[:, embedding] += self.settings.penalty * table[:, embedding]
            table[rows] -= self._move(name, noised, rate)[rows].astype(np.float32)
        for name in self.model.trained_dense(part):
            dense = self.model.dense[name]
            mean = np.zeros(dense.shape) + sums.get(name, np.float64(0)) / self.settings.expected_batch
            noised = mean + (self.noise(dense.shape) if self.noise else 0.0)
            dense -= self._move(name, noised, rate).astype(np.float32)

    def _scale(self, gradient: dict[str, Doubles]) -> float:
        if self.settings.clipping is None:
            return 1.0
        norm = float(np.sqrt(sum(np.sum(slope**2) for slope in gradient.values())))
        return 1.0 if norm == 0 else min(1.0, self.settings.clipping.clip_norm / norm)

    def _move(self, name: str, gradient: Doubles, rate: float) -> Doubles:
        """What the optimizer takes off the weights, from its textbook formula."""
        if name not in self.memory:
            self.memory[name] = [np.zeros_like(gradient), np.zeros_like(gradient)]
        first, second = self.memory[name]
        match self.settings.optimizer:
            case Sgd(momentum):
                first[:] = momentum * first + gradient
                return rate * first
            case RmsProp(beta2, epsilon):
                second[:] = beta2 * second + (1 - beta2) * gradient**2
                return rate * gradient / (np.sqrt(second) + epsilon)
            case Adam(beta1, beta2, epsilon):
                second[:] = beta2 * second + (1 - beta2) * gradient**2
            case Yogi(beta1, beta2, epsilon):
                second[:] = second - (1 - beta2) * np.sign(second - gradient**2) * gradient**2
        first[:] = beta1 * first + (1 - beta1) * gradient
        corrected = np.sqrt(second / (1 - beta2**self.taken))
        return rate * (first / (1 - beta1**self.taken)) / (corrected + epsilon)


def _records(count: int, groups: Places | None) -> list[list[int]]:
    if groups is None:
        return [[index] for index in range(count)]
    return [np.flatnonzero(groups == group).tolist() for group in np.unique(groups)]
