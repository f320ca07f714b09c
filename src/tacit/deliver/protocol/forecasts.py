"""Public forecasts of what a private choice gains: a prior of private scores, and gains per epsilon.

A private score is the public score times a factor of mean one. A scenario has one factor per candidate. Over
all scenarios each candidate meets every one of `SCENARIOS` equally likely strata of the factor's law once,
and a stratum is represented by its mean: so means are kept, and spreads are a little below the law's, never
above. Scenarios come in mirrored pairs, and their order is drawn from a fixed stream: one request, one plan.

On these scenarios, the gain over the public best of trunc(k, m), randomized response for the private best m
of the public best k, is computed for every k and m at each epsilon of a ladder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from tacit import expect
from tacit.arrays import Floats
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.top_choice import best_sums, trunc_values
from tacit.privacy.statement import PrivacyStatement

SCENARIOS = 1024
LOW_SPREAD = 0.3
"""The default: little that only the device knows. Too low a spread is safe, too high a one is not."""


class ScorePrior(Protocol):
    """A public law of the factors private / public."""

    def strata(self, candidates: int) -> Floats:
        """Means of the equally likely strata of each candidate's factor, rising: (SCENARIOS, candidates)."""


@dataclass(frozen=True)
class Spread:
    """Factors are lognormal: exp(sigma z - sigma^2 / 2), independent; sigma for all, or one per candidate.

    A plan made with a sigma at most the true one has, in expectation, at least the score of the public best.
    For what a plan by floors (or by trunc) reaches is the largest of some linear functions of the scores, so it
    is convex in them, and a larger spread around the same means can only raise it.

    What counts is how candidates of one request differ. A factor that all of them share (a person who clicks a
    lot) moves no ranking: counted into sigma it would overstate the spread, which is not safe.
    """

    sigma: float | tuple[float, ...] = LOW_SPREAD

    def __post_init__(self) -> None:
        if isinstance(self.sigma, Sequence | np.ndarray) and not isinstance(self.sigma, str):
            sigma = tuple(float(expect.at_least_zero("every sigma", one)) for one in self.sigma)
            object.__setattr__(self, "sigma", sigma)
        else:
            object.__setattr__(self, "sigma", float(expect.at_least_zero("sigma", self.sigma)))
        if np.max(np.asarray(self.sigma), initial=0.0) > 10:
            raise BadInput("expected sigma <= 10, got more")

    def strata(self, candidates: int) -> Floats:
        sigmas = np.atleast_1d(np.asarray(self.sigma))
        if sigmas.shape not in ((1,), (candidates,)):
            raise BadInput(f"expected one sigma, or one for each of {candidates} candidates, got {len(sigmas)}")
        edges = ndtri(np.linspace(0.0, 1.0, SCENARIOS + 1))[:, None]  # from -inf to inf
        # E[factor; z below an edge] is the normal's mass below the edge less sigma.
        means: Floats = SCENARIOS * np.diff(ndtr(edges - sigmas), axis=0)
        return np.broadcast_to(means, (SCENARIOS, candidates))


@dataclass(frozen=True, eq=False)
class ObservedRatios:
    """Factors follow ratios private / public that were seen elsewhere; they are scaled to a mean of one.

    Ratios of people are private data: `statement` is the promise under which they were released, or says in
    words why they are public. As for `Spread`, what all candidates of a request share should be divided out.
    """

    values: tuple[float, ...]
    statement: PrivacyStatement | str

    def __post_init__(self) -> None:
        if not isinstance(self.statement, PrivacyStatement) and not (
            isinstance(self.statement, str) and self.statement.strip()
        ):
            raise BadInput("expected the statement under which the ratios were released, got none")
        values = np.asarray(self.values)
        if values.ndim != 1 or not values.size or values.dtype.kind not in "fiu":
            raise BadInput(f"expected a list of ratios, got {values.dtype} of shape {values.shape}")
        if not np.isfinite(values).all() or values.min() < 0 or not values.max() > 0:
            raise BadInput("expected finite ratios >= 0, not all 0, got others")
        object.__setattr__(self, "values", tuple(np.sort(values.astype(np.float64)).tolist()))

    def strata(self, candidates: int) -> Floats:
        values = np.array(self.values)
        count = len(values)
        # The sum of the smallest share q of all ratios, at the edges of the strata, is linear between values.
        sums = np.interp(
            np.linspace(0.0, count, SCENARIOS + 1), np.arange(count + 1), np.r_[0.0, np.cumsum(values)]
        )
        means = SCENARIOS * np.diff(sums) / sums[-1]
        return np.broadcast_to(means[:, None], (SCENARIOS, candidates))


def scenarios(public: ArrayLike, prior: ScorePrior) -> Floats:
    """Private scores as they may be, for these public scores: (SCENARIOS, candidates), equally likely."""
    scores = check_public_scores(public)
    return np.multiply(scores, factors(prior, len(scores)))


def factors(prior: ScorePrior, candidates: int) -> Floats:
    """private / public in each scenario, (SCENARIOS, candidates); every column has mean one."""
    return _factors(prior, candidates)  # type: ignore[arg-type]  # priors are hashable, which protocols cannot say


@lru_cache(maxsize=512)
def _factors(prior: ScorePrior, candidates: int) -> Floats:
    strata = prior.strata(candidates)
    drawn: Floats = np.take_along_axis(strata, np.column_stack([_order(c) for c in range(candidates)]), axis=0)
    drawn.setflags(write=False)
    return drawn


@lru_cache(maxsize=4096)
def _order(candidate: int) -> NDArray[np.int64]:
    """In which scenario a candidate meets which stratum: scenario s and its mirror image s + SCENARIOS / 2."""
    half = SCENARIOS // 2
    words = Simulation(f"planning scenarios, candidate {candidate}").words(2 * half)
    pair = np.argsort(words[:half], kind="stable")
    first = np.where(words[half:] >> np.uint64(63), pair, SCENARIOS - 1 - pair)
    return np.concatenate([first, SCENARIOS - 1 - first])


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


WORTH = 0.03
"""Scenarios err. Over 3,400 plans their forecast was at most 0.024 of the factors' deviation, times the public
best, above the integral that they stand for. Nothing is spent on forecasts below a little more than that."""

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


def least_gain(public: Floats, prior: ScorePrior) -> Floats:
    """The least forecast gain that is told apart from none; public scores (..., candidates)."""
    share = max(ROUNDING, WORTH * float(factors(prior, public.shape[-1]).std()))
    return np.asarray(share * public[..., 0])


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
