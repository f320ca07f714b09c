"""Laws of independent factors: a private score is the public one times a factor of mean one.

Each candidate meets every one of `SCENARIOS` equally likely strata of its factor's law once, and a stratum is
represented by its mean: so means are kept, and spreads are a little below the law's, never above. Scenarios
come in mirrored pairs, and their order is drawn from a fixed stream: one request, one plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tacit import expect
from tacit.arrays import Floats
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.choice import as_numbers
from tacit.privacy.statement import PrivacyStatement

SCENARIOS = 1024
MOST_SIGMA, MOST_SCALE, MOST_TIMES = 10.0, 0.95, 1000.0


class IndependentFactors(ABC):
    """What laws of independent factors share: scores are public scores times factors from their strata."""

    @abstractmethod
    def strata(self, candidates: int, count: int = SCENARIOS) -> Floats:
        """Means of the equally likely strata of each candidate's factor, rising: (count, candidates)."""

    @property
    def alike(self) -> bool:
        """Whether all candidates have the same law."""
        return True

    def scores(self, public: Floats, count: int = SCENARIOS) -> Floats:
        factor = _factors(self, public.shape[1], count)
        return np.ascontiguousarray(public.T)[:, :, None] * factor[:, None]

    def deviation(self, candidates: int) -> float:
        return _deviation(self, 1 if self.alike else candidates)  # where all are alike, one tells it


@dataclass(frozen=True)
class Spread(IndependentFactors):
    """Factors are lognormal: exp(sigma z - sigma^2 / 2), independent; sigma for all, or one per candidate.

    The default assumes that a person's liking differs from the average by a factor of e or more for about a
    third of all ads. Where people differ less it risks something: with a true sigma of .1, choices at the
    default were worth up to 6% less than the public best (docs/private_choice.md has the table); where they
    differ more, part of what could be won is left.

    A plan made with a sigma at most the true one has, in expectation, at least the score of the public best.
    For what a plan by floors (or by trunc) reaches is the largest of some linear functions of the scores, so it
    is convex in them, and a larger spread around the same means can only raise it.

    What counts is how candidates of one request differ. A factor that all of them share (a person who clicks a
    lot) moves no ranking: counted into sigma it would overstate the spread, which is not safe.
    """

    sigma: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.sigma, Sequence | np.ndarray) and not isinstance(self.sigma, str):
            sigma = tuple(float(expect.at_least_zero("every sigma", one)) for one in self.sigma)
            if not sigma:
                raise BadInput("expected sigma, or one for each candidate, got an empty list")
            object.__setattr__(self, "sigma", sigma)
        else:
            object.__setattr__(self, "sigma", float(expect.at_least_zero("sigma", self.sigma)))
        if np.max(np.asarray(self.sigma), initial=0.0) > MOST_SIGMA:
            raise BadInput(f"expected sigma <= {MOST_SIGMA:g}, got more")

    def __str__(self) -> str:
        return f"factors lognormal with sigma {_words(self.sigma)}"

    @property
    def alike(self) -> bool:
        return isinstance(self.sigma, float)

    def strata(self, candidates: int, count: int = SCENARIOS) -> Floats:
        sigmas = np.atleast_1d(np.asarray(self.sigma))
        if sigmas.shape not in ((1,), (candidates,)):
            raise BadInput(f"expected one sigma, or one for each of {candidates} candidates, got {len(sigmas)}")
        return np.broadcast_to(_lognormal_strata(sigmas, count), (count, candidates))


