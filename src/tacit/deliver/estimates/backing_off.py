"""The paper's estimate: clicks over impressions at the lowest ancestor with enough support."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit import expect
from tacit.deliver.estimates.asking import answered
from tacit.deliver.estimates.climbing import State
from tacit.deliver.estimates.estimate import Estimate
from tacit.deliver.estimates.frames import Frame
from tacit.deliver.estimates.noise import plain_residual
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.statistics import Counts, Integers


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

    def rates(self, counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> Estimate:
        for each in counts.levels:
            if len(counts.parents(each)) > 1:
                raise BadInput(
                    f"expected a sequence of levels to back off along, got several parents of {each}"
                )

        def step(at: Levels, keys: Integers, prior: State, frame: Frame) -> State:
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
            return State(
                np.where(answers, rate, unseen[0]),
                np.where(answers, variance, unseen[1]),
                none,
                none,
                none,
                none,
            )

        return answered(counts, levels, nodes, ads, step)
