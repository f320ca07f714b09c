"""Menus whose choices are reported, and what a server learns of the prior from the reports, in blocks.

People whose devices report are others than those that gains are measured on. What trunc(k, m) gains is exact
for the measured people: no choice of theirs is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tacit.arrays import Floats, Integers
from tacit.deliver.protocol.plans import ChoicePlan, plan_choice
from tacit.deliver.protocol.priors import LearntPrior, ScorePrior
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.entropy import Simulation
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.scores import Scaled
from tacit.privacy.choice.top_choice import best_sums, trunc_values
from tacit.privacy.randomness import WordSource

OLD, DEFAULT, REPORTS, COUNTED, TRUE = (
    "Spread(0.3)",
    "default prior",
    "from reports",
    "counted ratios",
    "true prior",
)
PUBLISHED_GAMMA = 0.8
RESPONSE, PUBLISHED, EXPONENTIAL, FLIP = "RR, best gamma", "RR, gamma 0.8", "exponential", "permute-and-flip"
"""What studies of priors compare: ours by the prior that it is planned with, and the paper's mechanisms, where
randomized response has the cutoff that is best in hindsight, or the published one."""
NOISES = {EXPONENTIAL: Noise.GUMBEL, FLIP: Noise.EXPONENTIAL}
EVERY_PERSON = 4  # of those measured, one in so many for noisy maxima, whose laws take longer

GAMMAS = tuple(round(float(gamma), 2) for gamma in np.linspace(0, 1, 21))


@dataclass(frozen=True, eq=False)
class ReportingMenus:
    """Menus that requests are drawn from, all equally likely.

    public     public scores of each, best first
    reporting  private scores (people, candidates) of those who report
    measured   the same of others, on whom gains are measured
    """

    public: Sequence[Floats]
    reporting: Sequence[Floats]
    measured: Sequence[Floats]

    @cached_property
    def sums(self) -> list[Floats]:
        """`best_sums` of the measured people, menu by menu."""
        return [best_sums(np.ascontiguousarray(people.T)) for people in self.measured]

    @cached_property
    def public_best(self) -> float:
        """The mean score of the public best."""
        return float(np.mean([sums[0, 0] for sums in self.sums]))

    @cached_property
    def greedy_gain(self) -> float:
        """What the private best has more than the public best."""
        return float(np.mean([sums[-1, 0] - sums[0, 0] for sums in self.sums]))

    def top_gain(self, sizes: Sequence[tuple[int, int]], epsilon: float) -> float:
        """What trunc(k, m) gains over the public best, (k, m) given for each menu."""
        values = [
            trunc_values(sums, np.exp(-epsilon))[kept - 1, top - 1] - sums[0, 0]
            for sums, (kept, top) in zip(self.sums, sizes, strict=True)
        ]
        return float(np.mean(values))

    def planned_gain(self, prior: ScorePrior, epsilon: float) -> float:
        """What is gained by plans with one prior."""
        return self.top_gain(self.planned_sizes(prior, epsilon), epsilon)

    def planned_sizes(self, prior: ScorePrior, epsilon: float) -> list[tuple[int, int]]:
        """(k, m) of the plans: they hang on public scores alone."""
        return [(each.kept, each.top or 1) for each in self.plans(prior, epsilon)]

    def plans(self, prior: ScorePrior, epsilon: float) -> list[ChoicePlan]:
        return [plan_choice(public, prior, epsilon) for public in self.public]

    def response_gain(self, epsilon: float) -> float:
        """What randomized response gains with the cutoff gamma that is best for the measured people."""
        return max(self.cut_gain(gamma, epsilon) for gamma in GAMMAS)

    def cut_gain(self, gamma: float, epsilon: float) -> float:
        """What randomized response gains with one cutoff."""
        return self.top_gain([(within(public, gamma), 1) for public in self.public], epsilon)

    def noisy_gain(self, noise: Noise, epsilon: float) -> float:
        """What a noisy maximum of scaled scores gains: the exponential mechanism, or permute-and-flip."""
        gains = np.empty(len(self.public))
        sizes = np.array([len(each) for each in self.public])
        for size in np.unique(sizes).tolist():
            menus = np.flatnonzero(sizes == size)
            scores = np.stack(
                [self.measured[at][::EVERY_PERSON] for at in menus.tolist()]
            )  # (menus, people, candidates)
            law = NoisyMax.nominal(noise, Scaled(size), epsilon)
            chosen = (law.pmf(scores.reshape(-1, size)).reshape(scores.shape) * scores).sum(axis=2)
            gains[menus] = (chosen - scores[:, :, 0]).mean(axis=1)
        return float(gains.mean())


@dataclass(frozen=True)
class FakeReports:
    """A farm of devices: this share of the reports names the lowest rank that is kept, or the public best."""

    share: float
    lowest: bool

    def __str__(self) -> str:
        return f"{self.share:.0%} fakes, {'lowest rank' if self.lowest else 'public best'}"


def learnt_priors(
    menus: ReportingMenus,
    epsilon: float,
    served: Sequence[int],
    draws: np.random.Generator,
    fakes: FakeReports | None = None,
) -> Iterator[tuple[int, LearntPrior]]:
    """The prior before any request, and after so many were served and their reports learnt from.

    Every request is planned by what was known at the last of these numbers.
    """
    words = Simulation(int(draws.integers(2**62))).words
    evidence = PriorEvidence()
    yield 0, evidence.prior()
    for before, upto in pairwise((0, *served)):
        plans = menus.plans(evidence.prior(), epsilon)
        asked = np.bincount(draws.integers(len(plans), size=upto - before), minlength=len(plans))
        reported = [
            ReportedRanks(public, plan.law, _counts(plan, people, number, draws, words, fakes))
            for plan, public, people, number in zip(
                plans, menus.public, menus.reporting, asked.tolist(), strict=True
            )
            if number and not plan.skipped
        ]
        evidence = evidence.learn(reported)
        yield upto, evidence.prior()


def _counts(
    plan: ChoicePlan,
    people: Floats,
    number: int,
    draws: np.random.Generator,
    words: WordSource,
    fakes: FakeReports | None,
) -> Integers:
    """How often each rank was reported in `number` requests of people drawn anew."""
    ranks = plan.choose(people[draws.integers(len(people), size=number)], words)
    if fakes is not None:
        ranks = np.where(draws.random(number) < fakes.share, plan.kept - 1 if fakes.lowest else 0, ranks)
    return np.bincount(ranks, minlength=len(plan.public))


def within(public: Floats, gamma: float) -> int:
    """How many candidates score at least 1 - gamma of the public best."""
    return max(1, int(np.count_nonzero(public >= (1 - gamma) * public[0])))
