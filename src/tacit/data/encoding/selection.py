"""Which sensitive values may be listed at all, decided under DP and paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tacit import expect
from tacit.data.encoding.counting import Tally
from tacit.data.encoding.tokens import Fingerprints
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.accounting import epsilon as epsilon_of
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms.partition_selection import PartitionSelection
from tacit.privacy.randomness import Source
from tacit.privacy.relations import Relation
from tacit.privacy.releases import SelectedPartitions

BISECTIONS = 12
STEP_BACK = Fraction(999, 1000)


@dataclass(frozen=True)
class Selection:
    """Which sensitive values may be listed, decided under DP: `mechanism` on each value's count above
    `threshold`.

    Guarantee:  (epsilon, delta)-DP for the list of selected values, as `release` composes it.
    Neighbours: one example's sensitive features replaced (replace-one, unit impression). It has one value in
                each of `fields` fields, so up to 2 * fields counts move by one.
    Assumes:    each example counts once a field; the threshold and the fields were chosen without looking at
                the sensitive values; lowering every count by the threshold moves no count by more than before;
                which rows are examples, and which are bad, is the same in both datasets.
    Source:     Desfontaines, Voss, Gipson, Mandayam 2020 (arXiv 2006.03684), theorem 1, for one count.
    """

    mechanism: PartitionSelection
    fields: int
    threshold: int = 0

    def __post_init__(self) -> None:
        expect.whole("fields", self.fields, at_least=1)
        expect.whole("threshold", self.threshold, at_least=0)

    @classmethod
    def for_budget(cls, budget: Budget, fields: int, threshold: int = 0) -> Selection:
        """The strongest selection that the budget pays for, all fields together.

        Half of delta goes to the values themselves, the other half to composing them.
        """
        fields = expect.whole("fields", fields, at_least=1)
        if budget.delta <= 0:
            raise BadInput("expected delta > 0: without it no value can ever be listed, got 0")
        each = budget.delta / (4 * fields)
        # Adding up always fits, but for the accountant's rounding up: so a little less than that.
        low, high = budget.epsilon / (2 * fields) * STEP_BACK, budget.epsilon
        while _epsilon(PartitionSelection(low, each), fields, budget.delta) > budget.epsilon:
            low, high = low * STEP_BACK, low
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            fits = _epsilon(PartitionSelection(middle, each), fields, budget.delta) <= budget.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return cls(PartitionSelection(Fraction(low), each), fields, threshold)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Selection:
        epsilon, delta = (expect.exact(key, record[key]) for key in ("epsilon", "delta"))
        mechanism = PartitionSelection(epsilon, delta)
        return cls(mechanism, record["fields"], record["threshold"])

    def as_json(self) -> dict[str, Any]:
        """`epsilon` and `delta` are those of one value, exactly; `release` composes them."""
        return {
            "epsilon": str(self.mechanism.epsilon),
            "delta": str(self.mechanism.delta),
            "fields": self.fields,
            "threshold": self.threshold,
        }

    @property
    def release(self) -> SelectedPartitions:
        return self.mechanism.release(values_per_unit=self.fields, relation=Relation.REPLACE_ONE)

    def listed(self, tally: Tally, source: Source) -> Fingerprints:
        """Draw which of a field's values are listed. Once for one payment: drawing again is another release."""
        if not source.fit_for_release:
            raise EntropyMisuse("expected the cryptographic stream for a release, got a simulation")
        above = np.maximum(tally.counts - self.threshold, 0)
        return tally.values[self.mechanism.select(above, source.words)]


def _epsilon(mechanism: PartitionSelection, fields: int, delta: Fraction) -> Fraction:
    release = mechanism.release(values_per_unit=fields, relation=Relation.REPLACE_ONE)
    return Fraction(epsilon_of(release, delta=float(delta), relation=Relation.REPLACE_ONE))
