"""The same noised sum, asked for under one run's name after the other: independent noise averages out."""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.unit_vectors import read
from tacit.cleanroom.attacks.worlds import Records
from tacit.privacy.randomness import Source

TIMES = 64


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """The mean of all that was answered."""
    total, count = np.zeros(len(records)), np.zeros(len(records))
    for time in range(TIMES):
        slopes = read(target, records, run=f"again-{time}")
        answered = ~np.isnan(slopes)
        total[answered] += slopes[answered]
        count += answered
    return np.where(count > 0, -0.5 - total / np.maximum(count, 1), 0.0)
