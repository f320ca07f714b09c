"""Learn a model from the statistic: a linear one first, then expect the labels, fit to them, and again.

The second part is expectation maximisation for the marginal likelihood of the noisy statistic, with a Gaussian
prior on effects and factors. Where noise hides much of the labels its steps are too short; each is taken
`STRIDE` times as far, and the prior with it, which leaves the end point where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from tacit.errors import BadInput
from tacit.privacy.randomness import Source
from tacit.train.statistic.cells import Reals
from tacit.train.statistic.linear import linear_fit
from tacit.train.statistic.model import Design, FactorModel, Floats, gradient, scores
from tacit.train.statistic.posterior import expected_labels
from tacit.train.statistic.release import Released

STRIDE = 1.5  # from 2 on, what is told without noise would swing for ever
FIRST_FACTORS = 0.05  # factors of zero would stay there

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Effort:
    """How long to try: steps of the linear start, and of each round in expecting labels and in fitting to them.

    No guarantee hangs on it. Without factors the linear start is the end.
    """

    linear: int = 40
    expecting: tuple[int, ...] = (16, 8, 6)
    fitting: tuple[int, ...] = (25, 12, 10)


def fit(
    released: Released,
    ids: NDArray[np.integer],
    source: Source,
    effort: Effort,
    progress: Progress = lambda _done, _of: None,
) -> FactorModel:
    """Nothing but the statistic and public ids is read. `source` is for the first factors: any will do."""
    plan = released.plan
    if len(ids) != plan.cells.rows:
        raise BadInput(f"expected the {plan.cells.rows} rows of the plan, got {len(ids)}")
    values, prior = plan.tables.values, plan.prior
    fields = len(values)
    rows: Floats = np.zeros((sum(map(len, values)), plan.rank + 1), np.float32)
    effects, base = linear_fit(released, steps=effort.linear)
    rows[:, -1] = effects
    if not any(len(table) == 2 for table in plan.tables.crossed):
        return FactorModel(values, base, rows, released.simulated)
    rows[:, :-1] = source.normal((len(rows), plan.rank), scale=FIRST_FACTORS)
    ridge = np.full(plan.rank + 1, 1 / prior.factor_variance(fields, plan.rank))
    ridge[-1] = 1 / prior.effect_variance(fields)
    design, q = Design.of(values, ids), np.zeros(plan.cells.count)
    rounds = list(zip(effort.expecting, effort.fitting, strict=True))
    for number, (expecting, fitting) in enumerate(rounds):
        logits = base + scores(design, rows)[0]
        labels, q = expected_labels(released, logits, q, steps=expecting)
        probability = expit(logits)
        target = probability + STRIDE * (labels - probability)
        rows, base = _fitted(design, target, rows, base, STRIDE * ridge, steps=fitting)
        progress(number + 1, len(rounds))
    return FactorModel(values, base, rows, released.simulated)


def _fitted(
    design: Design, target: Reals, rows: Floats, base: float, ridge: Reals, *, steps: int
) -> tuple[Floats, float]:
    """Less log loss towards the targets, plus ridge / 2 times the squares of `rows`."""
    count = len(target)
    probability = float(np.clip(target.mean(), 1e-4, 1 - 1e-4))
    variance = probability * (1 - probability)
    information = variance * np.bincount(design.ones.indices, minlength=len(rows))
    scale = 1 / np.sqrt(information[:, None] + ridge)  # (values, rank + 1)
    base_scale = 1 / np.sqrt(variance * count)

    def objective(scaled: Reals) -> tuple[float, Reals]:
        at = (scaled[:-1].reshape(rows.shape) * scale).astype(np.float32)
        without_base, sums = scores(design, at)
        logits = without_base + scaled[-1] * base_scale
        residual = expit(logits) - target
        value = (
            np.logaddexp(0, logits).sum() - target @ logits + 0.5 * (ridge * at.astype(np.float64) ** 2).sum()
        )
        slope = (gradient(design, at, sums, residual) + ridge * at) * scale
        return float(value), np.append(slope.ravel(), residual.sum() * base_scale)

    start = np.append((rows / scale).ravel(), base / base_scale)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 8})
    return (found.x[:-1].reshape(rows.shape) * scale).astype(np.float32), float(found.x[-1] * base_scale)
