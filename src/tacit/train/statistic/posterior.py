"""Labels as one can expect them after the release, for a model that gave logits before it.

Given logits z, labels are independent and positive with probability p = sigmoid(z), and the statistic is
S = sum_i w_i y_i phi_i plus noise of covariance N. The expected labels are approximated by those of the mode:

    y_i = sigmoid(z_i + w_i phi_i . q),    q = argmax  q . S - q N q / 2 - sum_i softplus(z_i + w_i phi_i . q),

so that N q = S - sum_i w_i y_i phi_i: the noise that is then left over is what its variance allows for. Without
noise the expected labels reproduce S exactly; with all noise and no signal they are p. Rows that were weighed
down move less. Any model can be trained towards them: in log loss they stand where labels would.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from tacit.train.statistic.cells import Reals
from tacit.train.statistic.release import Released


def expected_labels(released: Released, logits: Reals, start: Reals, *, steps: int) -> tuple[Reals, Reals]:
    """(rows,) expected labels, and (cells,) q, from which a later call may start."""
    cells, weights = released.plan.cells, released.plan.weights
    noise_variance = cells.by_table(released.plan.noise_by_table**2)
    probability = expit(logits)
    information = cells.gather(weights**2 * probability * (1 - probability))
    scale = 1 / np.sqrt(information + noise_variance)  # each cell by itself: what makes all directions alike

    def objective(scaled: Reals) -> tuple[float, Reals]:
        q = scaled * scale
        tilted = logits + weights * cells.add_up(q)
        value = np.logaddexp(0, tilted).sum() - q @ released.sums + (noise_variance * q) @ q / 2
        gradient = cells.gather(weights * expit(tilted)) - released.sums + noise_variance * q
        return float(value), gradient * scale

    found = minimize(
        objective, start / scale, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 6}
    )
    q = found.x * scale
    return expit(logits + weights * cells.add_up(q)), q
