"""The same large batch twice, the second time with one row zeroed: the difference is that row's alone."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from tacit.cleanroom.attacks.honest import BIAS
from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Asked, Target, of_matrix
from tacit.cleanroom.attacks.worlds import Records
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

PARAMETERS = 8


def scores(target: Target, records: Records, source: Source, *, targets: Records) -> Scores:
    """About `targets`, a few of the records: one batch for all of them, and one more for each."""
    values = source.normal((len(records), PARAMETERS), dtype=np.float32)
    logits = (BIAS + source.normal(len(records), dtype=np.float64)).astype(np.float32)
    tokens, told = target.tokens(records), np.zeros(len(records))

    def sums(matrix: np.typing.NDArray[np.float32], number: int) -> np.typing.NDArray[np.float64]:
        return target.aggregate(Asked(tokens, logits, *of_matrix(matrix), number=number))

    try:
        whole = sums(values, 0)
        for number, place in enumerate(targets, start=1):
            without = values.copy()
            without[place] = 0
            own = values[place].astype(np.float64)
            slope = (whole - sums(without, number)) @ own / (own @ own)
            told[place] = expit(float(logits[place])) - slope - 0.5
    except RoomRefused:
        pass  # what was told before stays told
    return told
