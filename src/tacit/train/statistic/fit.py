"""Fits a model to the noisy statistic: a linear start, then expected labels and a fit to them, in turns.

The linear start minimises log loss itself, with a ridge that knows the noise. With public vectors phi_i,
weights w_i and offsets z_i, the log loss of logits z_i + phi_i . e needs labels only through S = sum_i w_i y_i
phi_i. For one coordinate of information j = sum w p (1 - p) phi^2, spread k = sum w^2 p (1 - p) phi^2 and noise
variance n, what S tells about an effect of prior variance t is j effect + N(0, k + n). The best linear estimate
of the effect from it is S / (j + (k + n) / (j t)): that of a ridge of (k + n) / (j t), the noiseless 1 / t
where k = j and n = 0, and more where noise would drown the effect. So rare values are held back, and frequent
ones are not.

The turns are expectation maximisation for the marginal likelihood of the statistic, with a Gaussian prior on
effects and factors. Given logits z, labels are independent and positive with probability p = sigmoid(z), and
the statistic is S = sum_i w_i y_i phi_i plus noise of covariance N. The expected labels are approximated by
those of the mode:

    y_i = sigmoid(z_i + w_i phi_i . q),    q = argmax  q . S - q N q / 2 - sum_i softplus(z_i + w_i phi_i . q),

so that N q = S - sum_i w_i y_i phi_i: the noise that is then left over is what its variance allows for. Without
noise the expected labels reproduce S exactly; with all noise and no signal they are p. Where noise hides much
of the labels the steps are too short; each is taken `STRIDE` times as far, and the prior with it, which leaves
the end point as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from tacit.arrays import Floats, Floats32
from tacit.errors import BadInput
from tacit.privacy.randomness import Source
from tacit.progress import Progress, no_progress
from tacit.train.statistic.model import FactorModel, ValuePlaces
from tacit.train.statistic.release import ReleasedStatistic, StatisticPlan
from tacit.train.statistic.tables import TableCells


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

    Rows that are alike may be one, whose weight is that of all of them.

    `gather` is the sum over rows of w_i phi_i times what it is given for each row. The search runs in (e -
    origin) / scale, from `start`: a scale of 1 / sqrt(curvature) makes all directions alike. It keeps `memory`
    corrections and takes at most `steps` steps.
    """

    def objective(scaled: Floats) -> tuple[float, Floats]:
        at = origin + scaled * scale
        softplus, probability = _softplus(logits(at))
        loss = softplus.sum(dtype=np.float64) if weights is None else weights @ softplus.astype(np.float64)
        value = loss - at @ sums + (ridge * at) @ at / 2
        slope = gather(probability.astype(np.float64)) - sums + ridge * at
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


STRIDE = 1.5  # from 2 on, what is told without noise would swing for ever
FIRST_FACTORS = 0.05  # factors of zero would stay there


def _softplus(logits: Floats | Floats32) -> tuple[Floats32, Floats32]:
    """log(1 + e^z) and 1 / (1 + e^-z), from one exponential, and in single precision, which is twice as fast: a
    sum over rows is off by far less than one of them."""
    z = logits.astype(np.float32, copy=False)
    shrunk = np.exp(-np.abs(z))
    above = np.float32(1) + shrunk
    softplus: Floats32 = np.log(above) + np.maximum(z, np.float32(0))
    probability = np.where(z >= 0, np.float32(1), shrunk) / above
    return softplus, probability.astype(np.float32, copy=False)


def fit_linear(released: ReleasedStatistic, *, steps: int) -> tuple[Floats, float]:
    """Effects of all values, fields one after another, and the base."""
    plan = released.plan
    tables = 1 + len(plan.tables.values)  # the one of all rows, and the fields': pairs are left out
    cells = plan.cells.first(tables)
    sums, weights = released.sums[: cells.count], cells.of_kept(plan.weights)
    noise_variance = cells.by_table(plan.noise_by_table[:tables] ** 2)
    variance, effects = plan.prior.label_variance, plan.prior.effect_variance(tables - 1)
    information = variance * cells.gather_kept(weights)
    spread = variance * cells.gather(plan.weights**2)
    ridge = noisy_ridge(information, spread, noise_variance, effects)
    ridge[0] = 0.0  # the base: told well, and nothing is known of it beforehand
    origin = np.zeros(cells.count)
    origin[0] = plan.prior.logit
    at = fit_sums(
        sums,
        ridge,
        logits=cells.add_up,
        gather=lambda by_row: cells.gather_kept(weights * by_row),
        origin=origin,
        scale=1 / np.sqrt(information + ridge),
        weights=weights,
        steps=steps,
        memory=10,
    )
    return at[1:], float(at[0])


@dataclass(frozen=True, eq=False)
class WeighedRows:
    """Kept rows by the weights of the rows of their kind: `times` rows of kind `kind` count `weight` each."""

    kind: NDArray[np.int64]
    weight: Floats
    times: Floats
    kinds: int

    @classmethod
    def of(cls, cells: TableCells, weights: Floats) -> WeighedRows:
        times = np.bincount(cells.alike, minlength=cells.kept).astype(np.float64)
        if not len(weights) or (weights == weights[0]).all():
            weight = np.full(cells.kept, weights[0] if len(weights) else 1.0)
            return cls(np.arange(cells.kept), weight, times, cells.kept)
        order = np.lexsort((weights, cells.alike))
        kind, weight = cells.alike[order], weights[order]
        first = np.flatnonzero(np.r_[True, (kind[1:] != kind[:-1]) | (weight[1:] != weight[:-1])])
        times = np.diff(np.append(first, len(order))).astype(np.float64)
        return cls(kind[first].astype(np.int64), weight[first], times, cells.kept)

    def by_kind(self, of_each: Floats) -> Floats:
        """The sum over rows of what each of them has, by kind."""
        return np.bincount(self.kind, self.times * of_each, minlength=self.kinds).astype(np.float64, copy=False)


