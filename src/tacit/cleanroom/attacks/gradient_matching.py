"""Look for soft labels whose gradient matches the one that came back, by descent.

Source: deep leakage from gradients, Zhu, Liu, Han 2019 (arXiv 1906.08935). The platform knows the inputs, so
that only labels are sought, and the gradient is linear in them.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from tacit.cleanroom.attacks import honest
from tacit.cleanroom.attacks.outcome import Scores
from tacit.cleanroom.attacks.target import Floats, Target
from tacit.cleanroom.attacks.worlds import Records
from tacit.privacy.randomness import Source

BATCH, RANK = 256, 4
ROUNDS = 500


def scores(target: Target, records: Records, source: Source) -> Scores:
    """Honest derivatives of an adapter, batch by batch; a soft label is the logistic of a free number."""
    told = np.zeros(len(records))
    for some, sent, gradient in honest.answered(target, records, source, batch=BATCH, rank=RANK):
        told[some] = matched(sent.matrix, expit(sent.logits.astype(np.float64)), gradient)
    return told


def matched(matrix: Floats, predicted: Floats, gradient: Floats) -> Floats:
    """The free number of each record: above 0 where its soft label is above 1/2."""

    def distance(free: Floats) -> tuple[float, Floats]:
        soft = expit(free)
        gap = (predicted - soft) @ matrix - gradient
        return float(gap @ gap), -2 * (matrix @ gap) * soft * (1 - soft)

    start = np.zeros(len(matrix))
    best = minimize(distance, start, jac=True, method="L-BFGS-B", options={"maxiter": ROUNDS})
    free: Floats = best.x
    return free
