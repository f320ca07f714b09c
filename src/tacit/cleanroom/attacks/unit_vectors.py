"""Each record gets a parameter of its own: the "sum" lists all slopes, one by one."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import SURE_OF_ZERO, Asked, Floats, Target, Tokens, answers, filled
from tacit.cleanroom.attacks.worlds import Records
from tacit.cleanroom.wire.blocks import Block, Layout
from tacit.cleanroom.wire.derivatives import BlockDerivatives, Factors
from tacit.privacy.randomness import Source

BATCH = 2048


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """At p = 0 a slope is -1 or 0; where nothing came back there is nothing to say."""
    return said(read(target, records))


def surest(target: Target, records: Records, source: Source) -> Scores:
    """Only the hundredth of the readings that stand out most; of the others nothing is said."""
    told = scores(target, records, source)
    far = np.sort(np.abs(told))[-max(1, len(told) // 100)]
    return np.where(np.abs(told) >= far, told, 0.0)


def said(slopes: Floats) -> Scores:
    """A score for each slope at p = 0."""
    return np.where(np.isnan(slopes), 0.0, -0.5 - slopes)


def read(target: Target, records: Records, *, logit: float = SURE_OF_ZERO, **options: Any) -> Floats:
    """The slope of each record's loss, as the target gives it; not a number where it refuses."""
    starts = range(0, len(records), BATCH)
    steps = [
        grid(target.tokens(filled(records[start : start + BATCH], number)), logit, number=number, **options)
        for number, start in enumerate(starts)
    ]
    slopes = np.full(len(records), np.nan)
    for start, sums in zip(starts, answers(partial(target.aggregate, step) for step in steps), strict=False):
        some = slopes[start : start + BATCH]
        some[:] = sums[: len(some)]
    return slopes


def grid(tokens: Tokens, logit: float = SURE_OF_ZERO, **options: Any) -> Asked:
    """Rows whose derivatives are unit vectors, each with its place in a matrix: pairs of short unit vectors."""
    side = math.isqrt(len(tokens) - 1) + 1
    block = Block("grid", side, side)
    places, eye = np.arange(len(tokens)), np.eye(side, dtype=np.float32)
    factors = Factors(eye[places // side], eye[places % side], np.ones(len(tokens), np.int32))
    derivatives = {block.name: BlockDerivatives.of_factors(block, factors)}
    return Asked(tokens, np.full(len(tokens), logit, np.float32), Layout((block,)), derivatives, **options)