def expected_labels(
    released: ReleasedStatistic, logits: Floats, start: Floats, *, steps: int
) -> tuple[Floats, Floats]:
    """The expected label of each kept row, in the mean over rows that are alike, and (cells,) q, from which a
    later call may start."""
    cells = released.plan.cells
    rows = WeighedRows.of(cells, released.plan.weights)
    noise_variance = cells.by_table(released.plan.noise_by_table**2)
    probability = expit(logits)[rows.kind]
    information = cells.gather_kept(rows.by_kind(rows.weight**2 * probability * (1 - probability)))
    scale = 1 / np.sqrt(information + noise_variance)  # each cell by itself: what makes all directions alike
    each = logits[rows.kind]

    def tilted(q: Floats) -> Floats:
        return each + rows.weight * cells.add_up(q)[rows.kind]

    q = fit_sums(
        released.sums,
        noise_variance,
        logits=tilted,
        gather=lambda by_row: cells.gather_kept(rows.by_kind(rows.weight * by_row)),
        scale=scale,
        start=start / scale,
        weights=rows.times,
        steps=steps,
        memory=6,
    )
    return rows.by_kind(expit(tilted(q))) / rows.by_kind(np.ones(len(each))), q


@dataclass(frozen=True)
class FitEffort:
    """How long to try: steps of the linear start, and of each round in expecting labels and in fitting to them.

    No guarantee hangs on it. Without factors the linear start is the end.
    """

    linear: int = 40
    expecting: tuple[int, ...] = (16, 8, 6)
    fitting: tuple[int, ...] = (25, 12, 10)


def fit_model(
    released: ReleasedStatistic,
    ids: NDArray[np.integer],
    source: Source,
    effort: FitEffort,
    progress: Progress = no_progress,
) -> FactorModel:
    """Nothing but the statistic and public ids is read. `source` is for the first factors: any will do."""
    plan = released.plan
    if len(ids) != plan.cells.rows:
        raise BadInput(f"expected the {plan.cells.rows} rows of the plan, got {len(ids)}")
    values, prior = plan.tables.values, plan.prior
    fields = len(values)
    rows: Floats32 = np.zeros((sum(map(len, values)), plan.rank + 1), np.float32)
    effects, base = fit_linear(released, steps=effort.linear)
    rows[:, -1] = effects
    if not any(len(table) == 2 for table in plan.tables.crossed):
        return FactorModel(values, base, rows, released.simulated)
    rows[:, :-1] = source.normal((len(rows), plan.rank), scale=FIRST_FACTORS)
    ridge = np.full(plan.rank + 1, 1 / prior.factor_variance(fields, plan.rank))
    ridge[-1] = 1 / prior.effect_variance(fields)
    q, times = np.zeros(plan.cells.count), plan.cells.of_kept(np.ones(plan.cells.rows))
    design = _value_places(plan)
    rounds = list(zip(effort.expecting, effort.fitting, strict=True))
    for number, (expecting, fitting) in enumerate(rounds):
        logits = base + design.scores(rows)[0]
        labels, q = expected_labels(released, logits, q, steps=expecting)
        probability = expit(logits)
        target = probability + STRIDE * (labels - probability)
        rows, base = _fit_rows(design, times, target, rows, base, STRIDE * ridge, steps=fitting)
        progress("fitting the model", number + 1, len(rounds))
    return FactorModel(values, base, rows, released.simulated)


def _value_places(plan: StatisticPlan) -> ValuePlaces:
    """The values of each kept row, all fields' numbered together, as the tables of single fields have them."""
    fields = len(plan.tables.values)
    places = plan.cells.cell[:, 1 : 1 + fields] - np.int32(plan.tables.sizes[0])
    return ValuePlaces(np.ascontiguousarray(places))


def _fit_rows(
    design: ValuePlaces,
    times: Floats,
    target: Floats,
    rows: Floats32,
    base: float,
    ridge: Floats,
    *,
    steps: int,
) -> tuple[Floats32, float]:
    """Less log loss towards the targets, plus ridge / 2 times the squares of `rows`."""
    count = float(times.sum())
    probability = float(np.clip(times @ target / count, 1e-4, 1 - 1e-4))
    variance = probability * (1 - probability)
    information = variance * design.gather(times, len(rows))
    scale = 1 / np.sqrt(information[:, None] + ridge)  # (values, rank + 1)
    base_scale = 1 / np.sqrt(variance * count)

    def objective(scaled: Floats) -> tuple[float, Floats]:
        at = (scaled[:-1].reshape(rows.shape) * scale).astype(np.float32)
        without_base, sums = design.scores(at)
        logits = without_base + scaled[-1] * base_scale
        softplus, probability = _softplus(logits)
        residual = times * (probability - target)
        value = (
            times @ (softplus.astype(np.float64) - target * logits)
            + 0.5 * (ridge * at.astype(np.float64) ** 2).sum()
        )
        slope = (design.gradient(at, sums, residual) + ridge * at) * scale
        return float(value), np.append(slope.ravel(), residual.sum() * base_scale)

    start = np.append((rows / scale).ravel(), base / base_scale)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 8})
    return (found.x[:-1].reshape(rows.shape) * scale).astype(np.float32), float(found.x[-1] * base_scale)
