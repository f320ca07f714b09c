"""Steps through a room: a run's plan, the rows and bytes of each step, and what its answer does to the adapter.

A plan has the settings of a run, the defaults that suit each mode, and the rows of every step. What a call
sends is encoded as slabs that can be iterated again: the same bytes, and never all at once. Rounding at random
draws from `Simulation(f"{run} {number} {slab}")`. It hides nothing and need not: it only has to be unbiased,
and the same when a step is repeated, so that the room sees a repetition as one.

The optimizers, Adam and plain descent on one flat vector, are small, in NumPy, and their state is easy to keep
and restore: a run that goes on after a crash must take the very steps that it would have taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32
from tacit.cleanroom.model.examples import Batch
from tacit.cleanroom.model.learning import LearnSettings
from tacit.cleanroom.protocol.codecs import Codec
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.row_derivatives import Derivatives, ExampleDerivatives, RowDerivatives
from tacit.cleanroom.protocol.slabs import (
    SLAB_BYTES,
    Slab,
    StatisticSlab,
    TokenSlab,
    decode_slab,
    encode_slab,
    encode_statistic_slab,
    encode_token_slab,
    examples_per_slab,
)
from tacit.cleanroom.protocol.terms import Terms
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.expect import Choice

DECAY, SQUARED_DECAY, LEAST_DIVISOR = 0.9, 0.999, 1e-8  # Kingma, Ba 2015 (arXiv 1412.6980), algorithm 1


class Optimizer(Choice):
    """How a gradient becomes a step."""

    ADAM = "adam"
    SGD = "sgd"


@dataclass(eq=False)
class AdapterDescent:
    """Gradient descent of an adapter's values, by the sums that a room answers with, `steps` of it so far."""

    optimizer: Optimizer
    values: Floats32  # (parameters,)
    steps: int = 0
    mean: Floats32 = field(default_factory=lambda: np.zeros(0, np.float32))  # Adam's: of gradients
    square: Floats32 = field(default_factory=lambda: np.zeros(0, np.float32))  # and of their squares

    def __post_init__(self) -> None:
        if self.optimizer is Optimizer.ADAM and not len(self.mean):
            self.mean, self.square = np.zeros_like(self.values), np.zeros_like(self.values)

    def step(self, gradient: Floats32, learning_rate: float) -> None:
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


NOISED_RATE = 1.0  # of plain descent on mean gradients
FEWEST_ROWS, MOST_ROWS, STEPS_AN_EPOCH = 256, 1024, 64
"""Of a batch that nobody chose: about this many steps an epoch, within these sizes."""
LEAST_SHARE = 0.1


