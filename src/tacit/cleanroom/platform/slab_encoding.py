"""Encodes what a call sends as slabs that can be iterated again: the same bytes, and never all at once.

Rounding at random draws from `Simulation(f"{run} {number} {slab}")`. It hides nothing and need not: it only has
to be unbiased, and the same when a step is repeated, so that the room sees a repetition as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.model.examples import Batch
from tacit.cleanroom.protocol.codecs import Codec
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Derivatives, Factors
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
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
from tacit.entropy import Simulation

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
) -> dict[str, BlockDerivatives]:
    """The derivatives as the room reads them: its sum is one of these, rounding included."""
    parts = [decode_slab(data, layout, codec, token_bytes).blocks for data in slabs]
    return {block.name: _joined(block, [part[block.name] for part in parts]) for block in layout.blocks}


def _joined(block: ParameterBlock, parts: Sequence[BlockDerivatives]) -> BlockDerivatives:
    factors = Factors(
        np.concatenate([part.factors.left for part in parts]),
        np.concatenate([part.factors.right for part in parts]),
        np.concatenate([part.factors.counts for part in parts]),
    )
    is_dense = np.concatenate([part.is_dense for part in parts])
    return BlockDerivatives(block, is_dense, factors, np.concatenate([part.dense for part in parts]))


def mean_pairs(derivatives: BlockDerivatives) -> float:
    """The mean number of pairs, for sizes."""
    factors = derivatives.factors
    return float(factors.counts.mean()) if len(factors) else 1.0
