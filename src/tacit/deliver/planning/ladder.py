"""What trunc(k, m) gains over the public best, for every k and m, at one epsilon after another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.deliver.planning.prior import SCENARIOS, Prior, checked_public, factors
from tacit.errors import BadInput
from tacit.privacy.choice.top_plan import best_sums, trunc_values

Floats = NDArray[np.float64]

WORTH = 0.03
"""Scenarios err. Over 3,400 plans their forecast was at most 0.024 of the factors' deviation, times the public
best, above the integral that they stand for. Nothing is spent on forecasts below a little more than that."""

ROUNDING = 1e-9
"""And a share of the public best that rounding cannot reach, where the prior has no spread."""

AT_ONCE = 2**16
"""Scenarios x candidates x requests that are sorted together: they fit a cache."""


def top_gains(
    public: Floats, prior: Prior, epsilons: Sequence[float], certain: NDArray[np.bool_] | None = None
) -> Floats:
    """Expected gains over the public best, [request, epsilon, k - 1, m - 1]; -inf where m > k.

    Public scores (requests, candidates), best first. Where `certain`, the private score is the public one.
    """
    count, size = public.shape
    factor = np.ascontiguousarray(factors(prior, size).T)[:, None]  # (candidates, 1, scenarios)
    sums = np.empty((count, size, size))
    step = max(1, AT_ONCE // (SCENARIOS * size))
    for start in range(0, count, step):
        some = slice(start, start + step)
        known = np.ascontiguousarray(public[some].T)[:, :, None]  # (candidates, requests, 1)
        score = known * factor  # (candidates, requests, scenarios)
        if certain is not None:
            np.copyto(score, known, where=np.ascontiguousarray(certain[some].T)[:, :, None])
        sums[some] = best_sums(score)
    inverse_odds = np.exp(-np.asarray(epsilons, dtype=np.float64))[:, None, None]
    values = trunc_values(sums[:, None], inverse_odds)  # (requests, epsilons, k, m)
    return values - sums[:, None, :1, :1]


def worth_spending(public: Floats, prior: Prior) -> Floats:
    """The least forecast gain that is told apart from none; public scores (..., candidates)."""
    share = max(ROUNDING, WORTH * float(factors(prior, public.shape[-1]).std()))
    return np.asarray(share * public[..., 0])


def forecast_gains(public: ArrayLike, prior: Prior, epsilons: Sequence[float]) -> Floats:
    """For one request: what the best trunc(k, m) should gain at each epsilon; 0 where nothing is spent."""
    scores = checked_public(public)
    best = top_gains(scores[None], prior, checked_ladder(epsilons))[0].max(axis=(1, 2))
    return np.where(best > worth_spending(scores, prior), best, 0.0)


def checked_ladder(epsilons: Sequence[float]) -> tuple[float, ...]:
    """Epsilons to choose from: positive, rising."""
    ladder = tuple(float(expect.positive("every epsilon of the ladder", one)) for one in epsilons)
    if not ladder or any(low >= high for low, high in pairwise(ladder)):
        raise BadInput("expected a rising ladder of epsilons, got another")
    return ladder
