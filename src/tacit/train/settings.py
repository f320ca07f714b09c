"""How a phase learns. Nothing here moves the guarantee: noise is solved for whatever is chosen here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tacit import expect
from tacit.errors import BadInput
from tacit.train.sgd.descent import MICROBATCH, NoiseForm
from tacit.train.sgd.optimizers import Adam, Optimizer, Sgd, name_of
from tacit.train.sgd.schedule import Decay

RATE_TIMES_NOISE, RULE_BATCH, RULE_STEPS = 4.0, 8192, 500
"""The learning rate of DP-SGD unless it is given: 4 / (noise_multiplier * clip_norm) for batches of 8192 and
500 steps, so that noise moves the weights equally far at every epsilon; a fixed rate would make budgets look
better or worse than they are. Smaller batches and more steps would move them further, by 1/batch and the root
of the steps, and get a smaller rate; larger batches and fewer steps get no larger one."""


@dataclass(frozen=True)
class Learning:
    """Shuffled epochs over labels that are true, or noisy once and for all.

    Without a penalty, rows of rare values learn the noise of their few labels.
    """

    epochs: int = 4
    batch: int = 2048
    rate: float = 0.005
    decay: Decay = Decay.COSINE
    optimizer: Optimizer = field(default_factory=Adam)
    penalty: float = 1e-4

    def __post_init__(self) -> None:
        expect.whole("epochs", self.epochs, at_least=1)
        expect.whole("batch", self.batch, at_least=1)
        expect.positive("rate", self.rate)
        expect.at_least_zero("penalty", self.penalty)
        object.__setattr__(self, "decay", Decay(self.decay))


@dataclass(frozen=True)
class PrivateLearning:
    """Poisson batches of `batch` records on average, for `epochs` passes on average, by DP-SGD.

    `clip_norm` trades AUC against calibration: clipping hits positives hardest, so a small one ranks well and
    predicts too little; log loss wants a larger one. `start_rate` is a base rate that is public; without one,
    and without a label phase before, the bias starts at even odds.
    """

    epochs: float = 10.0
    batch: int = 8192
    clip_norm: float = 5.0
    rate: float | None = None
    decay: Decay = Decay.COSINE
    optimizer: Optimizer = field(default_factory=lambda: Sgd(momentum=0.9))
    penalty: float = 0.0
    start_rate: float | None = None

    def __post_init__(self) -> None:
        if self.start_rate is not None:
            expect.probability("start_rate", self.start_rate)
        expect.positive("epochs", self.epochs)
        expect.whole("batch", self.batch, at_least=1)
        expect.positive("clip_norm", self.clip_norm)
        if self.rate is not None:
            expect.positive("rate", self.rate)
        elif not isinstance(self.optimizer, Sgd):
            raise BadInput(
                f"expected a rate with optimizer {name_of(self.optimizer)}, got none: only SGD has a rule"
            )
        expect.at_least_zero("penalty", self.penalty)
        object.__setattr__(self, "decay", Decay(self.decay))

    def sampling_probability(self, records: int) -> float:
        return min(1.0, self.batch / records)

    def steps(self, records: int) -> int:
        return max(1, round(self.epochs / self.sampling_probability(records)))

    def rate_for(self, noise_multiplier: float, records: int) -> float:
        if self.rate is not None:
            return self.rate
        batch, steps = self.sampling_probability(records) * records, self.steps(records)
        moves = min(1.0, batch / RULE_BATCH * math.sqrt(RULE_STEPS / steps))
        return RATE_TIMES_NOISE * moves / (noise_multiplier * self.clip_norm)


@dataclass(frozen=True)
class Speed:
    """What changes time and memory and nothing else."""

    microbatch: int = MICROBATCH
    noise_form: NoiseForm = NoiseForm.AUTO

    def __post_init__(self) -> None:
        expect.whole("microbatch", self.microbatch, at_least=1)
        object.__setattr__(self, "noise_form", NoiseForm(self.noise_form))
