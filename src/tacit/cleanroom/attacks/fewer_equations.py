"""Fewer equations than labels: 96 for 384. Labels lie between 0 and 1 and most are 0: that is enough.

Against the rule that a batch larger than the number of parameters is safe (Li et al., RecSys 2024, section
2.1). That few non-negative unknowns are found from few equations: Donoho, Tanner 2005 (PNAS 102).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit

from tacit.cleanroom.attacks import honest
from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Floats, Target
from tacit.cleanroom.attacks.worlds import Records
from tacit.privacy.randomness import Source

BATCH, RANK, ADAPTED = 384, 1, 1  # 64 + 32 parameters
ROUNDS = 8
FEW = 1e-3  # how much fewer positives are preferred, where equations leave a choice


def scores(target: Target, records: Records, source: Source) -> Scores:
    """Honest derivatives of one adapter of rank 1, batch by batch; least squares within [0, 1]."""
    told = np.zeros(len(records))
    for some, sent, gradient in honest.answered(
        target, records, source, batch=BATCH, rank=RANK, adapted=ADAPTED
    ):
        known = expit(sent.logits.astype(np.float64)) @ sent.matrix - gradient  # = sum_i y_i d_i
        told[some] = boxed(sent.matrix, known) - 0.5
    return told


def boxed(matrix: Floats, known: Floats) -> Floats:
    """The y in [0, 1] with sum_i y_i d_i nearest to what is known, few of them large.

    Non-negative least squares; what comes out above 1 is held at 1, and the others are solved for again.
    """
    sizes = np.linalg.norm(matrix, axis=0)
    equations = np.vstack([(matrix / sizes).T, np.full((1, len(matrix)), FEW)])
    right = np.append(known / sizes, 0.0)
    labels, held = np.zeros(len(matrix)), np.zeros(len(matrix), np.bool_)
    for _ in range(ROUNDS):
        solved, _ = nnls(equations[:, ~held], right - equations[:, held].sum(axis=1), maxiter=50 * len(matrix))
        labels[~held] = solved
        above = labels > 1
        labels[above], held = 1.0, held | above
        if not above.any():
            break
    return labels
