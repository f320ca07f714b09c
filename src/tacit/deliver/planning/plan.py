"""A plan for one request: the law to choose by, what it spends, and what that should gain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.deliver.planning.ladder import top_gains, worth_spending
from tacit.deliver.planning.prior import Prior, checked_public, scenarios
from tacit.errors import BadInput
from tacit.privacy.choice.choice import Choice
from tacit.privacy.choice.optimal import optimal_floors
from tacit.privacy.choice.prior import epsilon_min
from tacit.privacy.choice.ranked import TopChoice
from tacit.privacy.randomness import Words

Floats = NDArray[np.float64]


class Method(expect.Choice):
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

    law: Choice
    epsilon_spent: float
    kept: int
    top: int | None
    forecast_gain: float
    epsilon: float
    public: tuple[float, ...]
    prior: Prior

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
        return max(0.0, optimal_floors(draws, self.epsilon).gain_bound)

    def pmf(self, scores: ArrayLike) -> Floats:
        return self.law.pmf(scores)

    def choose(self, scores: ArrayLike, words: Words) -> NDArray[np.int64]:
        """The candidate for each row of private scores (n, candidates), in public order."""
        return self.law.choose(scores, words)


def plan_choice(
    public: ArrayLike, prior: Prior, epsilon: expect.Number, method: Method | str = Method.TRUNC
) -> ChoicePlan:
    """Plan one request from its public scores, best first.

    >>> from tacit.deliver.planning.prior import Spread
    >>> plan = plan_choice([3.0, 2.5, 2.4, 0.3], Spread(0.3), epsilon=3)
    >>> plan.kept, plan.top, plan.epsilon_spent
    (3, 1, 3.0)
    >>> plan_choice([3.0, 1.0], Spread(0.3), epsilon=1).epsilon_spent
    0.0
    """
    if not hasattr(prior, "strata"):
        raise BadInput(f"expected a prior of the private scores, such as Spread(), got {prior!r}")
    scores, method = checked_public(public), Method(method)
    asked = expect.positive("epsilon", epsilon)
    spent = float(asked)
    if expect.exact("epsilon", spent) < asked:  # read back as a decimal it would be too little
        spent = math.nextafter(spent, math.inf)
    count = len(scores)

    def planned(law: Choice, price: float, kept: int, top: int | None, gain: float) -> ChoicePlan:
        return ChoicePlan(law, price, kept, top, gain, spent, tuple(scores.tolist()), prior)

    worth = float(worth_spending(scores, prior))
    if method is Method.FLOORS:
        draws = scenarios(scores, prior)
        if spent > epsilon_min(draws):
            best = optimal_floors(draws, asked)
            if best.gain > worth:
                floors = best.mechanism()
                return planned(floors, spent, sum(n > 0 for n in floors.numerators), None, best.gain)
    else:
        gains = top_gains(scores[None], prior, (spent,))[0, 0]
        if method is not Method.TRUNC:
            gains[:-1] = -np.inf
        if method is Method.RR:
            gains[:, 1:] = -np.inf
        kept, top = (place + 1 for place in divmod(int(np.argmax(gains)), count))
        if gains[kept - 1, top - 1] > worth and top < kept:
            law = TopChoice.for_epsilon(asked, count, kept, top)
            return planned(law, spent, kept, top, float(gains[kept - 1, top - 1]))
    return planned(TopChoice.public_best(count), 0.0, 1, 1, 0.0)
