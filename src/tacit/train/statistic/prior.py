"""What one expects before any label was seen: it shapes the noise and the fit, and no guarantee rests on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit import expect


@dataclass(frozen=True)
class Prior:
    """`rate` of positives, and how much of the logit's variance all fields and all pairs of fields explain.

    Guesses from public knowledge: taken from the labels they would be a release of their own. They are shared
    out evenly: a value's effect is N(0, value_variance / fields), and the `rank` factors of a value are
    N(0, v) each, with v such that the products over all pairs of fields have `pair_variance` in sum.
    """

    rate: float = 0.05
    value_variance: float = 1.0
    pair_variance: float = 0.25

    def __post_init__(self) -> None:
        expect.probability("rate", self.rate)
        expect.positive("value_variance", self.value_variance)
        expect.positive("pair_variance", self.pair_variance)

    @property
    def logit(self) -> float:
        return math.log(self.rate / (1 - self.rate))

    @property
    def label_variance(self) -> float:
        return self.rate * (1 - self.rate)

    def effect_variance(self, fields: int) -> float:
        return self.value_variance / fields

    def factor_variance(self, fields: int, rank: int) -> float:
        pairs = max(fields * (fields - 1) // 2, 1)
        return math.sqrt(self.pair_variance / (pairs * rank))
