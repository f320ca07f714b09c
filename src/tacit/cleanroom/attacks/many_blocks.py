"""A record's derivative in a hundred matrices at once: is it clipped as a whole, or in each by itself?

Clipped in each, a label moves the answer by ten times as much as the noise is for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Asked, Target, filled
from tacit.cleanroom.attacks.unit_vectors import grid
from tacit.cleanroom.attacks.worlds import Records
from tacit.cleanroom.wire.blocks import Layout
from tacit.cleanroom.wire.derivatives import BlockDerivatives
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

BATCH, BLOCKS = 256, 100


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """The same unit vector in every matrix; what each says is added up, and split in the middle of all."""
    told = np.zeros(len(records))
    for number, start in enumerate(range(0, len(records), BATCH)):
        asked = _in_every_block(
            grid(target.tokens(filled(records[start : start + BATCH], number)), number=number)
        )
        some = told[start : start + BATCH]
        try:
            slopes = target.aggregate(asked).reshape(BLOCKS, -1).sum(axis=0)[: len(some)]
        except RoomRefused:
            break
        # How much is kept of a derivative is not known; but labels are coins, so every batch has both kinds.
        some[:] = np.quantile(slopes, (0.1, 0.9)).mean() - slopes
    return told


def _in_every_block(once: Asked) -> Asked:
    (block,) = once.layout.blocks
    factors = once.derivatives[block.name].factors
    blocks = tuple(replace(block, name=f"grid-{place}") for place in range(BLOCKS))
    derivatives = {each.name: BlockDerivatives.of_factors(each, factors) for each in blocks}
    return replace(once, layout=Layout(blocks), derivatives=derivatives)
