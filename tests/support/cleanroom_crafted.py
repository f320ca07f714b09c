"""Derivatives as no honest platform sends them, and slabs of them, for the tests of clipping and noise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.modes import NoiseLaw
from tacit.cleanroom.protocol.requests import StepRequest
from tacit.cleanroom.protocol.slabs import Slab
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.active_terms import TokenJoin
from tacit.cleanroom.room.sums import SlabStream
from tacit.entropy import Simulation
from tests.support.cleanroom_rooms import noised_terms, some_tokens, step_request

ROWS = 8
LARGEST = 2.0**32  # what decoders let through
GAUSSIAN = noised_terms(clip_norm=0.7)
LAPLACE = noised_terms(clip_norm=0.7, noise=NoiseLaw.LAPLACE, delta=0)
Batch = dict[str, BlockDerivatives]


def sent_in_threes(
    batch: Batch, logits: np.ndarray, terms: Terms, layout: ParameterLayout
) -> tuple[StepRequest, SlabStream[Slab]]:
    tokens, starts = some_tokens(len(logits)), range(0, len(logits), 3)
    slabs = [
        Slab(at, tokens[at : at + 3], logits[at : at + 3], {k: v.rows(at, at + 3) for k, v in batch.items()})
        for at in starts
    ]
    request = step_request(terms, len(logits), layout=layout)
    named = [bytes([place]) for place in range(len(slabs))]
    return request, SlabStream(request, named, lambda data: slabs[data[0]], TokenJoin())


def factored(layout: ParameterLayout, make: Any) -> Batch:
    """Every block with `make(block)`: left and right, both (ROWS, positions, size)."""
    batch = {}
    for block in layout.blocks:
        left, right = (np.asarray(each, np.float32) for each in make(block))
        counts = np.full(ROWS, block.positions, np.int32)
        pairs = Factors(left.reshape(-1, block.rows), right.reshape(-1, block.cols), counts)
        batch[block.name] = BlockDerivatives.of_factors(block, pairs)
    return batch


def sizes(block: ParameterBlock) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (ROWS, block.positions, block.rows), (ROWS, block.positions, block.cols)


def ordinary(block: ParameterBlock) -> tuple[np.ndarray, np.ndarray]:
    source = Simulation(f"ordinary {block.name}")
    return tuple(source.normal(size) for size in sizes(block))  # type: ignore[return-value]


def wildly_sized(block: ParameterBlock) -> tuple[np.ndarray, np.ndarray]:
    source = Simulation(f"wild {block.name}")
    left, right = (source.normal(size) * 2.0 ** source.normal(size, scale=12.0) for size in sizes(block))
    return np.clip(left, -LARGEST, LARGEST), np.clip(right, -LARGEST, LARGEST)


def largest(block: ParameterBlock) -> tuple[np.ndarray, np.ndarray]:
    left, right = sizes(block)
    return np.full(left, LARGEST), np.full(right, -LARGEST)


def tiny(block: ParameterBlock) -> tuple[np.ndarray, np.ndarray]:
    left, right = sizes(block)
    return np.full(left, 1e-44), np.full(right, 1e-44)


def cancelling(block: ParameterBlock) -> tuple[np.ndarray, np.ndarray]:
    """Pairs as large as can be whose sum is nothing, or next to nothing."""
    source = Simulation(f"cancelling {block.name}")
    left, right = (source.normal(size) * LARGEST / 8 for size in sizes(block))
    for place in range(1, block.positions, 2):
        left[:, place], right[:, place] = -left[:, place - 1], right[:, place - 1]
    if block.positions % 2:
        left[:, -1] = 1e-3
        right[:, -1] = 1e-3
    return left, right


def written_out(found: BlockDerivatives) -> np.ndarray:
    """Each example's matrix in extended precision, flat."""
    factors, starts = found.factors, found.factors.starts
    left, right = factors.left.astype(np.longdouble), factors.right.astype(np.longdouble)
    pairs = [slice(int(first), int(last)) for first, last in pairwise(starts)]
    return np.stack([(left[some].T @ right[some]).reshape(-1) for some in pairs])


SEQUENCES = ParameterLayout((ParameterBlock("sequence", 3, 2, positions=4), ParameterBlock("plain", 2, 2)))
CRAFTED = {made.__name__: made for made in (ordinary, wildly_sized, largest, tiny, cancelling)}
