"""A derivative that is infinite, or nearly: whatever else is in the sum, its sign is that of one slope."""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.attacks.honest import BIAS
from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Asked, Target, of_matrix, padded
from tacit.cleanroom.attacks.worlds import Records
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

BATCH = 64
SIZES = (np.inf, float(np.finfo(np.float32).max), 1e30, 1e6)
"""What is tried, one after the other, until something is answered."""


def scores(target: Target, records: Records, source: Source) -> Scores:
    """Every parameter has one record that drowns all others."""
    told = np.zeros(len(records))
    for number, start in enumerate(range(0, len(records), BATCH)):
        some = records[start : start + BATCH]
        noise = source.normal((len(some), len(some)), dtype=np.float32)
        for tried, size in enumerate(SIZES):
            values = noise.copy()
            np.fill_diagonal(values, size)
            tokens, rows = padded(target, some, values, number)
            logits = np.full(len(tokens), BIAS, np.float32)
            step = number * len(SIZES) + tried
            try:
                sums = target.aggregate(Asked(tokens, logits, *of_matrix(rows), number=step))
            except RoomRefused:
                continue
            told[start : start + BATCH] = -np.sign(sums)
            break
    return told