@dataclass(frozen=True)
class AdapterPlan:
    """How an adapter is trained through a room: its task, loss, codec, batches and rate.

    Without a `batch` it is chosen by the number of rows (`for_rows`). `seed` orders the rows; `loss_every`
    counts steps, 0 asking for no loss. `project` is for noised sums, of batches that are smaller than the
    adapter: those of others span everything; it is slow, and no trial has shown a gain.

    `least_share` is of the positives that the model predicts: labels that surely have fewer than that stop a
    run before it learns from them (`metrics.refuse_unjoined`); 0 lets any pass.
    """

    task: str = "conversion"
    loss: Loss = Loss.FORWARD
    codec: str = "int8"
    batch: int | None = None
    epochs: int = 2
    learning_rate: float = 1e-3
    one_cycle: bool = True
    optimizer: Optimizer = Optimizer.ADAM
    seed: int = 0
    project: bool = False
    loss_every: int = 0
    least_share: float = LEAST_SHARE

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", Loss(self.loss))
        object.__setattr__(self, "optimizer", Optimizer(self.optimizer))
        object.__setattr__(self, "learning_rate", float(expect.positive("learning_rate", self.learning_rate)))
        expect.whole("epochs", self.epochs, at_least=1)
        if self.batch is not None:
            expect.whole("batch", self.batch, at_least=1)
        share = expect.probability("least_share", self.least_share, zero=True)
        object.__setattr__(self, "least_share", float(share))
        for name in ("seed", "loss_every"):
            expect.whole(name, getattr(self, name), at_least=0)
        for name in ("project", "one_cycle"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"expected {name} to be true or false, got {getattr(self, name)!r}")

    def for_rows(self, rows: int, smallest: int = 1) -> AdapterPlan:
        """The same plan with a batch: its own, or one that suits so many rows, none below `smallest`."""
        if self.batch is not None:
            return self
        suited = 2 ** round(math.log2(max(rows, 1) / STEPS_AN_EPOCH)) if rows > STEPS_AN_EPOCH else 1
        return replace(self, batch=max(min(max(suited, FEWEST_ROWS), MOST_ROWS), smallest))

    def learning(self, rows: int) -> LearnSettings:
        """The same, for learning at home on so many rows; its rate of a step is the run's, too."""
        batch = self.for_rows(rows).batch
        assert batch is not None, "it was chosen"
        return LearnSettings(self.epochs, batch, self.learning_rate, self.one_cycle, seed=self.seed)

    @classmethod
    def for_terms(cls, terms: Terms, **given: Any) -> AdapterPlan:
        """Defaults that suit the mode.

        With noise: true labels, each record as often as agreed, and plain descent: Adam divides by the size of
        what it sees, and so takes steps of full length where all it sees is noise.
        """
        suited: dict[str, Any] = {"codec": terms.codecs[0], "task": terms.tasks[0]}
        if terms.mode is Mode.NOISED:
            epochs = min(cls.epochs, terms.releases_per_record)
            suited |= {"loss": Loss.RAW, "epochs": epochs, "optimizer": Optimizer.SGD}
            if given.get("optimizer", Optimizer.SGD) == Optimizer.SGD:
                suited |= {"learning_rate": NOISED_RATE, "one_cycle": False}
        return cls(**(suited | given))

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def refuse_unless_agreed(self, terms: Terms, rows: int) -> None:
        """What the room would refuse in the middle of a run is better known before it."""
        if terms.mode not in (Mode.AGGREGATE, Mode.NOISED):
            raise BadInput(f"expected an agreement that lets sums out, got one of mode {terms.mode}")
        for name, value, agreed in (("task", self.task, terms.tasks), ("codec", self.codec, terms.codecs)):
            if value not in agreed:
                raise BadInput(f"expected {name} among the agreed {', '.join(agreed)}, got {value!r}")
        batch = self.for_rows(rows, terms.smallest_batch).batch or rows
        if (smallest := min(rows, batch)) < terms.smallest_batch:
            raise BadInput(
                f"expected batches of the agreed {terms.smallest_batch} rows or more, got {smallest}"
            )
        if terms.mode is Mode.NOISED and self.loss is not Loss.RAW:
            raise BadInput(f"expected loss raw for noised sums, whose labels are true, got {self.loss}")
        if terms.mode is Mode.NOISED and self.epochs > terms.releases_per_record:
            raise BadInput(
                f"expected epochs <= {terms.releases_per_record}, the agreed releases, got {self.epochs}"
            )
        if terms.mode is Mode.NOISED and self.loss_every:
            raise BadInput("expected no loss to be asked for in mode noised: each would be a further release")
        if self.loss_every and not terms.metrics:
            raise BadInput("expected no loss to be asked for: the agreement lets no metrics out")


