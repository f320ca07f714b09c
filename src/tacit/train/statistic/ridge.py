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
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Reals = NDArray[np.float64]


def noisy_ridge(
    information: Reals, spread: Reals, noise_variance: Reals | float, prior_variance: Reals | float
) -> Reals:
    """(k + n) / (j t), by coordinate."""
    ridge: Reals = (spread + noise_variance) / (np.maximum(information, 1e-12) * prior_variance)
    return ridge


def fit_sums(
    sums: Reals,
    ridge: Reals,
    *,
    logits: Callable[[Reals], Reals],
    gather: Callable[[Reals], Reals],
    origin: Reals | float = 0.0,
    scale: Reals,
    start: Reals | None = None,
    weights: Reals | None = None,
    steps: int,
    memory: int,
) -> Reals:
    """The e with the least sum_i w_i softplus(logits(e)_i) - e . sums + e . (ridge e) / 2, by L-BFGS.

    `gather` is the sum over rows of w_i phi_i times what it is given for each row. The search runs in (e -
    origin) / scale, from `start`: a scale of 1 / sqrt(curvature) makes all directions alike. It keeps `memory`
    corrections and takes at most `steps` steps.
    """

    def objective(scaled: Reals) -> tuple[float, Reals]:
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
    at: Reals = origin + found.x * scale
    return at
