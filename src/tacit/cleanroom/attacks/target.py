"""What a platform may ask, the same whoever answers. A refusal is a `RoomRefused`: attacks live with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.attacks.worlds import NOBODY, Records
from tacit.cleanroom.wire.blocks import Block, Layout
from tacit.cleanroom.wire.derivatives import BlockDerivatives, Derivatives
from tacit.cleanroom.wire.losses import Loss
from tacit.errors import RoomRefused

Floats = NDArray[np.float64]
Logits = NDArray[np.float32]
Tokens = NDArray[np.uint8]  # (n, 16)
Given = TypeVar("Given")

SURE_OF_ZERO = -100.0
"""A logit at which p is 0 to the last bit of any sum: what comes back is made of labels alone."""

PADDED = 256
"""Rows of a batch at least: nobody's records fill it up, so that a smallest batch is no obstacle."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One step as a platform asks for it; nothing obliges it to send what its model computes."""

    tokens: Tokens
    logits: Logits
    layout: Layout
    derivatives: Derivatives
    task: int = 0
    loss: Loss = Loss.RAW
    codec: str = "fp32"
    run: str = "attack"
    number: int = 0
    slab_rows: int | None = None  # in each message; None: as many as make about a megabyte


class Target(Protocol):
    """Whoever has the labels. Questions that it has no answer to are refused as NOT_AGREED."""

    def tokens(self, records: Records) -> Tokens:
        """What the platform calls these records: it makes tokens itself."""

    def aggregate(self, asked: Asked) -> Floats:
        """Sum over the batch of dL_i/dz_i * dz_i/df, flat."""

    def sample_gradients(self, tokens: Tokens, logits: Logits, directions: Floats) -> Floats:
        """dL_i/dz_i * directions_i, (n, width): what split learning sends back at the cut of the model."""

    def log_loss(self, tokens: Tokens, logits: Logits) -> float:
        """The batch's loss, summed."""

    def positives(self, tokens: Tokens, cells: Records, run: str) -> Floats:
        """How many positives fall into each cell: the metrics that a platform may ask for."""

    def tighten(self) -> None:
        """Amend the agreement alone, in a way that needs no second signature, where there is one."""


def of_matrix(values: NDArray[np.float32]) -> tuple[Layout, Derivatives]:
    """Crafted derivatives (n, parameters), as those of one made-up matrix of one row."""
    block = Block("crafted", 1, values.shape[1])
    return Layout((block,)), {block.name: BlockDerivatives.of_dense(block, values)}


def weighed(target: Target, records: Records, weights: NDArray[np.float32]) -> Asked:
    """A step whose sum is minus that of the labels times weights (n, parameters): no model has a part in it."""
    tokens, values = padded(target, records, weights)
    layout, derivatives = of_matrix(values)
    return Asked(tokens, np.full(len(tokens), SURE_OF_ZERO, np.float32), layout, derivatives)


def padded(
    target: Target, records: Records, values: NDArray[np.float32], number: int = 0
) -> tuple[Tokens, NDArray[np.float32]]:
    """The records' tokens and values, filled up with nobody's records and zeros to a batch that is accepted."""
    tokens = target.tokens(filled(records, number))
    lacking = len(tokens) - len(records)
    return tokens, np.concatenate([values, np.zeros((lacking, *values.shape[1:]), values.dtype)])


def filled(records: Records, number: int) -> Records:
    """These, and as many of nobody's as a batch lacks: others for every number, in case uses are counted."""
    return np.append(records, NOBODY + number * PADDED + np.arange(max(0, PADDED - len(records))))


def answers(questions: Iterable[Callable[[], Given]]) -> list[Given]:
    """What comes back until the first refusal: an attacker takes what it gets."""
    given: list[Given] = []
    for ask in questions:
        try:
            given.append(ask())
        except RoomRefused:
            break
    return given
