"""Which trunc(k, m) to use: top-m randomized response on the public best k, planned from a prior's draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.choice.prior import checked_draws
from tacit.privacy.choice.ranked import TopChoice

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TopPlan:
    """Keep the public best `kept`, favour the private best `top` of them; `value` is the expected score."""

    candidates: int
    kept: int
    top: int
    value: float

    @property
    def personal(self) -> bool:
        """Whether it looks at the private scores at all; if not, it spends nothing."""
        return self.top < self.kept

    def mechanism(self, epsilon: expect.Number) -> TopChoice:
        """The choice itself, in whole numbers."""
        if not self.personal:
            return TopChoice(self.candidates, self.kept, self.top, 2**64 // self.kept)
        return TopChoice.for_epsilon(epsilon, self.candidates, self.kept, self.top)


def best_top_plan(draws: ArrayLike, epsilon: expect.Number) -> TopPlan:
    """The best (k, m) for these draws (draws, candidates), by exact expectation; ties go to the smaller k, m.

    For k = 1 it is the public best. Planned and measured on the same draws, `value` is a little too high.
    """
    columns = np.ascontiguousarray(checked_draws(draws).T)  # (candidates, draws)
    values = trunc_values(best_sums(columns), _inverse_odds(epsilon))
    kept, top = divmod(int(np.argmax(values)), len(columns))
    return TopPlan(len(columns), kept + 1, top + 1, float(values[kept, top]))


def best_sums(scores: Floats) -> Floats:
    """[..., k - 1, m - 1]: the expected sum of the best m scores among the public best k; of all k where m > k.

    Scores (candidates, draws) of one request, or (candidates, requests, draws), in public order. One pass: each
    further candidate is inserted into the sorted scores of those before it.
    """
    size, *others, _ = scores.shape
    ordered = np.full_like(scores, -np.inf)  # best, second best, ...
    means = np.zeros((*others, size, size))
    for kept, score in enumerate(scores, start=1):
        pushed = np.minimum(ordered[: kept - 1], score)  # what each rank passes on to the next
        np.maximum(ordered[0], score, out=ordered[0])
        np.maximum(ordered[1:kept], pushed, out=ordered[1:kept])
        means[..., kept - 1, :kept] = ordered[:kept].mean(axis=-1).T
    sums: Floats = np.cumsum(means, axis=-1)
    return sums


def trunc_values(sums: Floats, inverse_odds: float | Floats) -> Floats:
    """The expected score of trunc(k, m) for every k and m, from `best_sums`; -inf where m > k.

    A favoured candidate weighs 1, another kept one e^-epsilon (`inverse_odds`): no epsilon overflows.
    """
    places = np.arange(1, sums.shape[-1] + 1)
    kept, top = places[:, None], places
    favoured = 1 - inverse_odds
    values = (inverse_odds * sums[..., -1:] + favoured * sums) / (inverse_odds * kept + favoured * top)
    return np.where(top <= kept, values, -np.inf)


def ordered_means(draws: ArrayLike) -> Floats:
    """The expected largest, second largest, ... private score, (candidates,)."""
    means: Floats = np.sort(checked_draws(draws), axis=1)[:, ::-1].mean(axis=0)
    return means


def best_exchangeable_plan(means: ArrayLike, epsilon: expect.Number) -> TopPlan:
    """The optimum over all epsilon-LDP choices where candidates are alike, from the expected ordered scores.

    It favours the k-th best while its expected score is above the value reached without it.
    """
    ordered = np.asarray(means, dtype=np.float64)
    if ordered.ndim != 1 or not ordered.size or not np.isfinite(ordered).all() or (np.diff(ordered) > 0).any():
        raise BadInput(
            f"expected finite means from the largest down, got shape {ordered.shape} or another order"
        )
    inverse_odds = _inverse_odds(epsilon)
    favoured = 1 - inverse_odds
    total, size, top = inverse_odds * float(ordered.sum()), inverse_odds * len(ordered), 0
    for mean in ordered.tolist():
        if top and mean <= total / size:
            break
        total, size, top = total + favoured * mean, size + favoured, top + 1
    return TopPlan(len(ordered), len(ordered), top, total / size)


def _inverse_odds(epsilon: expect.Number) -> float:
    """e^-epsilon; from 700 on doubles see no difference."""
    return math.exp(-min(float(expect.positive("epsilon", epsilon)), 700.0))
