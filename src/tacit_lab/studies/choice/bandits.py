"""Exploration with private scores: it costs no further epsilon, and it cannot save a private bandit's regret.

A law of `privacy.choice` keeps its epsilon for any two vectors of scores. Scores may therefore be whatever a
device makes of its private state: point estimates, upper confidence bounds, or draws from a posterior. For
draws, the chance of a candidate is the law's chance averaged over them; it lies between the law's least and
most, whose ratio is at most e^epsilon, whatever the state was. Each choice still spends its own epsilon of the
person's total.

But a private choice can never stop trying what it knows to be bad. If anyone's best arm may be any of a arms,
an epsilon-LDP choice shows the best with probability e^epsilon / (a - 1 + e^epsilon) at most on average, in
every round: regret grows linearly (Shariff, Sheffet 2018, arXiv 1810.00068; Laro et al. 2023, appendix C).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.choice.choice import ChoiceLaw
from tacit.privacy.randomness import Source


class ExplorationMethod(expect.Choice):
    """How a posterior becomes scores."""

    POINT = "point"
    UPPER = "upper-bound"
    THOMPSON = "thompson"


def exploration_scores(
    means: Floats, deviations: Floats, exploring: ExplorationMethod | str, source: Source, *, width: float = 2.0
) -> Floats:
    """Scores from posterior means and deviations of one shape: as they are, `width` deviations up, or drawn.

    Guarantee:  a choice by these scores spends the epsilon of its law, and exploring spends none besides. None
                is promised for the scores themselves: they are private, and stay on the device.
    Neighbours: any two private states of one device, so any two means and deviations.
    Assumes:    the law keeps its epsilon for any two vectors of scores, as every one of `privacy.choice` does;
                how to explore, and how wide, does not depend on the state; every choice is paid for.
    Source:     mixtures of laws that are all within e^epsilon of each other are so too.
    """
    if means.shape != deviations.shape:
        raise BadInput(f"expected deviations of shape {means.shape}, got {deviations.shape}")
    if not np.isfinite(means).all() or not (deviations >= 0).all() or not np.isfinite(deviations).all():
        raise BadInput("expected finite means and deviations >= 0, got others")
    exploring = ExplorationMethod(exploring)
    if exploring is ExplorationMethod.POINT:
        return means.copy()
    if exploring is ExplorationMethod.UPPER:
        return means + float(expect.at_least_zero("width", width)) * deviations
    drawn: Floats = means + deviations * source.normal(means.shape, dtype=np.float64)
    return drawn


@dataclass(frozen=True)
class Bandit:
    """Each person likes one of `arms` best, any alike: its mean reward is `gap` above that of the others.

    Rewards have normal noise of deviation 1, and only the device sees them.
    """

    arms: int
    gap: float

    def __post_init__(self) -> None:
        expect.whole("arms", self.arms, at_least=2)
        object.__setattr__(self, "gap", float(expect.positive("gap", self.gap)))

    def least_regret(self, epsilon: expect.Number) -> float:
        """The regret per round that no epsilon-LDP choice can avoid, however much its device knows.

        An arm's least chance is its floor. The best has at most e^epsilon times its floor, and at most what the
        others' floors leave. Averaged over which arm is best, with floors that sum to M, that is at most
        e^epsilon M / arms and 1 - M (arms - 1) / arms; where the two meet, e^epsilon / (arms - 1 + e^epsilon).
        """
        odds = math.exp(min(float(expect.at_least_zero("epsilon", epsilon)), 700.0))
        return self.gap * (self.arms - 1) / (self.arms - 1 + odds)


@dataclass(frozen=True, eq=False)
class Regret:
    """Mean cumulative regret after each round, and its standard error over people: (rounds,)."""

    mean: Floats
    standard_error: Floats

    @property
    def exponent(self) -> float:
        """log2 of regret at the end over regret half way: 1 where it is linear, below where it is not."""
        return math.log2(self.mean[-1] / self.mean[len(self.mean) // 2 - 1])

    @property
    def last_slope(self) -> float:
        """Regret per round, over the last quarter."""
        quarter = max(1, len(self.mean) // 4)
        return float((self.mean[-1] - self.mean[-1 - quarter]) / quarter)


def regret_curve(
    bandit: Bandit,
    choice: ChoiceLaw | None,
    exploring: ExplorationMethod | str,
    *,
    rounds: int,
    people: int,
    source: Source,
) -> Regret:
    """Let people's devices learn by themselves, choosing by this law; None chooses the best score, unprivately.

    Devices keep a normal posterior for every arm (prior mean 0, deviation 1). Each round counts with its
    expected regret by the exact law, so only learning is random.
    """
    expect.whole("rounds", rounds, at_least=4)
    expect.whole("people", people, at_least=2)
    if choice is not None and choice.candidates != bandit.arms:
        raise BadInput(f"expected a law over {bandit.arms} arms, got one over {choice.candidates}")
    everyone = np.arange(people)
    # Rotated best arms are as good as drawn ones, and even.
    best = everyone % bandit.arms
    sums, counts = np.zeros((people, bandit.arms)), np.zeros((people, bandit.arms))
    total, mean, error = np.zeros(people), np.empty(rounds), np.empty(rounds)
    for turn in range(rounds):
        means, deviations = sums / (1 + counts), 1 / np.sqrt(1 + counts)
        scores = exploration_scores(means, deviations, exploring, source)
        if choice is None:
            arm = np.argmax(scores, axis=1)
            hit = (arm == best).astype(np.float64)
        else:
            arm = choice.choose(scores, source.words)
            hit = choice.pmf(scores)[everyone, best]
        reward = bandit.gap * (arm == best) + source.normal(people, dtype=np.float64)
        sums[everyone, arm] += reward
        counts[everyone, arm] += 1
        total += bandit.gap * (1 - hit)
        mean[turn], error[turn] = total.mean(), total.std(ddof=1) / math.sqrt(people)
    return Regret(mean, error)
