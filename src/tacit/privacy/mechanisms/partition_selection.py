"""Which values may be named at all: kept with a chance that grows with the number of units behind them.

Naming every value that occurs would tell that somebody has it. So a value is kept with a probability that
starts at zero for values nobody has and rises as fast as (epsilon, delta) allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.randomness import WordSource
from tacit.privacy.releases import SelectedPartitions
from tacit.privacy.units import REPLACE_LIKE, Relation


@dataclass(frozen=True)
class PartitionSelection:
    """Keep a value that n units have with probability thresholds[n] / 2^64, the largest that DP allows.

    Guarantee:  (epsilon, delta)-DP for each value that a unit may have; `release` composes them.
    Neighbours: one unit more or less behind the value.
    Assumes:    each unit counts once per value; values that nobody has are never looked at; independent,
                exactly uniform words.
    Source:     Desfontaines, Voss, Gipson, Mandayam 2020 (arXiv 2006.03684), theorem 1.
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", expect.probability("delta", self.delta))
        if int(self.delta * WHOLE) < 1:
            raise BadInput(f"expected delta >= 2^-64, got {float(self.delta):g}: nothing could ever be kept")

    @cached_property
    def thresholds(self) -> tuple[int, ...]:
        """From 0 units up to the first count that is always kept; whole numbers, rounded against ourselves."""
        odds = exp_rounded_down(self.epsilon)
        gift = int(self.delta * WHOLE)
        kept = [0]
        while kept[-1] < WHOLE:
            last = kept[-1]
            by_keeping = int(odds * last) + gift
            by_dropping = WHOLE - max(0, -((last + gift - WHOLE) // odds))
            kept.append(min(by_keeping, by_dropping, WHOLE))
        return tuple(kept)

    def probability(self, units: int) -> Fraction:
        units = expect.whole("units", units, at_least=0)
        return Fraction(self.thresholds[min(units, len(self.thresholds) - 1)], WHOLE)

    def select(self, units: ArrayLike, words: WordSource) -> NDArray[np.bool_]:
        """For each value, whether it is kept, from the number of units that have it."""
        counts = np.asarray(units)
        if counts.dtype.kind not in "iu" or counts.ndim != 1 or (counts.size and counts.min() < 0):
            raise BadInput(f"expected a list of whole counts >= 0, got dtype {counts.dtype}")
        always = len(self.thresholds) - 1
        table = np.array(self.thresholds[:-1], dtype=np.uint64)
        chance = table[np.minimum(counts, always - 1)]
        kept: NDArray[np.bool_] = (words(len(counts)) < chance) | (counts >= always)
        return kept

    def release(self, *, values_per_unit: int, relation: Relation) -> SelectedPartitions:
        """What a selection tells if a unit has at most `values_per_unit`; replacing one touches twice that."""
        values = expect.whole("values_per_unit", values_per_unit, at_least=1)
        relation = Relation(relation)
        touched = 2 * values if relation in REPLACE_LIKE else values
        return SelectedPartitions(self.epsilon, self.delta, touched, relation)
