"""A small network with low-rank adapters, and the derivatives of its logit by hand: what honest platforms send.

Two layers y = (W + B A) x with tanh between; d logit / dB = delta (A x)^T and d logit / dA = (B^T delta) x^T
(Hu et al. 2021, arXiv 2106.09685, for the adapter).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.attacks.target import Asked, Target
from tacit.cleanroom.attacks.worlds import Records
from tacit.cleanroom.wire.blocks import Block, Layout
from tacit.cleanroom.wire.derivatives import BlockDerivatives, Derivatives, Factors
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

BIAS = -4.0  # conversions are rare: p is about 2%
WIDTHS = (64, 32, 16)  # input, first and second layer

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sent:
    """The logits and derivatives of n examples, and how the logit changes with the last hidden layer."""

    logits: NDArray[np.float32]
    layout: Layout
    derivatives: Derivatives
    cut: Matrix  # (n, WIDTHS[-1])

    @property
    def matrix(self) -> Matrix:
        """All derivatives written out, (n, parameters), as the platform knows them."""
        written = [self.derivatives[block.name].as_dense() for block in self.layout.blocks]
        return np.concatenate(written, axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Network:
    """Each layer's weight (out, in) with its adapter: up (out, rank) times down (rank, in)."""

    weights: list[Matrix]
    down: list[Matrix]
    up: list[Matrix]
    last: Matrix  # (WIDTHS[-1],)

    @classmethod
    def drawn(cls, rank: int, source: Source) -> Network:
        """As after some training: the adapters are not zero."""

        def normal(*shape: int, scale: float) -> Matrix:
            return source.normal(shape, dtype=np.float64, scale=scale)

        return cls(
            [normal(out, into, scale=into**-0.5) for into, out in pairwise(WIDTHS)],
            [normal(rank, into, scale=into**-0.5) for into in WIDTHS[:-1]],
            [normal(out, rank, scale=0.3) for out in WIDTHS[1:]],
            normal(WIDTHS[-1], scale=WIDTHS[-1] ** -0.5),
        )

    def hidden(self, inputs: Matrix) -> list[Matrix]:
        """What each layer reads, and what the last one gives."""
        layers = [inputs]
        for weight, down, up in zip(self.weights, self.down, self.up, strict=True):
            layers.append(np.tanh(layers[-1] @ (weight + up @ down).T))
        return layers

    def logits(self, inputs: Matrix) -> Matrix:
        out: Matrix = self.hidden(inputs)[-1] @ self.last + BIAS
        return out

    def sent(self, inputs: Matrix, *, adapted: int = 2) -> Sent:
        """What the room is sent about these examples, (n, WIDTHS[0]); only the first layers are adapted."""
        layers = self.hidden(inputs)
        blocks: list[Block] = []
        derivatives: dict[str, BlockDerivatives] = {}
        slope = np.broadcast_to(self.last, layers[-1].shape)  # of the logit, by what the layer gives
        cut = slope * (1 - layers[-1] ** 2)
        for place in reversed(range(len(self.weights))):
            delta = slope * (1 - layers[place + 1] ** 2)  # (n, out), by what tanh reads
            narrow = layers[place] @ self.down[place].T  # (n, rank)
            pairs = {"A": (delta @ self.up[place], layers[place]), "B": (delta, narrow)}
            for part, (left, right) in pairs.items():
                if place < adapted:
                    block = Block(f"layer{place}.{part}", left.shape[1], right.shape[1])
                    blocks.append(block)
                    derivatives[block.name] = _of_pairs(block, left, right)
            slope = delta @ (self.weights[place] + self.up[place] @ self.down[place])
        return Sent(self.logits(inputs).astype(np.float32), Layout(tuple(blocks)), derivatives, cut)


def sent(examples: int, rank: int, source: Source, *, adapted: int = 2) -> Sent:
    """Random examples through a random network."""
    network = Network.drawn(rank, source)
    return network.sent(source.normal((examples, WIDTHS[0]), dtype=np.float64), adapted=adapted)


def answered(
    target: Target, records: Records, source: Source, *, batch: int, rank: int, adapted: int = 2
) -> Iterator[tuple[slice, Sent, Matrix]]:
    """Which records were asked about, what was sent and the sum that came back, until the target refuses."""
    for number, start in enumerate(range(0, len(records), batch)):
        some = slice(start, start + batch)
        tokens = target.tokens(records[some])
        made = sent(len(tokens), rank, source, adapted=adapted)
        asked = Asked(tokens, made.logits, made.layout, made.derivatives, number=number)
        try:
            gradient = target.aggregate(asked)
        except RoomRefused:
            return
        yield some, made, gradient


def _of_pairs(block: Block, left: Matrix, right: Matrix) -> BlockDerivatives:
    counts = np.ones(len(left), np.int32)
    return BlockDerivatives.of_factors(
        block, Factors(left.astype(np.float32), right.astype(np.float32), counts)
    )
