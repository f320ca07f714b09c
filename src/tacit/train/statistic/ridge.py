"""Ridge logistic fit from noisy sums: the log loss itself, with a ridge that knows the noise.

With public vectors phi_i, weights w_i and offsets z_i, the log loss of logits z_i + phi_i . e needs labels only
through S = sum_i w_i y_i phi_i. For one coordinate of information j = sum w p (1 - p) phi^2, spread k = sum
w^2 p (1 - p) phi^2 and noise variance n, what S tells about an effect of prior variance t is j effect + N(0,
k + n). The best linear estimate of the effect from it is S / (j + (k + n) / (j t)): that of a ridge of (k + n)
/ (j t), the noiseless 1 / t where k = j and n = 0, and more where noise would drown the effect.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from tacit.arrays import Floats


def noisy_ridge(
    information: Floats, spread: Floats, noise_variance: Floats | float, prior_variance: Floats | float
) -> Floats:
    """(k + n) / (j t), by coordinate."""
    ridge: Floats = (spread + noise_variance) / (np.maximum(information, 1e-12) * prior_variance)
    return ridge


def fit_sums(
    sums: Floats,
    ridge: Floats,
    *,
    logits: Callable[[Floats], Floats],
    gather: Callable[[Floats], Floats],
    origin: Floats | float = 0.0,
    scale: Floats,
    start: Floats | None = None,
    weights: Floats | None = None,
    steps: int,
    memory: int,
) -> Floats:
    """The e with the least sum_i w_i softplus(logits(e)_i) - e . sums + e . (ridge e) / 2, by L-BFGS.

    `gather` is the sum over rows of w_i phi_i times what it is given for each row. The search runs in (e -
    origin) / scale, from `start`: a scale of 1 / sqrt(curvature) makes all directions alike. It keeps `memory`
    corrections and takes at most `steps` steps.
    """

    def objective(scaled: Floats) -> tuple[float, Floats]:
        at = origin + scaled * scale
        found = logits(at)
        softplus = np.logaddexp(0, found)
        loss = softplus.sum() if weights is None else weights @ softplus
        value = loss - at @ sums + (ridge * at) @ at / 2
        slope = gather(expit(found)) - sums + ridge * at
        return float(value), slope * scale

    found = minimize(
        objective,
        np.zeros(len(sums)) if start is None else start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "maxcor": memory},
    )
    at: Floats = origin + found.x * scale
    return at
