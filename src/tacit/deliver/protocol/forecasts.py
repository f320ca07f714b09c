"""Public forecasts of what a private choice gains at each epsilon, from public scores and a prior.

On the prior's scenarios (`priors`), the gain over the public best of trunc(k, m), randomized response for the
private best m of the public best k, is computed for every k and m at each epsilon of a ladder.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats
from tacit.deliver.protocol.factor_laws import SCENARIOS
from tacit.deliver.protocol.priors import ScorePrior
from tacit.errors import BadInput
from tacit.privacy.choice.top_choice import best_sums, trunc_values


def scenarios(public: ArrayLike, prior: ScorePrior) -> Floats:
    """Private scores as they may be, for these public scores: (SCENARIOS, candidates), equally likely."""
    scores = check_public_scores(public)
    return np.ascontiguousarray(prior.scores(scores[None])[:, 0].T)


def check_public_scores(public: ArrayLike) -> Floats:
    """Public scores as doubles, refused unless finite, at least 0 and from the largest down."""
    try:
        given = np.asarray(public)
    except ValueError:
        raise BadInput("expected the public scores of one request, got several lists") from None
    if given.ndim != 1 or not given.size or given.dtype.kind not in "fiu":
        raise BadInput(f"expected a list of public scores, got {given.dtype} of shape {given.shape}")
    scores = given.astype(np.float64)
    # All are finite if the ends are and none rises; NaN fails every comparison.
    if not (scores[0] < np.inf and scores[-1] >= 0 and (scores[1:] <= scores[:-1]).all()):
        raise BadInput("expected public scores >= 0 from the largest down, got others")
    return scores


WORTH = 0.04
"""Scenarios err. Over 1,174 plans their forecast was at most 0.031 of the factors' deviation (counted up
to one), times the best rival's public score, above the integral that they stand for. Nothing is spent on
forecasts below a little more than that. Of the rival's score, not of the public best's: where no rival comes
near, little can be won, but what is won is sure, and many such requests add up."""

ROUNDING = 1e-9
"""And a share of the public best that rounding cannot reach, where the prior has no spread."""

AT_ONCE = 2**16
"""Scenarios x candidates x requests that are sorted together: they fit a cache."""


def top_gains(
    public: Floats, prior: ScorePrior, epsilons: Sequence[float], certain: NDArray[np.bool_] | None = None
) -> Floats:
    """Expected gains over the public best, [request, epsilon, k - 1, m - 1]; -inf where m > k.

    Public scores (requests, candidates), best first. Where `certain`, the private score is the public one.
    """
    count, size = public.shape
    sums = np.empty((count, size, size))
    step = max(1, AT_ONCE // (SCENARIOS * size))
    for start in range(0, count, step):
        some = slice(start, start + step)
        score = prior.scores(public[some])  # (candidates, requests, scenarios)
        if certain is not None:
            known = np.ascontiguousarray(public[some].T)[:, :, None]
            np.copyto(score, known, where=np.ascontiguousarray(certain[some].T)[:, :, None])
        sums[some] = best_sums(score)
    inverse_odds = np.exp(-np.asarray(epsilons, dtype=np.float64))[:, None, None]
    values = trunc_values(sums[:, None], inverse_odds)  # (requests, epsilons, k, m)
    return values - sums[:, None, :1, :1]


def least_gain(public: Floats, prior: ScorePrior, slots: int = 1) -> Floats:
    """The least forecast gain, per slot, that is told apart from none; public scores (..., candidates)."""
    size = public.shape[-1]
    rival = public[..., min(slots, size - 1)]
    return np.asarray(np.maximum(ROUNDING * public[..., 0], WORTH * min(1.0, prior.deviation(size)) * rival))


def forecast_gains(public: ArrayLike, prior: ScorePrior, epsilons: Sequence[float]) -> Floats:
    """For one request: what the best trunc(k, m) should gain at each epsilon; 0 where nothing is spent."""
    scores = check_public_scores(public)
    best = top_gains(scores[None], prior, check_ladder(epsilons))[0].max(axis=(1, 2))
    return np.where(best > least_gain(scores, prior), best, 0.0)


def check_ladder(epsilons: Sequence[float]) -> tuple[float, ...]:
    """Epsilons to choose from: positive, rising."""
    epsilons = expect.several("epsilons of the ladder", epsilons)
    ladder = tuple(float(expect.positive("every epsilon of the ladder", one)) for one in epsilons)
    if not ladder or any(low >= high for low, high in pairwise(ladder)):
        raise BadInput("expected a rising ladder of epsilons, got another")
    return ladder
