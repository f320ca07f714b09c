"""Rates drawn towards those of the more general context, as far as the counts themselves say: for noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tacit.deliver.estimates.asking import answered
from tacit.deliver.estimates.climbing import State
from tacit.deliver.estimates.estimate import Estimate
from tacit.deliver.estimates.excess import excess_variance
from tacit.deliver.estimates.frames import Frame
from tacit.deliver.estimates.moment_step import moment_step
from tacit.deliver.estimates.spread import spread_of
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.statistics import Counts, Integers


@dataclass(frozen=True, eq=False)
class MomentShrinkage:
    """Best linear shrinkage, with the spread of rates around their parents' found by moments, level by level.

    With pi the parent's rate, n noisy opportunities, c noisy clicks of noise sd s (so that n has 2 s^2, or s^2
    where it is a total), e = c - pi n and S = s^2 ((1-pi)^2 + pi^2) (or s^2 (1 + pi^2)):

        spread  = sum(e^2 - S - n pi (1-pi)) / sum((n^2 - 2 s^2 - n)+), at least 0,
        rate    = clip(pi + w e / n),  w = spread n^2 / (spread n^2 + n pi (1-pi) + S);  pi where n <= 0.

    `corrected` refines the spread for what the parents' estimates do not know (`corrected_spread`).

    The variance is the expected squared error given the noisy n, where any n >= 0 was as likely, rates vary
    around their parents' by the spread, and clicks at general contexts vary more than binomially (`excess`). It
    takes the spread as known, and as one for all ads of a level: where their popularity ranges over orders of
    magnitude, it is too small for the popular ones, and `Shrinkage` does better on exact counts.

    Unless it is given, the spread of counts is measured when they are first asked, and kept for as long as that
    very `Counts` lives: whoever changes its arrays afterwards is answered by the old spread.
    """

    corrected: bool = True
    spread: Mapping[Levels, float] | None = None

    def fitted(self, counts: Counts) -> MomentShrinkage:
        """The same with the spread of these counts, for questions to others: another day's, say."""
        return replace(self, spread=spread_of(counts, corrected=self.corrected))

    def rates(self, counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> Estimate:
        spread = spread_of(counts, corrected=self.corrected) if self.spread is None else self.spread
        if missing := [each for each in counts.levels if each not in spread]:
            raise BadInput(f"expected a spread for every level of the counts, got none for {missing[0]}")
        excess = excess_variance(counts, spread)

        def step(at: Levels, keys: Integers, prior: State, frame: Frame) -> State:
            return moment_step(counts.by_level[at], keys, prior, frame, spread[at], excess[at])

        return answered(counts, levels, nodes, ads, step)
