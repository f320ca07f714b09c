"""Back-off and shrinkage estimators of click rates, with fixed parameters.

`BackOff` is the paper's: clicks over impressions at the lowest ancestor with enough support. `Shrinkage`
draws rates towards those of the more general context, with the weight of a fixed number of requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.server.estimates import (
    Frame,
    Opportunities,
    RateEstimate,
    RateState,
    estimate_cells,
    excess_variance,
    plain_residual,
    residual,
    variance_after_clipping,
)
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.counts import Counts


@dataclass(frozen=True)
class BackOff:
    """Clicks over opportunities at the lowest ancestor, the context itself included, with a total of at least
    `min_support` and at least one opportunity of the ad; at the top any total will do. For sequences, not
    lattices.

    The variance is p (1 - p) / (n - 1), without bias for the square of the error at the ancestor that answers
    (1/4 from a single request), and what noise adds. It does not know how far that ancestor's rate is from
    the context's, and one estimate of it may be far off: two clicks of two give rate 1 with variance 0.
    An ad without any opportunity has rate 0 and variance 1/4.

    Source: Hardt and Nath, CCS 2012, section 4.3.
    """

    min_support: float = 2.0

    def __post_init__(self) -> None:
        expect.at_least_zero("min_support", self.min_support)

    def rates(self, counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> RateEstimate:
        for each in counts.levels:
            if len(counts.parents(each)) > 1:
                raise BadInput(
                    f"expected a sequence of levels to back off along, got several parents of {each}"
                )

        def step(at: Levels, keys: Integers, prior: RateState, frame: Frame) -> RateState:
            level = counts.by_level[at]
            top = not counts.parents(at)
            cells = frame.cells(level, keys)
            total = level.total[cells.node][:, None]
            n = cells.opportunities(level)
            answers = (total > 0) & (top | (total >= self.min_support)) & (n > 0)
            n = np.where(answers, n, 1.0)
            rate = np.clip(cells.take(level.clicks) / n, 0.0, 1.0)
            variance = np.where(n > 1, rate * (1 - rate) / np.maximum(n - 1, 1e-9), 0.25)
            variance = np.minimum(variance, 0.25) + plain_residual(level, rate) / n**2
            variance = np.minimum(variance, np.maximum(rate, 1 - rate) ** 2)
            unseen = (0.0, 0.25) if top else (prior.rate, prior.variance)
            none = np.zeros((1, 1))
            return RateState(
                np.where(answers, rate, unseen[0]),
                np.where(answers, variance, unseen[1]),
                none,
                none,
                none,
                none,
            )

        return estimate_cells(counts, levels, nodes, ads, step)


SMALLEST_SHARE = 0.05  # keeps the correction of p (1 - p) within bounds where a parent has hardly one child


@dataclass(frozen=True)
class Shrinkage:
    """p = (clicks + strength * p_parent) / (n + strength), from the rate of all ads together at the top, down.

    Several parents (a lattice): the mean that `combine_parents` says. Counts with n <= 0 say nothing, so that
    p is p_parent.

    The variance is the expected squared error in the model that the formula is right for: a context's rate is
    drawn from Beta(k p, k (1 - p)) around its parent's rate p, k the strength. With w = k / (n + k), E the
    excess variance of the clicks (`excess_variance`, over p (1 - p)), g how far a click here moves the parent's
    estimate,

        V = B Q + w^2 V_parent + noise / (n + k)^2,   B = (n + k + E (1 + 2 k g)) / (n + k)^2,

    where Q, the mean of the true p (1 - p), is the estimated one corrected for the estimate's own error and
    pull: Q (1 - B + 2 a) = p (1 - p) + V - B Q - 2 w A_parent, a = (1 - n g) / (n + k), A = a Q + w A_parent.
    Without E and the parent's error, V is p (1 - p) / (n + k + 1), the variance of the Beta posterior. In a
    tree and without noise this is exact on average; noise far above n + k makes it too large, since rates are
    clipped. With several parents it is an upper bound if rates are drawn around the parents' weighted mean;
    where attributes add up instead, squared errors were 1.2 to 1.5 times V, though smaller than along one
    chain. The error meant for a general context is that of its own rate, around which those below it vary.
    """

    strength: float = 4.0

    def __post_init__(self) -> None:
        expect.positive("strength", self.strength)

    def rates(self, counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> RateEstimate:
        k = float(self.strength)
        excess = excess_variance(counts, dict.fromkeys(counts.levels, 1 / (k + 1)), keep=k / (k + 1))

        def step(at: Levels, keys: Integers, prior: RateState, frame: Frame) -> RateState:
            return self._step(counts, at, keys, prior, frame, excess[at])

        return estimate_cells(counts, levels, nodes, ads, step)

    def _step(
        self, counts: Counts, at: Levels, keys: Integers, prior: RateState, frame: Frame, excess: Floats
    ) -> RateState:
        k, level = float(self.strength), counts.by_level[at]
        cells = frame.cells(level, keys)
        noisy = cells.opportunities(level)
        n = np.maximum(noisy, 0.0)
        clicks = np.where(n > 0, cells.take(level.clicks), 0.0)
        rate = np.clip((clicks + k * prior.rate) / (n + k), 0.0, 1.0)
        true = Opportunities.behind(n, level.opportunity_variance)
        if level.noise_sd:
            noise = np.where(n > 0, residual(level, rate, true.error), 0.0) / (n + k) ** 2
        else:
            noise = np.zeros((1, 1))
        had = np.where(n > 0, true.mean, 0.0)
        more = np.where(n > 0, cells.spread(level, excess), 0.0)
        weight = k / (n + k)
        spread = (had + k + more * (1 + 2 * k * prior.influence)) / (n + k) ** 2  # B
        pull = (1 - n * prior.influence) / (n + k)  # a
        inherited = weight**2 * prior.variance + noise
        bernoulli = rate * (1 - rate) + inherited - 2 * weight * prior.pull
        bernoulli = np.clip(bernoulli / np.maximum(1 - spread + 2 * pull, SMALLEST_SHARE), 0.0, 0.25)  # Q
        variance = spread * bernoulli + inherited
        if level.noise_sd:
            variance = variance_after_clipping(variance, prior.rate)
        return RateState(
            rate=rate,
            variance=variance,
            unit=spread + weight**2 * prior.unit,
            noise=noise + weight**2 * prior.noise,
            influence=np.where(n > 0, 1 / (n + k), 0.0) + weight * prior.influence,
            pull=pull * bernoulli + weight * prior.pull,
        )
