"""As many equations as labels: sum_i (p_i - y_i) d_i = g is solved for y.

Li et al. (RecSys 2024, section 2.1) name the case and advise noise where parameters outnumber the batch.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from tacit.cleanroom.attacks import honest
from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Asked, Target
from tacit.cleanroom.attacks.worlds import Records
from tacit.errors import RoomRefused
from tacit.privacy.randomness import Source

BATCH, RANK = 384, 4  # 576 parameters


def scores(target: Target, records: Records, source: Source) -> Scores:
    """Honest derivatives of an adapter, batch by batch; least squares."""
    told = np.zeros(len(records))
    for number, start in enumerate(range(0, len(records), BATCH)):
        some = records[start : start + BATCH]
        sent = honest.sent(len(some), RANK, source)
        asked = Asked(target.tokens(some), sent.logits, sent.layout, sent.derivatives, number=number)
        try:
            gradient = target.aggregate(asked)
        except RoomRefused:
            break
        known = expit(sent.logits.astype(np.float64)) @ sent.matrix - gradient  # = sum_i y_i d_i
        labels, *_ = np.linalg.lstsq(sent.matrix.T, known, rcond=None)
        told[start : start + BATCH] = labels - 0.5
    return told
