"""How a phase learns, and what is chosen where nothing was set.

Nothing here moves the guarantee: the noise is solved for whatever is chosen. A rule for a default reads how
many records there are, epsilon, and the sizes of fields and tables. Under the replace relations of this package
all of them are public: a neighbour differs in what a record says, not in whether it is there. What was set
stays, and the rest follows it. docs/train.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tacit import expect
from tacit.errors import BadInput
from tacit.train.examples import Sizes
from tacit.train.sgd.descent import MICROBATCH, NoiseForm
from tacit.train.sgd.optimizers import Adam, Decay, Optimizer, Schedule, Sgd, optimizer_name


@dataclass(frozen=True)
class RateByNoise:
    """A rate of `product` / (noise_multiplier * clip_norm) for batches of `batch` and `steps` steps.

    Smaller batches and more steps would let noise move weights further, by 1/batch and the root of the steps,
    and get a smaller rate; larger batches and fewer steps get no larger one, which is too small a rate for
    millions of rows: `private_rate` has no such bound. Recorded studies were trained by this rule.
    """

    product: float = 4.0
    batch: int = 8192
    steps: int = 500

    def __post_init__(self) -> None:
        expect.positive("product", self.product)
        expect.whole("batch", self.batch, at_least=1)
        expect.whole("steps", self.steps, at_least=1)

    def rate(self, noise_multiplier: float, clip_norm: float, batch: float, steps: int) -> float:
        moves = min(1.0, batch / self.batch * math.sqrt(self.steps / steps))
        return self.product * moves / (noise_multiplier * clip_norm)


@dataclass(frozen=True)
class Learning:
    """How a phase on labels learns: epochs, batch, rate and optimizer. The rules below choose any None.

    Labels are true, or noisy once and for all, and every epoch is in a fresh order. Without `epochs` a part of
    the examples is held out, and training ends when their loss rises. `penalty` pulls embeddings to 0, or all
    weights of a table where there are none: without one, rows of rare values may learn the noise of their few
    labels.
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
        if isinstance(self.rate, RateByNoise):
            raise BadInput("expected rate to be a number where no noise is added, got a RateByNoise")
        _check_common(self)


@dataclass(frozen=True)
class PrivateLearning:
    """How DP-SGD learns: epochs, batch, clip norm, rate and optimizer. The rules below choose what is None.

    Batches are Poisson samples of `batch` records on average, for `epochs` passes on average.

    `clip_norm` trades ranking against calibration: clipping hits positives hardest, so a small one ranks well
    and predicts too little. With `recalibrate` the predictions are put right afterwards, by a noisy statistic
    that the same budget pays for (`recalibration`). `start_rate` is a base rate that is public; without one,
    and without a label phase before, the bias starts at even odds. Name the optimizer of a `rate`: alone it is
    taken for that of SGD with momentum, whatever the rules would have chosen, and `Plan.defaults` says so.
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
        _check_common(self)
        for name in ("epochs", "clip_norm"):
            if getattr(self, name) is not None:
                expect.positive(name, getattr(self, name))
        if self.start_rate is not None:
            expect.probability("start_rate", self.start_rate)
        if self.rate is None and not isinstance(self.optimizer, Sgd | Adam | None):
            raise BadInput(
                f"expected a rate with optimizer {optimizer_name(self.optimizer)}, got none: SGD and Adam have "
                "a rule"
            )
        if not isinstance(self.recalibrate, bool):
            raise BadInput(f"recalibrate: expected true or false, got {self.recalibrate!r}")


def _check_common(learning: Learning | PrivateLearning) -> None:
    for name, value in vars(learning).items():
        if isinstance(value, str) and name not in ("decay", "optimizer"):  # budgets alone may be spelled
            raise BadInput(f"expected {name} to be a number, got {value!r}")
    if not isinstance(learning.optimizer, Optimizer | None):
        raise BadInput(f"expected optimizer to be an optimizer, such as Adam(), got {learning.optimizer!r}")
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


STEPS = 720
"""Of DP-SGD: fewer leave weights that have much to learn on their way, more cost time and teach nothing."""
EPOCHS, LARGE_EPSILON = 10, 8
LEAST_BATCH = 2048
"""Larger samples are better at any epsilon, by less and less; up to here they cost less than the noise does."""
NOISE_MOVES = 0.05
"""How far the noise of all steps may move a weight. Less learns too little, more drowns what is learned."""
MOMENTUM = 0.9
MOST_DENSE_ROWS = 4_000_000
"""Table rows beyond which Adam, which visits every weight in every step, takes more minutes than SGD, which
visits those that are read."""
MOST_CLIP_NORM = 5.0
"""A larger one needs more noise, and from here on ranks worse; predictions are put right afterwards."""
STABLE = 16.0
"""SGD's rate times the squared length of a score's gradient, beyond which its steps swing up and down."""

BATCHES_PER_EPOCH, MOST_BATCH, FEWEST_IN_BATCH = 64, 32_768, 32
FEW_LABELS = 1.6
"""Adam's epsilon times the batch: rows that fewer examples of a batch read take smaller steps."""
COSINE_RATE, CONSTANT_RATE = 0.006, 0.002
MOST_EPOCHS, PATIENCE = 30, 2
FEWEST_EPOCHS = 4
"""Up to this epoch, a loss that rises by no more than chance is not taken for one that rises."""
HELD_OUT, MOST_HELD_OUT = 5, 65_536
"""One example in `HELD_OUT` is held out, and never more than `MOST_HELD_OUT` examples."""
TOO_MANY_TO_LOSE = 20
"""Where more than one example in this number is held out, another training on all of them follows."""