@dataclass(frozen=True)
class HeavyTails(IndependentFactors):
    """Factors are log-Laplace: a few are far larger, or far smaller, than lognormal ones of the same middle.

    ln(factor) has density e^(-|x| / scale) / (2 scale), up to the mean of one.
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", float(expect.positive("scale", self.scale)))
        if self.scale > MOST_SCALE:
            raise BadInput(f"expected scale <= {MOST_SCALE:g}, above which the mean is infinite, got more")

    def __str__(self) -> str:
        return f"factors log-Laplace with scale {self.scale:g}"

    def strata(self, candidates: int, count: int = SCENARIOS) -> Floats:
        edge, b = np.linspace(0.0, 1.0, count + 1), self.scale
        # The integral of the quantile function (2q)^b below the median and (2 - 2q)^-b above it.
        low = (2 * np.minimum(edge, 0.5)) ** (1 + b) / (2 * (1 + b))
        high = (1 - (2 - 2 * np.maximum(edge, 0.5)) ** (1 - b)) / (2 * (1 - b))
        return _columns(np.diff(low + high), candidates)


@dataclass(frozen=True)
class FewLiked(IndependentFactors):
    """A share of ads is worth `times` as much to this person as the others are, up to the mean of one."""

    share: float
    times: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", float(expect.probability("share", self.share, one=True)))
        object.__setattr__(self, "times", float(expect.positive("times", self.times)))
        if not 1 < self.times <= MOST_TIMES:
            raise BadInput(f"expected times in 1..{MOST_TIMES:g}, got another")

    def __str__(self) -> str:
        return f"{self.share:.3g} of the ads liked {self.times:g} times as much as the others"

    def strata(self, candidates: int, count: int = SCENARIOS) -> Floats:
        values, weights = np.array([1.0, self.times]), np.array([1 - self.share, self.share])
        return _columns(_step_strata(values, weights, count), candidates)


@dataclass(frozen=True)
class SomeKnown(IndependentFactors):
    """Of a share of ads the device knows something, lognormal with sigma; of the others nothing new."""

    share: float
    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", float(expect.probability("share", self.share, one=True)))
        object.__setattr__(self, "sigma", float(expect.positive("sigma", self.sigma)))
        if self.sigma > MOST_SIGMA:
            raise BadInput(f"expected sigma <= {MOST_SIGMA:g}, got more")

    def __str__(self) -> str:
        return f"{self.share:.3g} of the ads known, lognormal with sigma {self.sigma:g}"

    def strata(self, candidates: int, count: int = SCENARIOS) -> Floats:
        known = round(self.share * count)
        own = _lognormal_strata(np.array([self.sigma]), known)[:, 0] if known else np.ones(0)
        return _columns(np.sort(np.r_[own, np.ones(count - known)]), candidates)


@dataclass(frozen=True)
class ObservedRatios(IndependentFactors):
    """Factors follow ratios private / public that were seen elsewhere; they are scaled to a mean of one.

    `weights` say how often each was seen; without them each was once. Ratios of people are private data:
    `statement` is the promise under which they were released, or says in words why they are public. As for
    `Spread`, what all candidates of a request share should be divided out. Two are the same law where ratios
    and weights are, whatever was promised of them.
    """

    values: tuple[float, ...]
    statement: PrivacyStatement | str = field(compare=False)
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.statement, PrivacyStatement) and not (
            isinstance(self.statement, str) and self.statement.strip()
        ):
            raise BadInput("expected the statement under which the ratios were released, got none")
        values = as_numbers("ratios", self.values)
        if values.ndim != 1 or not values.size:
            raise BadInput(f"expected a list of ratios, got numbers of shape {values.shape}")
        if not np.isfinite(values).all() or values.min() < 0 or not values.max() > 0:
            raise BadInput("expected finite ratios >= 0, not all 0, got others")
        order = np.argsort(values, kind="stable")
        object.__setattr__(self, "values", tuple(values[order].tolist()))
        if self.weights is not None:
            weights = as_numbers("weights of ratios", self.weights)
            if weights.shape != values.shape:
                raise BadInput(f"expected a weight for each of {len(values)} ratios, got {weights.shape}")
            if not np.isfinite(weights).all() or weights.min() < 0 or not (weights * values).sum() > 0:
                raise BadInput("expected finite weights >= 0, not all on ratios of 0, got others")
            object.__setattr__(self, "weights", tuple(weights[order].tolist()))

    def __str__(self) -> str:
        return f"{len(self.values)} ratios that were released"

    def strata(self, candidates: int, count: int = SCENARIOS) -> Floats:
        weights = np.ones(len(self.values)) if self.weights is None else np.array(self.weights)
        return _columns(_step_strata(np.array(self.values), weights / weights.sum(), count), candidates)


def factors(prior: IndependentFactors, candidates: int, count: int = SCENARIOS) -> Floats:
    """private / public in each scenario, (scenarios, candidates); every column has mean one."""
    return _factors(prior, candidates, count).T


def factors_at(prior: IndependentFactors, place: int, count: int) -> Floats:
    """private / public of the candidate at one place of a menu in each scenario, (count,), for a law that is
    the same for all places: what `factors` has there, whatever the number of candidates."""
    drawn: Floats = prior.strata(1, count)[_order(place, count), 0]
    return drawn


@lru_cache(maxsize=2048)
def _factors(prior: IndependentFactors, candidates: int, count: int) -> Floats:
    """(candidates, count)"""
    strata = prior.strata(candidates, count)
    drawn = np.ascontiguousarray(np.stack([strata[_order(place, count), place] for place in range(candidates)]))
    drawn.setflags(write=False)
    return drawn


@lru_cache(maxsize=1024)
def _deviation(prior: IndependentFactors, candidates: int) -> float:
    return float(_factors(prior, candidates, SCENARIOS).std())


@lru_cache(maxsize=8192)
def _order(candidate: int, count: int) -> NDArray[np.int64]:
    """In which scenario a candidate meets which stratum: scenario s and its mirror image s + count / 2."""
    half = count // 2
    words = Simulation(f"planning scenarios, candidate {candidate}").words(2 * half)
    pair = np.argsort(words[:half], kind="stable")
    first = np.where(words[half:] >> np.uint64(63), pair, count - 1 - pair)
    middle = np.full(count % 2, half, np.int64)  # its own image
    return np.concatenate([first, middle, count - 1 - first])


def _lognormal_strata(sigmas: Floats, count: int) -> Floats:
    """(count, sigmas)"""
    edges = ndtri(np.linspace(0.0, 1.0, count + 1))[:, None]  # from -inf to inf
    # E[factor; z below an edge] is the normal's mass below the edge less sigma.
    means: Floats = count * np.diff(ndtr(edges - sigmas), axis=0)
    return means


def _step_strata(values: Floats, weights: Floats, count: int) -> Floats:
    """Of a law of rising values with weights that sum to one: means of its strata, scaled to a mean of one."""
    # The sum of the smallest share q of all values, at the edges of the strata, is linear between values.
    shares = np.r_[0.0, np.cumsum(weights)]
    shares /= shares[-1]
    sums = np.interp(np.linspace(0.0, 1.0, count + 1), shares, np.r_[0.0, np.cumsum(weights * values)])
    means: Floats = count * np.diff(sums) / sums[-1]
    return means


def _columns(strata: Floats, candidates: int) -> Floats:
    """The same strata for every candidate, scaled to a mean of one."""
    return np.broadcast_to((strata / strata.mean())[:, None], (len(strata), candidates))


def _words(sigma: float | tuple[float, ...]) -> str:
    return f"{sigma:g}" if isinstance(sigma, float) else ", ".join(f"{each:g}" for each in sigma)
