"""How a phase learns. Nothing here moves the guarantee: noise is solved for whatever is chosen here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit import expect
from tacit.errors import BadInput
from tacit.train.sgd.descent import MICROBATCH, NoiseForm
from tacit.train.sgd.optimizers import Optimizer, RmsProp, Yogi, name_of
from tacit.train.sgd.schedule import Decay


@dataclass(frozen=True)
class RateByNoise:
    """A rate of `product` / (noise_multiplier * clip_norm) for batches of `batch` and `steps` steps.

    Smaller batches and more steps would let noise move weights further, by 1/batch and the root of the steps,
    and get a smaller rate; larger batches and fewer steps get no larger one, which is too small a rate for
    millions of rows: `defaults.private_rate` has no such bound. Recorded studies were trained by this rule.
    """

    product: float = 4.0
    batch: int = 8192
    steps: int = 500

    def rate(self, noise_multiplier: float, clip_norm: float, batch: float, steps: int) -> float:
        moves = min(1.0, batch / self.batch * math.sqrt(self.steps / steps))
        return self.product * moves / (noise_multiplier * clip_norm)


@dataclass(frozen=True)
class Learning:
    """Shuffled epochs over labels that are true, or noisy once and for all. What is None, `defaults` chooses.

    Without `epochs` a part of the examples is held out, and training ends when their loss rises. `penalty`
    pulls embeddings to 0, or all weights of a table where there are none: without one, rows of rare values may
    learn the noise of their few labels.
    """

    epochs: int | None = None
    batch: int | None = None
    rate: float | None = None
    decay: Decay | None = None
    optimizer: Optimizer | None = None
    penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs is not None:
            expect.whole("epochs", self.epochs, at_least=1)
        _check_common(self)


@dataclass(frozen=True)
class PrivateLearning:
    """Poisson batches of `batch` records on average, for `epochs` passes on average, by DP-SGD. What is None,
    `defaults` chooses.

    `clip_norm` trades ranking against calibration: clipping hits positives hardest, so a small one ranks well
    and predicts too little. With `recalibrate` the predictions are put right afterwards, by a noisy statistic
    that the same budget pays for (`recalibration`). `start_rate` is a base rate that is public; without one,
    and without a label phase before, the bias starts at even odds.
    """

    epochs: float | None = None
    batch: int | None = None
    clip_norm: float | None = None
    rate: float | RateByNoise | None = None
    decay: Decay | None = None
    optimizer: Optimizer | None = None
    penalty: float = 0.0
    start_rate: float | None = None
    recalibrate: bool = True

    def __post_init__(self) -> None:
        for name in ("epochs", "clip_norm"):
            if getattr(self, name) is not None:
                expect.positive(name, getattr(self, name))
        if self.start_rate is not None:
            expect.probability("start_rate", self.start_rate)
        if self.rate is None and isinstance(self.optimizer, Yogi | RmsProp):
            raise BadInput(
                f"expected a rate with optimizer {name_of(self.optimizer)}, got none: SGD and Adam have a rule"
            )
        if not isinstance(self.recalibrate, bool):
            raise BadInput(f"recalibrate: expected true or false, got {self.recalibrate!r}")
        _check_common(self)


def _check_common(learning: Learning | PrivateLearning) -> None:
    if learning.batch is not None:
        expect.whole("batch", learning.batch, at_least=1)
    if learning.rate is not None and not isinstance(learning.rate, RateByNoise):
        expect.positive("rate", learning.rate)
    expect.at_least_zero("penalty", learning.penalty)
    if learning.decay is not None:
        object.__setattr__(learning, "decay", Decay(learning.decay))


@dataclass(frozen=True)
class Course:
    """How a phase learns with nothing left open; its `Schedule` has the rate. `held_out` examples are not
    trained on, and end the phase when their loss rises; 0 for none. With `refit` it then trains anew, on all
    examples and for as many epochs as were best. `clip_norm` is DP-SGD's, which its run is held to."""

    epochs: float
    batch: int
    optimizer: Optimizer
    penalty: float = 0.0
    start_rate: float | None = None
    held_out: int = 0
    refit: bool = False
    clip_norm: float | None = None


@dataclass(frozen=True)
class Speed:
    """What changes time and memory and nothing else."""

    microbatch: int = MICROBATCH
    noise_form: NoiseForm = NoiseForm.AUTO

    def __post_init__(self) -> None:
        expect.whole("microbatch", self.microbatch, at_least=1)
        object.__setattr__(self, "noise_form", NoiseForm(self.noise_form))
