"""The same records in one message after the other of a single batch: is each taken for a record of its own?

A sum that counts a record sixteen times over has noise for one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Asked, Target, filled
from tacit.cleanroom.attacks.unit_vectors import grid, said
from tacit.cleanroom.attacks.worlds import Records
from tacit.cleanroom.wire.derivatives import BlockDerivatives, Factors
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

BATCH, TIMES = 256, 16


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """A parameter for each record, which all its copies share."""
    told = np.zeros(len(records))
    for number, start in enumerate(range(0, len(records), BATCH)):
        once = grid(target.tokens(filled(records[start : start + BATCH], number)), number=number)
        some = told[start : start + BATCH]
        try:
            some[:] = said(target.aggregate(_repeated(once)) / TIMES)[: len(some)]
        except RoomRefused:
            break
    return told


def _repeated(once: Asked) -> Asked:
    """The whole batch again and again, each time in a message of its own."""
    (block,) = once.layout.blocks
    factors = once.derivatives[block.name].factors
    left, right = (np.tile(each, (TIMES, 1)) for each in (factors.left, factors.right))
    copies = Factors(left, right, np.tile(factors.counts, TIMES))
    return replace(
        once,
        tokens=np.tile(once.tokens, (TIMES, 1)),
        logits=np.tile(once.logits, TIMES),
        derivatives={block.name: BlockDerivatives.of_factors(block, copies)},
        slab_rows=len(once.tokens),
    )
