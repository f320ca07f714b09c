"""Learning in one process: pre-training on advertisers that share, and tuning on labels that are at hand.

The slope of every loss is that of `protocol.losses`, so what is learned here differs from what is learned
through a room only in which party sums up. The order of rows is a function of the seed and the epoch; torch's
global generator is not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tacit import expect
from tacit.cleanroom.model.examples import ConversionExamples
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.protocol.losses import Loss, losses, slopes
from tacit.errors import BadInput

WARM_UP = 0.3  # of all steps, where the rate goes up and down once
PREDICTED_AT_ONCE = 4096


@dataclass(frozen=True)
class LearnSettings:
    """How a conversion model learns: epochs, batch, rate. The defaults pre-train.

    `one_cycle` lets the rate rise and fall once (Smith 2018, arXiv:1803.09820).
    """

    epochs: int = 2
    batch: int = 2048
    learning_rate: float = 2e-3
    one_cycle: bool = True
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        expect.whole("epochs", self.epochs, at_least=0)
        expect.whole("batch", self.batch, at_least=1)
        expect.positive("learning_rate", self.learning_rate)
        expect.at_least_zero("weight_decay", self.weight_decay)
        expect.whole("seed", self.seed, at_least=0)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of one step: a line up, then half a cosine down to nothing."""
        if not self.one_cycle:
            return self.learning_rate
        peak = WARM_UP * steps
        if step < peak:
            return self.learning_rate * (step + 1) / (peak + 1)
        return self.learning_rate * (1 + math.cos(math.pi * (step + 1 - peak) / (steps - peak))) / 2


PRETRAINING = LearnSettings()
# On generated logs with about 1,300 positives of the new advertiser, higher rates learn single rows by heart.
FULL_TUNING = LearnSettings(batch=1024, learning_rate=3e-4)
ADAPTER_TUNING = LearnSettings(batch=1024, learning_rate=1e-3)


@dataclass(frozen=True)
class LearningProgress:
    """After `step` of `steps`; `loss` is the mean over the batch."""

    step: int
    steps: int
    loss: float


LearningWatch = Callable[[LearningProgress], None]


def pretrain(
    model: ConversionModel, examples: ConversionExamples, tasks: Sequence[str] | None = None,
    settings: LearnSettings = PRETRAINING, watch: LearningWatch | None = None,
) -> None:  # fmt: skip
    """Train the whole model on every task at once, by the mean of their losses."""
    chosen = tuple(model.known_task(task) for task in tasks or model.settings.tasks)
    labels = {task: examples.labels(task).astype(np.float64) for task in chosen}
    for task in chosen:
        rate = (labels[task].sum() + 1) / (len(examples) + 2)
        model.tower(task).start_at(math.log(rate / (1 - rate)))
    examples.check_fit(model.settings)
    parameters = list(model.parameters())

    def slope(rows: NDArray[np.int64]) -> tuple[list[Tensor | None], float]:
        outputs = model(examples.batch(rows))
        logits = [outputs[task] for task in chosen]
        scores = [each.detach().numpy() for each in logits]
        scale = 1 / (len(rows) * len(chosen))
        weights = [
            _tensor(slopes(score, labels[task][rows], Loss.RAW, None) * scale)
            for task, score in zip(chosen, scores, strict=True)
        ]
        loss = 0.0
        if watch is not None:
            each = zip(chosen, scores, strict=True)
            loss = float(np.mean([losses(score, labels[task][rows], Loss.RAW, None) for task, score in each]))
        return list(torch.autograd.grad(logits, parameters, weights, allow_unused=True)), loss

    _learn(parameters, len(examples), settings, slope, watch)


def tune_all(
    model: ConversionModel, examples: ConversionExamples, task: str, labels: ArrayLike,
    settings: LearnSettings = FULL_TUNING, *, loss: Loss = Loss.RAW, keep: float | None = None,
    watch: LearningWatch | None = None,
) -> None:  # fmt: skip
    """Train every parameter of the base model towards these labels: for comparison."""
    _tune(model, list(model.parameters()), examples, task, labels, settings, loss, keep, watch)


def tune_adapter(
    model: ConversionModel, adapter: str, examples: ConversionExamples, task: str, labels: ArrayLike,
    settings: LearnSettings = ADAPTER_TUNING, *, loss: Loss = Loss.RAW, keep: float | None = None,
    watch: LearningWatch | None = None,
) -> None:  # fmt: skip
    """Train one adapter towards labels that are at hand, on rows of its advertiser; nothing else changes."""
    chosen = model.adapter(adapter)
    if np.any(examples.advertiser != chosen.advertiser):
        raise BadInput(f"adapter {adapter}: expected rows of its advertiser only, got others among them")
    _tune(model, chosen.parameters, examples, task, labels, settings, loss, keep, watch)


def predict(
    model: ConversionModel, examples: ConversionExamples, task: str, *, batch: int = PREDICTED_AT_ONCE
) -> NDArray[np.float32]:
    """The logit of every row."""
    examples.check_fit(model.settings)
    found = np.empty(len(examples), np.float32)
    with torch.inference_mode():
        for start in range(0, len(examples), batch):
            some = slice(start, start + batch)
            found[some] = model.logits(examples.batch(some), task).numpy()
    return found


def step_count(rows: int, settings: LearnSettings) -> int:
    return settings.epochs * max(1, rows // settings.batch) if rows else 0


def batch_rows(rows: int, settings: LearnSettings) -> Iterator[NDArray[np.int64]]:
    """The rows of every step: each epoch in its own order, the last few rows of an uneven one left out."""
    size = min(settings.batch, rows)
    for epoch in range(settings.epochs if rows else 0):
        order = np.random.default_rng((settings.seed, epoch)).permutation(rows)
        for start in range(0, rows - size + 1, size):
            yield order[start : start + size]


def _tune(
    model: ConversionModel, parameters: list[nn.Parameter], examples: ConversionExamples, task: str,
    labels: ArrayLike, settings: LearnSettings, loss: Loss, keep: float | None, watch: LearningWatch | None,
) -> None:  # fmt: skip
    examples.check_fit(model.settings)
    targets = np.asarray(labels, np.float64)
    if targets.shape != (len(examples),):
        raise BadInput(f"expected {len(examples)} labels, got {targets.shape}")

    def slope(rows: NDArray[np.int64]) -> tuple[list[Tensor | None], float]:
        logits = model.logits(examples.batch(rows), task)
        scores = logits.detach().numpy()
        weights = _tensor(slopes(scores, targets[rows], loss, keep) / len(rows))
        value = float(np.mean(losses(scores, targets[rows], loss, keep))) if watch is not None else 0.0
        return list(torch.autograd.grad(logits, parameters, weights, allow_unused=True)), value

    _learn(parameters, len(examples), settings, slope, watch)


def _learn(
    parameters: list[nn.Parameter], rows: int, settings: LearnSettings,
    slope: Callable[[NDArray[np.int64]], tuple[list[Tensor | None], float]], watch: LearningWatch | None,
) -> None:  # fmt: skip
    adam = torch.optim.Adam(
        parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    steps = step_count(rows, settings)
    for step, chosen in enumerate(batch_rows(rows, settings)):
        gradients, loss = slope(chosen)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        adam.param_groups[0]["lr"] = settings.rate(step, steps)
        adam.step()
        if watch is not None:
            watch(LearningProgress(step + 1, steps, loss))
    for parameter in parameters:
        parameter.grad = None


def _tensor(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
