"""Public rates by a model of contexts and campaigns, drawn towards what was counted where something was.

    book = ModelledRates(base, version="model 3, statistics 41", clicks=scores, statistics=statistics,
                         hierarchy=hierarchy)

`scores` is what a model says of (context, campaign) cells, of public attributes alone. Where a round counted a
cell, its rate is the best linear mean of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tacit import expect
from tacit.arrays import Floats
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.server.rate_book import ContextsBelow, RateBook
from tacit.deliver.server.released_statistics import ReleasedStatistics
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Node

CellScores = Callable[[Sequence[Node], Sequence[int]], Floats]
"""(nodes, campaigns) the chance of an event that a model expects."""

STRENGTH = 500.0
"""Impressions that a model's word is worth, unless the operator says otherwise."""


def correct_by_counts(
    expected: Floats, clicks: Floats, shown: Floats, noise_variance: Floats | float, strength: float
) -> Floats:
    """A model's rates m, corrected by noisy counts: m + s n (c - m n) / (s n^2 + w n + S), clipped to 0..1.

    c clicks of n impressions; s = m (1 - m) / (k + 1) is the variance of true rates around m, and w = k s what
    is left of p (1 - p), for rates drawn from Beta(k m, k (1 - m)) with k the strength; S = v ((1 - m)^2 + m^2)
    is the variance of the noise in c - m n, where clicks and impressions without a click carry noise of
    variance v each. It is the best linear predictor of the rate from the count. Without noise it is the mean of
    the posterior, (c + k m) / (n + k); with much of it, or with n <= 0, it is m.

    >>> correct_by_counts(np.array([0.1]), np.array([30.0]), np.array([100.0]), 0.0, 100.0).round(3)
    array([0.2])

    Source: Bühlmann, "Experience rating and credibility", ASTIN Bulletin 4, 1967, with the noise's variance
    beside the counts' own.
    """
    m, k = np.asarray(expected, np.float64), float(strength)
    n = np.maximum(shown, 0.0)
    spread = m * (1 - m) / (k + 1)
    against = spread * n**2 + k * spread * n + noise_variance * ((1 - m) ** 2 + m**2)
    weight = np.divide(spread * n, against, out=np.zeros_like(against), where=against > 0)
    corrected: Floats = np.clip(m + weight * (clicks - m * n), 0.0, 1.0)
    return corrected


class ModelledRates:
    """A `RateBook` of a model's rates, corrected by counts of clicks.

    base         what holds of events that no model is for, and what is known of contexts below others
    clicks       scores of clicks, and
    conversions  of conversions; None where there is no model of them
    statistics   counts of clicks and impressions, if any were released

    Guarantee:  none of its own.
    Neighbours: those of the model and of the statistics, whose statements both stand with their versions.
    Assumes:    scores of public attributes of contexts and campaigns alone, by a model that was released, and
                counts that were released.
    Source:     `correct_by_counts`.
    """

    def __init__(
        self,
        base: RateBook,
        *,
        version: str,
        hierarchy: Hierarchy,
        clicks: CellScores | None = None,
        conversions: CellScores | None = None,
        statistics: ReleasedStatistics | None = None,
        strength: float = STRENGTH,
    ) -> None:
        self.version, self._base, self._hierarchy = version, base, hierarchy
        self._scores = {BidEvent.CLICK: clicks, BidEvent.CONVERSION: conversions}
        self._statistics, self._strength = statistics, float(expect.positive("strength", strength))

    def __repr__(self) -> str:
        return brief(self, version=self.version, base=self._base)

    def rates(self, nodes: Sequence[Node], campaigns: Sequence[int], event: BidEvent) -> Floats:
        scores = self._scores.get(event)
        if scores is None:
            return self._base.rates(nodes, campaigns, event)
        expected = scores(nodes, campaigns)
        if expected.shape != (len(nodes), len(campaigns)) or not np.isfinite(expected).all():
            raise BadInput(f"expected a model's finite rates of {len(nodes)} contexts, got others")
        expected = np.clip(expected, 0.0, 1.0)
        if self._statistics is None or event is not BidEvent.CLICK:
            return expected
        clicks, shown, summed = self._statistics.cells(self._hierarchy, nodes, campaigns)
        noise = self._statistics.noise_sd**2 * summed
        return correct_by_counts(expected, clicks, shown, noise, self._strength)

    def below(self, node: Node) -> ContextsBelow:
        return self._base.below(node)
