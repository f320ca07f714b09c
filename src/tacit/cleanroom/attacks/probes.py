"""Probes: what an attacking platform may ask of any target, crafted unit vectors, and honest derivatives.

A target answers or refuses with `RoomRefused`, which attacks live with. Unit vectors give each record a
parameter of its own, so that the "sum" lists all slopes, one by one; reading slopes that way is also an attack
by itself.

Honest probes come from a small network with low-rank adapters, whose derivatives are worked out by hand: two
layers y = (W + B A) x with tanh between; d logit / dB = delta (A x)^T and d logit / dA = (B^T delta) x^T
(Hu et al. 2021, arXiv 2106.09685, for the adapter).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.cleanroom.attacks.game import NOBODY, Records, Scores
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.row_derivatives import Derivatives
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

Logits = NDArray[np.float32]
Tokens = NDArray[np.uint8]  # (n, 16)
Given = TypeVar("Given")

SURE_OF_ZERO = -100.0
"""A logit at which p is 0 to the last bit of any sum: what comes back is made of labels alone."""

PADDED = 256
"""Rows of a batch at least: nobody's records fill it up, so that a smallest batch is no obstacle."""


@dataclass(frozen=True, eq=False)
class StepQuestion:
    """One step as a platform asks for it; nothing obliges it to send what its model computes."""

    tokens: Tokens
    logits: Logits
    layout: ParameterLayout
    derivatives: Derivatives
    task: int = 0
    loss: Loss = Loss.RAW
    codec: str = "fp32"
    run: str = "attack"
    number: int = 0
    slab_rows: int | None = None  # in each message; None: as many as make about a megabyte


class Target(Protocol):
    """A party that has the labels. Questions that it has no answer to are refused as NOT_AGREED."""

    def tokens(self, records: Records) -> Tokens:
        """What the platform calls these records: it makes tokens itself."""

    def aggregate(self, asked: StepQuestion) -> Floats:
        """Sum over the batch of dL_i/dz_i * dz_i/df, flat."""

    def sample_gradients(self, tokens: Tokens, logits: Logits, directions: Floats) -> Floats:
        """dL_i/dz_i * directions_i, (n, width): what split learning sends back at the cut of the model."""

    def log_loss(self, tokens: Tokens, logits: Logits) -> float:
        """The batch's loss, summed."""

    def positives(self, tokens: Tokens, cells: Records, run: str) -> Floats:
        """How many positives fall into each cell: the metrics that a platform may ask for."""

    def tighten(self) -> None:
        """Amend the agreement alone, in a way that needs no second signature, where there is one."""


def matrix_derivatives(values: NDArray[np.float32]) -> tuple[ParameterLayout, Derivatives]:
    """Crafted derivatives (n, parameters), as those of one made-up matrix of one row."""
    block = ParameterBlock("crafted", 1, values.shape[1])
    return ParameterLayout((block,)), {block.name: BlockDerivatives.of_dense(block, values)}


def weighted_question(target: Target, records: Records, weights: NDArray[np.float32]) -> StepQuestion:
    """A step whose sum is minus that of the labels times weights (n, parameters): no model has a part in it."""
    tokens, values = pad_batch(target, records, weights)
    layout, derivatives = matrix_derivatives(values)
    return StepQuestion(tokens, np.full(len(tokens), SURE_OF_ZERO, np.float32), layout, derivatives)


def pad_batch(
    target: Target, records: Records, values: NDArray[np.float32], number: int = 0
) -> tuple[Tokens, NDArray[np.float32]]:
    """The records' tokens and values, filled up with nobody's records and zeros to a batch that is accepted."""
    tokens = target.tokens(pad_records(records, number))
    lacking = len(tokens) - len(records)
    return tokens, np.concatenate([values, np.zeros((lacking, *values.shape[1:]), values.dtype)])


def pad_records(records: Records, number: int) -> Records:
    """These, and as many of nobody's as a batch lacks: others for every number, in case uses are counted."""
    return np.append(records, NOBODY + number * PADDED + np.arange(max(0, PADDED - len(records))))


def answers_until_refused(questions: Iterable[Callable[[], Given]]) -> list[Given]:
    """What comes back until the first refusal: an attacker takes what it gets."""
    given: list[Given] = []
    for ask in questions:
        try:
            given.append(ask())
        except RoomRefused:
            break
    return given


PROBE_BATCH = 2048


def unit_vector_scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """At p = 0 a slope is -1 or 0; where nothing came back there is nothing to say."""
    return slope_scores(read_slopes(target, records))


