"""A made-up token that begins like a real one: do the two share what decides a flip?

Nobody has the made-up record, so its label is 0. If it is flipped by the same draw as a real record with a
label of 0, then two answers that differ prove that the real label is 1.
"""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.unit_vectors import grid
from tacit.cleanroom.attacks.worlds import Records
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

BATCH = 512


def scores(target: Target, records: Records, source: Source) -> Scores:
    """Says 1 where the real and the made-up one differ, for the half that ties them closer; else nothing."""
    differ = np.zeros((2, len(records)))
    for number, start in enumerate(range(0, len(records), BATCH)):
        real = target.tokens(records[start : start + BATCH])
        junk = np.frombuffer(source.bytes(2 * real.size), np.uint8).reshape(2, *real.shape).copy()
        junk[0, :, :8], junk[1, :, 8:] = real[:, :8], real[:, 8:]
        try:
            slopes = target.aggregate(grid(np.concatenate([real, *junk]), number=number))
        except RoomRefused:
            break
        own, first, second = (-slopes[: 3 * len(real)]).reshape(3, -1) > 0.5
        differ[:, start : start + BATCH] = own != first, own != second
    closer: Scores = differ[int(np.argmin(differ.sum(axis=1)))]
    return closer
