"""One number, the loss, holds forty labels: a logit z adds z to the loss where the label is 0 rather than 1.

Source: Aggarwal et al. 2021 (arXiv 2105.08266), who choose predictions so that every sum of labels is another
loss.
"""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.worlds import Records
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

BITS = 40
LEAST = -20  # logits are 2^-20 .. 2^19: float64 has 53 bits


def scores(target: Target, records: Records, source: Source) -> Scores:  # noqa: ARG001 (nothing is drawn)
    """Logits that are powers of two, forty records at a time."""
    told = np.zeros(len(records))
    for start in range(0, len(records), BITS):
        some = records[start : start + BITS]
        logits = 2.0 ** (LEAST + np.arange(len(some)))
        try:
            loss = target.log_loss(target.tokens(some), logits.astype(np.float32))
        except RoomRefused:
            break
        of_positives = np.logaddexp(0, logits).sum() - loss  # = sum_i y_i z_i
        whole = int(np.clip(np.rint(of_positives / 2.0**LEAST), 0, 2.0**BITS - 1))
        told[start : start + BITS] = ((whole >> np.arange(len(some))) & 1) - 0.5
    return told
