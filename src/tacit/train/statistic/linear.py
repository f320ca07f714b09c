"""A linear model from the statistic: log loss itself, with a ridge that knows the noise.

For one value with information j = sum w p (1 - p), spread k = sum w^2 p (1 - p) and noise variance n, the best
linear estimate of an effect of prior variance t from S = j effect + N(0, k + n) is S / (j + (k + n) / (j t)):
that of a ridge of (k + n) / (j t) in place of the noiseless 1 / t. Rare values, which noise would drown, are
held back by it, and frequent ones are not.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from tacit.train.statistic.cells import Cells, Reals
from tacit.train.statistic.release import Released


def linear_fit(released: Released, *, steps: int) -> tuple[Reals, float]:
    """Effects of all values, fields one after another, and the base."""
    plan = released.plan
    tables = 1 + len(plan.tables.values)  # the one of all rows, and the fields': pairs are left out
    cells = Cells(plan.cells.cell[:tables], plan.cells.sizes[:tables], plan.cells.rows)
    sums, weights = released.sums[: cells.count], plan.weights
    noise_variance = cells.by_table(plan.noise_by_table[:tables] ** 2)
    variance, effects = plan.prior.label_variance, plan.prior.effect_variance(tables - 1)
    information, spread = variance * cells.gather(weights), variance * cells.gather(weights**2)
    ridge = (spread + noise_variance) / (np.maximum(information, 1e-12) * effects)
    ridge[0] = 0.0  # the base: told well, and nothing is known of it beforehand
    scale = 1 / np.sqrt(information + ridge)
    origin = np.zeros(cells.count)
    origin[0] = plan.prior.logit

    def objective(scaled: Reals) -> tuple[float, Reals]:
        at = origin + scaled * scale
        logits = cells.add_up(at)
        value = weights @ np.logaddexp(0, logits) - at @ sums + (ridge * at) @ at / 2
        slope = cells.gather(weights * expit(logits)) - sums + ridge * at
        return float(value), slope * scale

    found = minimize(
        objective, np.zeros(cells.count), jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 10}
    )
    at = origin + found.x * scale
    return at[1:], float(at[0])