@dataclass(frozen=True)
class Default:
    """One choice that was left to us: the key of a configuration, the value, and why."""

    key: str
    value: float | int | str
    because: str

    @property
    def words(self) -> str:
        value = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return f"{self.key} = {value}, because {self.because}"


Defaults = tuple[Default, ...]


def private_course(
    learning: PrivateLearning, records: int, epsilon: float, sizes: Sizes
) -> tuple[Course, float, Defaults]:
    """How DP-SGD learns, its clip norm, and what of it was chosen here. `private_rate` has the rate and may
    take another optimizer: both hang on the noise."""
    chosen: list[Default] = []
    passes = EPOCHS * (2 if epsilon >= LARGE_EPSILON else 1)
    batch, epochs, optimizer, clip_norm = (
        learning.batch,
        learning.epochs,
        learning.optimizer,
        learning.clip_norm,
    )
    if batch is None and epochs is not None:
        batch = _within(round(epochs * records / STEPS), 1, records)
        why = f"{epochs:g} epochs of it are about {STEPS} steps"
        if batch == records:
            why = f"{epochs:g} epochs are more than {STEPS} steps of any sample"
        chosen.append(Default("descent.batch", batch, why))
    elif batch is None:
        batch = _within(-(-records * passes // STEPS), min(LEAST_BATCH, records), records)
        why = f"{records:,} records x {passes} epochs / {STEPS} steps"
        if records * passes < STEPS * LEAST_BATCH:
            why = f"a larger sample needs less noise for its size, and up to {LEAST_BATCH:,} costs little"
        chosen.append(Default("descent.batch", batch, why))
    if epochs is None:
        share = min(1.0, batch / records)
        epochs = max(STEPS * share, float(passes))
        why = f"{STEPS} steps let a weight go where its examples want it"
        if epochs > STEPS * share:
            why = f"small batches need {passes} epochs to outweigh their noise"
        chosen.append(Default("descent.epochs", epochs, why))
    if clip_norm is None:
        fields = sizes.public_fields + sizes.sensitive_fields
        length = math.sqrt(1 + fields)
        clip_norm = min(MOST_CLIP_NORM, math.ceil(100 * length) / 100)
        why = f"{fields} fields and a bias make gradients of up to {length:.2f} before embeddings grow"
        chosen.append(Default("descent.clip_norm", clip_norm, why))
    rule = optimizer or Sgd(MOMENTUM)
    course = Course(epochs, batch, rule, learning.penalty, learning.start_rate, clip_norm=float(clip_norm))
    return course, float(clip_norm), tuple(chosen)


def private_rate(
    learning: PrivateLearning,
    course: Course,
    steps: int,
    noise: float,
    clip_norm: float,
    batch: float,
    sizes: Sizes,
) -> tuple[Course, Schedule, Defaults]:
    """The rate at which the noise of all steps alone moves a weight by `NOISE_MOVES`, and the optimizer.

    SGD's steps are as long as the noise, `noise` * clip_norm / batch, momentum repeats each of them
    1 / (1 - momentum) times, and steps of random sign add up to rate * sqrt(sum of squared decays). Where there
    is little noise that rate is so large that SGD swings. Adam divides by the size of a gradient, which for
    most weights is noise: its step is about as long as the rate, and no longer where there is more signal.
    """
    decay = learning.decay or Decay.COSINE
    if isinstance(learning.rate, RateByNoise):
        return course, Schedule(learning.rate.rate(noise, clip_norm, batch, steps), steps, decay), ()
    if learning.rate is not None:
        told: Defaults = ()
        if learning.optimizer is None:
            why = "a rate without an optimizer is taken for SGD's, and means another thing to Adam"
            told = (Default("descent.optimizer", optimizer_name(course.optimizer), why),)
        return course, Schedule(learning.rate, steps, decay), told
    chosen: list[Default] = []
    rate = NOISE_MOVES / math.sqrt(steps * (0.375 if decay is Decay.COSINE else 1.0))
    stable = STABLE / (1 + sizes.public_fields + sizes.sensitive_fields)
    rows = sizes.public_rows + sizes.sensitive_rows
    optimizer = course.optimizer
    of_sgd = rate * (1 - MOMENTUM) / (noise * clip_norm / batch)
    if learning.optimizer is None:
        why = f"its rate stays below {stable:.2g}, where it would swing, and it visits only rows that are read"
        if of_sgd > stable and rows <= MOST_DENSE_ROWS:
            optimizer = Adam()
            why = f"with so little noise SGD would need a rate of {of_sgd:.2g}, and swings above {stable:.2g}"
        elif of_sgd > stable:
            why = f"Adam would visit all {rows:,} table rows in every step, and SGD only those that are read"
        chosen.append(Default("descent.optimizer", optimizer_name(optimizer), why))
    why = f"the noise of {steps:,} steps then moves a weight by {NOISE_MOVES:g} in all"
    if isinstance(optimizer, Sgd):
        rate *= (1 - optimizer.momentum) / (noise * clip_norm / batch)
        if rate > stable:
            rate, why = stable, "with so little noise a larger rate would swing up and down"
    course = replace(course, optimizer=optimizer)
    chosen.append(Default("descent.rate", rate, why))
    return course, Schedule(rate, steps, decay), tuple(chosen)


def label_course(learning: Learning, examples: int, table: str) -> tuple[Course, Schedule, Defaults]:
    """How a phase learns from labels, true or noisy, its schedule, and what of it was chosen here."""
    chosen: list[Default] = []

    def say(key: str, value: float | int | str, because: str) -> None:
        chosen.append(Default(f"{table}.{key}", value, because))

    batch = learning.batch
    if batch is None:
        batch = _within(-(-examples // BATCHES_PER_EPOCH), min(FEWEST_IN_BATCH, max(1, examples)), MOST_BATCH)
        say("batch", batch, f"{examples:,} examples make about {max(1, examples // batch):,} steps per epoch")
    held_out, refit, epochs = 0, False, learning.epochs
    if epochs is None:
        held_out, epochs = min(examples // HELD_OUT, MOST_HELD_OUT), MOST_EPOCHS
        why = f"at most: it ends when the loss of {held_out:,} examples held out has risen {PATIENCE} times"
        refit = held_out * TOO_MANY_TO_LOSE > examples
        say("epochs", epochs, f"{why}, and begins anew with all of them" if refit else why)
    optimizer: Optimizer = learning.optimizer or _adam(batch, say)
    decay, rate = learning.decay, learning.rate
    if decay is None:
        decay = Decay.CONSTANT if held_out else Decay.COSINE
    if rate is None:
        rate = COSINE_RATE if decay is Decay.COSINE else CONSTANT_RATE
        say("rate", rate, f"it did well on four logs with a {decay} rate")
    trained = examples - held_out
    steps = epochs * max(1, -(-trained // batch))
    course = Course(float(epochs), batch, optimizer, learning.penalty, held_out=held_out, refit=refit)
    return course, Schedule(rate, steps, decay), tuple(chosen)


def _adam(batch: int, say: Callable[[str, str, str], None]) -> Adam:
    epsilon = FEW_LABELS / batch
    say(
        "optimizer",
        f"adam, epsilon {epsilon:.2g}",
        "rows of rare values take small steps, and learn less noise",
    )
    return Adam(epsilon=epsilon)


def _within(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
