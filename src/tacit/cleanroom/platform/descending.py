"""Adam and plain descent on one flat vector: two small rules, whose memory is easy to keep and restore.

In NumPy, because a run that goes on after a crash must take the very steps that it would have taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.expect import Choice

Floats = NDArray[np.float32]

DECAY, SQUARED_DECAY, LEAST_DIVISOR = 0.9, 0.999, 1e-8  # Kingma, Ba 2015 (arXiv 1412.6980), algorithm 1


class Optimizer(Choice):
    """How a gradient becomes a step."""

    ADAM = "adam"
    SGD = "sgd"


@dataclass(eq=False)
class Descent:
    """Values that go downhill. `steps` counts the steps that the moments have seen."""

    optimizer: Optimizer
    values: Floats  # (parameters,)
    steps: int = 0
    mean: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # Adam's: of gradients
    square: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # and of their squares

    def __post_init__(self) -> None:
        if self.optimizer is Optimizer.ADAM and not len(self.mean):
            self.mean, self.square = np.zeros_like(self.values), np.zeros_like(self.values)

    def step(self, gradient: Floats, learning_rate: float) -> None:
        """One step against the gradient."""
        self.steps += 1
        if self.optimizer is Optimizer.SGD:
            self.values -= np.float32(learning_rate) * gradient
            return
        self.mean += np.float32(1 - DECAY) * (gradient - self.mean)
        self.square += np.float32(1 - SQUARED_DECAY) * (gradient * gradient - self.square)
        rate = learning_rate / (1 - DECAY**self.steps)
        root = np.sqrt(self.square) / np.float32((1 - SQUARED_DECAY**self.steps) ** 0.5)
        self.values -= np.float32(rate) * self.mean / (root + np.float32(LEAST_DIVISOR))