def surest_unit_vector_scores(target: Target, records: Records, source: Source) -> Scores:
    """Only the hundredth of the readings that stand out most; of the others nothing is said."""
    told = unit_vector_scores(target, records, source)
    far = np.sort(np.abs(told))[-max(1, len(told) // 100)]
    return np.where(np.abs(told) >= far, told, 0.0)


def slope_scores(slopes: Floats) -> Scores:
    """A score for each slope at p = 0."""
    return np.where(np.isnan(slopes), 0.0, -0.5 - slopes)


def read_slopes(target: Target, records: Records, *, logit: float = SURE_OF_ZERO, **options: Any) -> Floats:
    """The slope of each record's loss, as the target gives it; not a number where it refuses."""
    starts = range(0, len(records), PROBE_BATCH)
    steps = [
        unit_vector_question(
            target.tokens(pad_records(records[start : start + PROBE_BATCH], number)),
            logit,
            number=number,
            **options,
        )
        for number, start in enumerate(starts)
    ]
    slopes = np.full(len(records), np.nan)
    for start, sums in zip(
        starts, answers_until_refused(partial(target.aggregate, step) for step in steps), strict=False
    ):
        some = slopes[start : start + PROBE_BATCH]
        some[:] = sums[: len(some)]
    return slopes


def unit_vector_question(tokens: Tokens, logit: float = SURE_OF_ZERO, **options: Any) -> StepQuestion:
    """Rows whose derivatives are unit vectors, each with its place in a matrix: pairs of short unit vectors."""
    side = math.isqrt(len(tokens) - 1) + 1
    block = ParameterBlock("grid", side, side)
    places, eye = np.arange(len(tokens)), np.eye(side, dtype=np.float32)
    factors = Factors(eye[places // side], eye[places % side], np.ones(len(tokens), np.int32))
    derivatives = {block.name: BlockDerivatives.of_factors(block, factors)}
    return StepQuestion(
        tokens, np.full(len(tokens), logit, np.float32), ParameterLayout((block,)), derivatives, **options
    )


HONEST_BIAS = -4.0  # conversions are rare: p is about 2%
HONEST_WIDTHS = (64, 32, 16)  # input, first and second layer

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HonestBatch:
    """The logits and derivatives of n examples, and how the logit changes with the last hidden layer."""

    logits: NDArray[np.float32]
    layout: ParameterLayout
    derivatives: Derivatives
    cut: Matrix  # (n, HONEST_WIDTHS[-1])

    @property
    def matrix(self) -> Matrix:
        """All derivatives written out, (n, parameters), as the platform knows them."""
        written = [self.derivatives[block.name].as_dense() for block in self.layout.blocks]
        return np.concatenate(written, axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class HonestNetwork:
    """Each layer's weight (out, in) with its adapter: up (out, rank) times down (rank, in)."""

    weights: list[Matrix]
    down: list[Matrix]
    up: list[Matrix]
    last: Matrix  # (HONEST_WIDTHS[-1],)

    @classmethod
    def draw(cls, rank: int, source: Source) -> HonestNetwork:
        """As after some training: the adapters are not zero."""

        def normal(*shape: int, scale: float) -> Matrix:
            return source.normal(shape, dtype=np.float64, scale=scale)

        return cls(
            [normal(out, into, scale=into**-0.5) for into, out in pairwise(HONEST_WIDTHS)],
            [normal(rank, into, scale=into**-0.5) for into in HONEST_WIDTHS[:-1]],
            [normal(out, rank, scale=0.3) for out in HONEST_WIDTHS[1:]],
            normal(HONEST_WIDTHS[-1], scale=HONEST_WIDTHS[-1] ** -0.5),
        )

    def hidden(self, inputs: Matrix) -> list[Matrix]:
        """What each layer reads, and what the last one gives."""
        layers = [inputs]
        for weight, down, up in zip(self.weights, self.down, self.up, strict=True):
            layers.append(np.tanh(layers[-1] @ (weight + up @ down).T))
        return layers

    def logits(self, inputs: Matrix) -> Matrix:
        out: Matrix = self.hidden(inputs)[-1] @ self.last + HONEST_BIAS
        return out

    def make_batch(self, inputs: Matrix, *, adapted: int = 2) -> HonestBatch:
        """What the room is sent about examples (n, HONEST_WIDTHS[0]); only the first layers are adapted."""
        layers = self.hidden(inputs)
        blocks: list[ParameterBlock] = []
        derivatives: dict[str, BlockDerivatives] = {}
        slope = np.broadcast_to(self.last, layers[-1].shape)  # of the logit, by what the layer gives
        cut = slope * (1 - layers[-1] ** 2)
        for place in reversed(range(len(self.weights))):
            delta = slope * (1 - layers[place + 1] ** 2)  # (n, out), by what tanh reads
            narrow = layers[place] @ self.down[place].T  # (n, rank)
            pairs = {"A": (delta @ self.up[place], layers[place]), "B": (delta, narrow)}
            for part, (left, right) in pairs.items():
                if place < adapted:
                    block = ParameterBlock(f"layer{place}.{part}", left.shape[1], right.shape[1])
                    blocks.append(block)
                    derivatives[block.name] = _of_pairs(block, left, right)
            slope = delta @ (self.weights[place] + self.up[place] @ self.down[place])
        return HonestBatch(
            self.logits(inputs).astype(np.float32), ParameterLayout(tuple(blocks)), derivatives, cut
        )


def honest_batch(examples: int, rank: int, source: Source, *, adapted: int = 2) -> HonestBatch:
    """Random examples through a random network."""
    network = HonestNetwork.draw(rank, source)
    return network.make_batch(source.normal((examples, HONEST_WIDTHS[0]), dtype=np.float64), adapted=adapted)


def honest_answers(
    target: Target, records: Records, source: Source, *, batch: int, rank: int, adapted: int = 2
) -> Iterator[tuple[slice, HonestBatch, Matrix]]:
    """Which records were asked about, what was sent and the sum that came back, until the target refuses."""
    for number, start in enumerate(range(0, len(records), batch)):
        some = slice(start, start + batch)
        tokens = target.tokens(records[some])
        made = honest_batch(len(tokens), rank, source, adapted=adapted)
        asked = StepQuestion(tokens, made.logits, made.layout, made.derivatives, number=number)
        try:
            gradient = target.aggregate(asked)
        except RoomRefused:
            return
        yield some, made, gradient


def _of_pairs(block: ParameterBlock, left: Matrix, right: Matrix) -> BlockDerivatives:
    counts = np.ones(len(left), np.int32)
    return BlockDerivatives.of_factors(
        block, Factors(left.astype(np.float32), right.astype(np.float32), counts)
    )
