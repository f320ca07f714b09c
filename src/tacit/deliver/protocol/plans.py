"""Plans for one request: the law to choose by, what it spends, what it should gain, and an upper bound.

A plan is a function of public data alone, so that anybody can make it, and a plan can be cached and used for
the next request with the same rounded public scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats
from tacit.deliver.protocol.forecasts import check_public_scores, least_gain, scenarios, top_gains
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, ScorePrior, check_prior
from tacit.display import brief
from tacit.privacy.choice.choice import ChoiceLaw, epsilon_min
from tacit.privacy.choice.optimal_floors import best_floors
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.randomness import WordSource


class PlanMethod(expect.Choice):
    """Which laws a plan may use."""

    TRUNC = "trunc"
    """Randomized response for the private best m of the public best k, both planned."""
    TOP = "top"
    """All candidates are kept; m is planned."""
    RR = "rr"
    """k-ary randomized response: all are kept, one is favoured."""
    FLOORS = "floors"
    """The optimal law for the scenarios. Slower (tens of ms); worth it where spreads differ by candidate."""


@dataclass(frozen=True, eq=False)
class ChoicePlan:
    """How one request will be chosen. Where nothing can be won it is the public best, and spends nothing.

    Guarantee:  `choose` is pure epsilon-LDP with epsilon = `epsilon_spent`.
    Neighbours: any two vectors of private scores of this request.
    Assumes:    public scores and prior are public: a plan is made of them alone, so that making it, rounding
                its inputs or keeping it for later tells nothing. One choice per plan is paid for.
    Source:     the laws' own guarantees; ours (docs/optimal_mechanism.md) for the bound.

    kept, top      candidates that can be chosen at all, and how many of them are favoured (None: by floors)
    forecast_gain  expected score over the public best's, under the prior's scenarios; a little too high, since
                   the law was picked on the same scenarios
    """

    law: ChoiceLaw
    epsilon_spent: float
    kept: int
    top: int | None
    forecast_gain: float
    epsilon: float
    public: tuple[float, ...]
    prior: ScorePrior

    @property
    def skipped(self) -> bool:
        """Whether it leaves the private scores alone."""
        return self.epsilon_spent == 0

    @cached_property
    def upper_bound(self) -> float:
        """What no epsilon-LDP choice gains over the public best in these scenarios, by certificate.

        Proved when it is asked for, which takes tens of milliseconds.
        """
        draws = scenarios(self.public, self.prior)
        if self.epsilon <= epsilon_min(draws):
            return 0.0
        return max(0.0, best_floors(draws, self.epsilon).gain_bound)

    def pmf(self, scores: ArrayLike) -> Floats:
        return self.law.pmf(scores)

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The candidate for each row of private scores (n, candidates), in public order."""
        return self.law.choose(scores, words)


def plan_choice(
    public: ArrayLike,
    prior: ScorePrior | None = None,
    epsilon: expect.Number = 2,
    method: PlanMethod | str = PlanMethod.TRUNC,
) -> ChoicePlan:
    """Plan one request from its public scores, best first; without a prior by the default, `Spread()`.

    >>> from tacit.deliver import Spread
    >>> plan = plan_choice([3.0, 2.5, 2.4, 0.3], Spread(0.3), epsilon=3)
    >>> plan.kept, plan.top, plan.epsilon_spent
    (3, 1, 3.0)
    >>> plan_choice([3.0, 1.0], Spread(0.3), epsilon=1).epsilon_spent
    0.0
    """
    prior = DEFAULT_PRIOR if prior is None else check_prior(prior)
    scores, method = check_public_scores(public), PlanMethod(method)
    asked = expect.positive("epsilon", epsilon)
    spent = float(asked)
    if expect.exact("epsilon", spent) < asked:  # read back as a decimal it would be too little
        spent = math.nextafter(spent, math.inf)
    count = len(scores)

    def planned(law: ChoiceLaw, price: float, kept: int, top: int | None, gain: float) -> ChoicePlan:
        return ChoicePlan(law, price, kept, top, gain, spent, tuple(scores.tolist()), prior)

    worth = float(least_gain(scores, prior))
    if method is PlanMethod.FLOORS:
        draws = scenarios(scores, prior)
        if spent > epsilon_min(draws):
            best = best_floors(draws, asked)
            if best.gain > worth:
                floors = best.mechanism()
                return planned(floors, spent, sum(n > 0 for n in floors.numerators), None, best.gain)
    else:
        gains = top_gains(scores[None], prior, (spent,))[0, 0]
        if method is not PlanMethod.TRUNC:
            gains[:-1] = -np.inf
        if method is PlanMethod.RR:
            gains[:, 1:] = -np.inf
        kept, top = (place + 1 for place in divmod(int(np.argmax(gains)), count))
        if gains[kept - 1, top - 1] > worth and top < kept:
            law = TopChoice.for_epsilon(asked, count, kept, top)
            return planned(law, spent, kept, top, float(gains[kept - 1, top - 1]))
    return planned(TopChoice.public_best(count), 0.0, 1, 1, 0.0)


STEPS = 256
"""Rivals' scores count as whole multiples of 1/256 of the public best's, rounded down."""


@lru_cache(maxsize=256)
def _written(epsilon: float) -> Fraction:
    return expect.positive("epsilon", epsilon)


class Planner:
    """Plans with one prior and method, and remembers the last `most` of them.

    Without a prior of its own it plans by the one that stands in each menu (`by_menu`), and by the default
    where there is no menu.

    Rounding is harmless. To privacy: the key and the plan are functions of public data, and a law keeps its
    epsilon whatever it was planned on. To the forecast: with rivals rounded down, a law's expected gain is at
    least what was forecast, since what it reaches only rises with any score; and at most 1/256 of the public
    best (times the mean of the largest factor) is missed.
    """

    def __init__(
        self, prior: ScorePrior | None = None, method: PlanMethod | str = PlanMethod.TRUNC, *, most: int = 4096
    ) -> None:
        self.by_menu = prior is None
        self.prior = DEFAULT_PRIOR if prior is None else check_prior(prior)
        self.method = PlanMethod(method)
        self._kept = lru_cache(maxsize=expect.whole("most", most, at_least=1))(self._rounded)

    def __repr__(self) -> str:
        return brief(self, prior=self.prior, method=str(self.method), kept=self.kept)

    def plan(self, public: ArrayLike, epsilon: expect.Number) -> ChoicePlan:
        """The plan for these public scores: a kept one where their rounded ratios were met before."""
        scores = check_public_scores(public)
        best = float(scores[0])
        ratios = scores / best if best > 0 else np.zeros_like(scores)
        steps = (ratios * STEPS).astype(np.int64)  # cut off, so rounded down
        # A double is written out to be read as an exact number: too slow for each request anew.
        exact = _written(epsilon) if isinstance(epsilon, float) else expect.positive("epsilon", epsilon)
        kept = self._kept(steps.tobytes(), exact)
        return replace(kept, forecast_gain=best * kept.forecast_gain, public=tuple(scores.tolist()))

    def public_best(self, public: ArrayLike) -> ChoicePlan:
        """The plan that spends nothing."""
        scores = check_public_scores(public)
        law = TopChoice.public_best(len(scores))
        return ChoicePlan(law, 0.0, 1, 1, 0.0, 0.0, tuple(scores.tolist()), self.prior)

    @property
    def kept(self) -> int:
        """How many plans are remembered."""
        return self._kept.cache_info().currsize

    def _rounded(self, steps: bytes, epsilon: Fraction) -> ChoicePlan:
        return plan_choice(np.frombuffer(steps, np.int64) / STEPS, self.prior, epsilon, self.method)
