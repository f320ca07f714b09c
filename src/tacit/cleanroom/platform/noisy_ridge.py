"""Effects of a statistic's cells and features: a ridge logistic fit from one noisy sum of labels.

`train.statistic.fit` states the estimate. Here every row counts once, so that a coordinate's information j is
its spread too: with noise variance n the sums tell S - sum p phi = j w + N(0, j + n) of an effect w. As the
noise grows all effects shrink to zero, and what stays is the offset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.train.statistic.fit import fit_sums, noisy_ridge

LEAST_SHARE = 0.05  # of a guessed variance: moments may come out negative, a variance may not
FIT_STEPS = 100  # of L-BFGS; in scaled coordinates most fits end before 50


@dataclass(frozen=True, eq=False)
class StatisticInputs:
    """What the statistic sums up: one-hot cells, each worth `cell_weight`, then features of norm at most 1."""

    cells: NDArray[np.int32]  # (n, indices)
    cell_count: int
    cell_weight: float
    features: NDArray[np.float32]  # (n, q)

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def width(self) -> int:
        return self.cell_count + int(self.features.shape[1])

    def scores(self, effects: Floats) -> Floats:
        """(n,): phi_i . effects."""
        by_cell = (self.cell_weight * effects[: self.cell_count])[self.cells].sum(axis=1)
        found: Floats = by_cell + self.features @ effects[self.cell_count :]
        return found

    def sums(self, weights: Floats) -> Floats:
        """(width,): the sum over rows of weight times phi."""
        return self._sum_by_effect(weights, self.cell_weight, self.features)

    def squares(self, weights: Floats) -> Floats:
        """(width,): the same of phi's squares."""
        return self._sum_by_effect(weights, self.cell_weight**2, self.features**2)

    def _sum_by_effect(self, weights: Floats, cell_weight: float, features: NDArray[np.float32]) -> Floats:
        by_cell = np.zeros(self.cell_count)
        for cell in self.cells.T:
            by_cell += np.bincount(cell, weights, minlength=self.cell_count)
        return np.concatenate([cell_weight * by_cell, weights @ features])


@dataclass(frozen=True)
class EffectPrior:
    """Guesses of the variance of what the head adds to a logit: by the bias, a field's value, all features.

    The last two are corrected by what the sums themselves say, field by field, as far as their noise lets them.
    """

    bias: float = 4.0
    value: float = 0.05
    features: float = 0.1

    def __post_init__(self) -> None:
        for name in ("bias", "value", "features"):
            expect.positive(name, getattr(self, name))


def fit_effects(
    sums: Floats,
    noise_stddev: float,
    phi: StatisticInputs,
    offsets: Floats,
    *,
    bias: int,
    prior: EffectPrior | None = None,
) -> Floats:
    """(width,) effects. Labels come in through `sums` alone; `bias` is the cell that every row falls into."""
    prior = prior or EffectPrior()
    if sums.shape != (phi.width,) or not np.isfinite(sums).all():
        raise BadInput(f"expected {phi.width} finite sums, got shape {sums.shape} or others")
    start = _first_bias(sums, noise_stddev, phi, offsets, bias, prior)
    shifted = offsets + phi.cell_weight * start
    probability = expit(shifted)
    information = np.maximum(phi.squares(probability * (1 - probability)), 1e-9)  # a cell may have no row
    surplus = sums - phi.sums(probability)  # j w + N(0, j + n) in each coordinate
    variance = _learn_variances(
        _guess_variances(phi, prior, bias), _groups(phi, bias), information, surplus, noise_stddev**2
    )
    ridge = noisy_ridge(information, information, noise_stddev**2, variance)
    origin = np.zeros(phi.width)
    origin[bias] = start
    return fit_sums(
        sums,
        ridge,
        logits=lambda effects: offsets + phi.scores(effects),
        gather=phi.sums,
        origin=origin,
        scale=1 / np.sqrt(information + ridge),
        steps=FIT_STEPS,
        memory=10,
    )


def _guess_variances(phi: StatisticInputs, prior: EffectPrior, bias: int) -> Floats:
    """Of each effect: what it adds to a logit, over the square of what it is multiplied with."""
    variance = np.full(phi.width, prior.value / phi.cell_weight**2)
    variance[bias] = prior.bias / phi.cell_weight**2
    if phi.features.shape[1]:
        # One variance for all directions, as for the adapter that they are directions of.
        mean_square = float(np.einsum("nq,nq->", phi.features, phi.features, dtype=np.float64)) / len(phi)
        variance[phi.cell_count :] = prior.features / max(mean_square, 1e-9)
    return variance


def _groups(phi: StatisticInputs, bias: int) -> NDArray[np.int64]:
    """Which coordinates share a variance: a field's cells, or the features; -1 is the bias, on its own."""
    group = np.full(phi.width, phi.cells.shape[1], np.int64)
    for field, cells in enumerate(phi.cells.T):
        group[np.unique(cells)] = field
    group[bias] = -1
    return group


def _learn_variances(
    guess: Floats, group: NDArray[np.int64], j: Floats, surplus: Floats, noise: float
) -> Floats:
    """The guess g, of standard deviation g, joined with what moments say of each group's variance t.

    E[surplus^2] = j^2 t + v with v = j + noise, and surplus^2 has variance 2 v^2 where t is small, so that
    sum j^2 (surplus^2 - v) / v^2 / k is unbiased for t with variance 2 / k, k = sum (j^2 / v)^2.
    """
    variance, v = guess.copy(), j + noise
    for each in np.unique(group[group >= 0]):
        of = group == each
        k = float(((j[of] ** 2 / v[of]) ** 2).sum())
        # k times the moments' answer
        told = float((j[of] ** 2 * (surplus[of] ** 2 - v[of]) / v[of] ** 2).sum())
        first = float(guess[of][0])
        variance[of] = max((1 / first + told / 2) / (1 / first**2 + k / 2), LEAST_SHARE * first)
    return variance


def _first_bias(
    sums: Floats, noise_stddev: float, phi: StatisticInputs, offsets: Floats, bias: int, prior: EffectPrior
) -> float:
    """The effect of the bias alone, by Newton's method: where the information is to be measured.

    A model from elsewhere may promise several times too much, and its p (1 - p) would be as much too large.
    """
    weight, variance, at = phi.cell_weight, prior.bias / phi.cell_weight**2, 0.0
    for _ in range(30):
        probability = expit(offsets + weight * at)
        information = weight**2 * float((probability * (1 - probability)).sum())
        ridge = (information + noise_stddev**2) / (max(information, 1e-9) * variance)
        slope = weight * float(probability.sum()) - float(sums[bias]) + ridge * at
        move = slope / (information + ridge)
        at -= float(np.clip(move, -1 / weight, 1 / weight))
        if abs(move) < 1e-9:
            break
    return at
