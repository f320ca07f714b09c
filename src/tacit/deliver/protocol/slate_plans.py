"""Plans for several slots at once: the law of the whole slate, what it spends and what it should gain.

A plan keeps the public best k candidates and favours some sets of them, by overlap with the private best or by
their sums (`privacy/choice/slate_response.py`). Like a plan for one slot it is a function of public data alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.deliver.protocol.forecasts import check_public_scores, least_gain, scenarios
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, ScorePrior, check_prior
from tacit.errors import BadInput
from tacit.privacy.choice.choice import check_scores
from tacit.privacy.choice.slate_response import OverlapSlates, TopSlates, best_overlap, best_top_slates
from tacit.privacy.choice.slates import LEAST_WEIGHT
from tacit.privacy.choice.top_choice import ordered_means
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.randomness import WordSource

MOST_RANKED = 512
"""Slates whose sums are ranked in every scenario; of more, only overlaps are planned."""


@dataclass(frozen=True, eq=False)
class SlatePlan:
    """How the slots of one request will be filled. Where nothing can be won they show the public best.

    Guarantee:  `choose` is pure epsilon-LDP with epsilon = `epsilon_spent`: which set is shown, all of it.
    Neighbours: any two vectors of private scores of this request.
    Assumes:    public scores and prior are public, and the plan is made of them alone; what is shown where
                follows the public order. One choice per plan is paid for.
    Source:     the laws' own guarantees (`OverlapSlates`, `TopSlates`).

    law            over sets of the public best `kept`; None where nothing private is read
    forecast_gain  expected sum of scores over the public best slate's, under the prior's scenarios; a little
                   too high, since the law was picked on the same scenarios
    """

    law: OverlapSlates | TopSlates | None
    slots: int
    epsilon_spent: float
    kept: int
    forecast_gain: float
    epsilon: float
    public: tuple[float, ...]
    prior: ScorePrior

    @property
    def skipped(self) -> bool:
        """Whether it leaves the private scores alone."""
        return self.law is None

    def choose(self, scores: ArrayLike, words: WordSource) -> NDArray[np.int64]:
        """The public ranks on the slate of each row of private scores (n, candidates): (n, slots), rising."""
        given = check_scores(scores, len(self.public), axes=2)
        if self.law is None:
            return np.tile(np.arange(self.slots), (len(given), 1))
        return self.law.choose(given[:, : self.kept], words)


def plan_slate(
    public: ArrayLike, slots: int, prior: ScorePrior | None = None, epsilon: expect.Number = 2
) -> SlatePlan:
    """Plan a slate from a request's public scores, best first; without a prior by the default, `Spread()`.

    Of every number of kept candidates, and of laws by overlap and by sums, the one with the largest forecast.
    What a slate tells the server of the prior, `ReportedRanks(public[: plan.kept], plan.law, counts)` takes.

    >>> plan = plan_slate([3.0, 2.5, 2.4, 2.2, 0.1], slots=2, epsilon=3)
    >>> plan.kept, plan.epsilon_spent
    (4, 3.0)
    >>> plan_slate([3.0, 2.5, 0.01], slots=2, epsilon=1).epsilon_spent
    0.0
    """
    prior = DEFAULT_PRIOR if prior is None else check_prior(prior)
    scores, asked = check_public_scores(public), expect.positive("epsilon", epsilon)
    count = len(scores)
    if expect.whole("slots", slots, at_least=1) > count:
        raise BadInput(f"expected at most as many slots as candidates, {count}, got {slots}")
    spent = float(asked)
    if expect.exact("epsilon", spent) < asked:  # read back as a decimal it would be too little
        spent = math.nextafter(spent, math.inf)
    draws = scenarios(scores, prior)
    base = float(draws[:, :slots].sum(axis=1).mean())
    best: OverlapSlates | TopSlates | None = None
    gain, kept_best = slots * float(least_gain(scores, prior, slots)), slots
    # A law in which fewer words name a slate than are needed for its epsilon is refused: kept stops there.
    most = WHOLE / (LEAST_WEIGHT * math.exp(min(spent, 700.0)))
    for kept in range(slots + 1, count + 1):
        if comb(kept, slots) > most:
            break
        known = draws[:, :kept]
        top, needed, total = best_overlap(ordered_means(known), slots, asked)
        if total - base > gain:
            best = OverlapSlates.for_epsilon(asked, kept, slots, top=top, needed=needed)
            gain, kept_best = total - base, kept
        if comb(kept, slots) <= MOST_RANKED:
            sums = best_top_slates(known, slots, asked)
            if sums.value - base > gain and sums.top < comb(kept, slots):
                best = TopSlates.for_epsilon(asked, kept, slots, favoured=sums.top)
                gain, kept_best = sums.value - base, kept
    known_scores = tuple(scores.tolist())
    if best is None:
        return SlatePlan(None, slots, 0.0, slots, 0.0, spent, known_scores, prior)
    return SlatePlan(best, slots, spent, kept_best, gain, spent, known_scores, prior)