def steps_per_epoch(rows: int, batch: int, smallest: int) -> int:
    """As many batches of about the same size as come closest below `batch`, none below `smallest`."""
    steps = math.ceil(rows / batch)
    return max(1, steps if rows // steps >= smallest else rows // batch)


def step_rows(plan: AdapterPlan, rows: int, steps: int, number: int) -> NDArray[np.int64]:
    """The rows of one step. Each epoch has every row once, in an order of its own, by seed and epoch alone."""
    epoch, step = divmod(number, steps)
    return np.array_split(_order(plan.seed, epoch, rows), steps)[step]


@lru_cache(maxsize=1)
def _order(seed: int, epoch: int, rows: int) -> NDArray[np.int64]:
    return np.argsort(Simulation(f"order {seed} {epoch}").words(rows), kind="stable")


Tokens = NDArray[np.uint8]


class ExampleRows(Protocol):
    """Rows of one advertiser, as the model reads them."""

    def __len__(self) -> int: ...
    def batch(self, rows: NDArray[np.int64]) -> Batch: ...


@dataclass(eq=False)
class EncodedSlabs(Iterable[bytes]):
    """`encode(number, first, stop)` for one part after another.

    `size` is what a whole pass came to, `seconds` how long encoding took in all passes so far.
    """

    rows: int
    per_slab: int
    encode: Callable[[int, int, int], bytes]
    stopwatch: Callable[[], float] = lambda: 0.0
    size: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for number, first in enumerate(range(0, self.rows, self.per_slab)):
            started = self.stopwatch()
            data = self.encode(number, first, min(first + self.per_slab, self.rows))
            self.seconds += self.stopwatch() - started
            size += len(data)
            yield data
        self.size = size


def step_slabs(
    tokens: Tokens,
    logits: NDArray[np.float32],
    derivatives: Derivatives,
    layout: ParameterLayout,
    codec: Codec,
    *,
    run: str,
    number: int,
) -> EncodedSlabs:
    """One step's logits and derivatives."""
    pairs = {block.name: mean_pairs(derivatives[block.name]) for block in layout.blocks}

    def encode(slab: int, first: int, stop: int) -> bytes:
        some = {name: each.rows(first, stop) for name, each in derivatives.items()}
        words = Simulation(f"{run} {number} {slab}").words
        return encode_slab(Slab(first, tokens[first:stop], logits[first:stop], some), layout, codec, words)

    per_slab = examples_per_slab(layout, codec, pairs, token_bytes=tokens.shape[1])
    return EncodedSlabs(len(tokens), per_slab, encode)


def statistic_slabs(tokens: Tokens, cells: NDArray[np.int32], features: NDArray[np.float32]) -> EncodedSlabs:
    """Cells and features of every row."""
    width = tokens.shape[1] + 4 * (cells.shape[1] + features.shape[1])

    def encode(_slab: int, first: int, stop: int) -> bytes:
        some = slice(first, stop)
        return encode_statistic_slab(StatisticSlab(first, tokens[some], cells[some], features[some]))

    return EncodedSlabs(len(tokens), max(SLAB_BYTES // width, 1), encode)


def token_slabs(tokens: Tokens) -> EncodedSlabs:
    """Records alone."""

    def encode(_slab: int, first: int, stop: int) -> bytes:
        return encode_token_slab(TokenSlab(first, tokens[first:stop]))

    return EncodedSlabs(len(tokens), max(SLAB_BYTES // tokens.shape[1], 1), encode)


def decoded_derivatives(
    slabs: EncodedSlabs, layout: ParameterLayout, codec: Codec, token_bytes: int
) -> dict[str, ExampleDerivatives]:
    """The derivatives as the room reads them: its sum is one of these, rounding included."""
    parts = [decode_slab(data, layout, codec, token_bytes).blocks for data in slabs]
    return {
        block.name: _join_derivatives(block, [part[block.name] for part in parts]) for block in layout.blocks
    }


def _join_derivatives(block: ParameterBlock, parts: Sequence[ExampleDerivatives]) -> ExampleDerivatives:
    if block.by_rows:
        return RowDerivatives.join(block, [part for part in parts if isinstance(part, RowDerivatives)])
    whole = [part for part in parts if isinstance(part, BlockDerivatives)]
    factors = Factors(
        np.concatenate([part.factors.left for part in whole]),
        np.concatenate([part.factors.right for part in whole]),
        np.concatenate([part.factors.counts for part in whole]),
    )
    is_dense = np.concatenate([part.is_dense for part in whole])
    return BlockDerivatives(block, is_dense, factors, np.concatenate([part.dense for part in whole]))


def mean_pairs(derivatives: ExampleDerivatives) -> float:
    """The mean number of pairs, or of rows that are touched, for sizes."""
    if isinstance(derivatives, RowDerivatives):
        return float(derivatives.counts.mean()) if len(derivatives) else 1.0
    factors = derivatives.factors
    return float(factors.counts.mean()) if len(factors) else 1.0
