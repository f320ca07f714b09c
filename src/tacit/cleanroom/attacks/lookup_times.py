"""A batch of positives against a batch of negatives: does the room take longer over one of them?

Asked for as usual, and with a logit at which p is next to nothing, times derivatives that are next to nothing:
some processors take longer over a product so small (subnormal) that it has lost digits, and for a label of 1 it
would not be small. Answers are thrown away. The clock is an argument: in one process, that of the thread's own
work is sharpest, and sees more than anyone could from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Asked, Target
from tacit.cleanroom.attacks.unit_vectors import grid
from tacit.cleanroom.attacks.worlds import Records
from tacit.cleanroom.wire.derivatives import BlockDerivatives, Factors
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

BATCH, REPEATS = 256, 4
EXTREME_LOGIT, TINY = -700.0, 1e-12

Clock = Callable[[], float]


def scores(target: Target, records: Records, source: Source, *, clock: Clock) -> Scores:  # noqa: ARG001
    """Of each batch, whose labels are all alike: 1 where its fastest answer lies on the slow side of all."""
    batches = records.reshape(-1, BATCH)
    fastest = np.full((2, len(batches)), np.inf)
    for repeat in range(REPEATS):
        for place, batch in enumerate(batches):
            usual = grid(target.tokens(batch), run=f"timed-{repeat}", number=place)
            for kind, step in enumerate((usual, _extreme(usual))):
                started = clock()
                with suppress(RoomRefused):  # refusing takes time as well
                    target.aggregate(step)
                fastest[kind, place] = min(fastest[kind, place], clock() - started)
    middles = np.quantile(fastest, (0.1, 0.9), axis=1).mean(axis=0)  # no single batch decides
    told = fastest / middles[:, None] - 1
    return np.repeat(np.sign(told.sum(axis=0)), BATCH)


def _extreme(step: Asked) -> Asked:
    """The same rows, full of tiny numbers."""
    (block,) = step.layout.blocks
    factors = step.derivatives[block.name].factors
    left, right = np.full_like(factors.left, TINY), np.ones_like(factors.right)
    tiny = BlockDerivatives.of_factors(block, Factors(left, right, factors.counts))
    logits = np.full_like(step.logits, EXTREME_LOGIT)
    return replace(step, logits=logits, derivatives={block.name: tiny}, run=f"{step.run}-extreme")
