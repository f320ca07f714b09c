"""From examples to noisy targets: cap each unit, share out its epsilon, report every kept label once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation, allocate
from tacit.privacy.mechanisms.memoisation import FlipKey, ranks
from tacit.privacy.releases import Release
from tacit.privacy.units import Cap, CapChoice, Unit, UnitKind
from tacit.train.examples import Examples
from tacit.train.labels.mechanism import Binary, LabelMechanism, shares
from tacit.train.labels.windows import RepeatedFlips
from tacit.train.targets import Head, Targets

LEAST_RATE = 1e-4


@dataclass(frozen=True)
class NoisyLabelling:
    """Which labels of the examples are made noisy, how, and at what epsilon: planned from public keys alone.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total (`release` is what
                an accountant reads), however often `targets` is called.
    Neighbours: replace label, for one unit and window. Features, unit keys and times are the same in both
                datasets.
    Assumes:    what `allocate` and the mechanism assume. `key.task` names the log and the label: rows of two
                logs have the same numbers. `secret` is 32 uniform bytes, kept where the caller keeps secrets:
                whoever has it undoes every flip; if it is lost, repeating a run is a new release. The examples
                hold every row of each unit and window that they hold a row of.
    Source:     Ghazi et al., Evaluation of Label DP (Randomized Response) Mechanisms on Binary Conversion
                Models.
    """

    mechanism: LabelMechanism
    allocation: Allocation
    epsilon: expect.Number
    key: FlipKey

    @classmethod
    def of(
        cls,
        examples: Examples,
        mechanism: LabelMechanism,
        unit: Unit,
        cap: Cap,
        epsilon: expect.Number,
        *,
        key: FlipKey,
        secret: bytes,
        now: int | None = None,
    ) -> NoisyLabelling:
        """For the examples that the cap keeps. What would tell nothing is refused, before it is paid for."""
        allocation = allocate_labels(examples, unit, cap, key=key, secret=secret, now=now)
        if isinstance(mechanism, RepeatedFlips):
            mechanism.check_shares(allocation, epsilon)
            if not mechanism.count(allocation):
                raise BadInput("expected a reported label among those that the cap keeps, got none")
        list(shares(allocation, epsilon))  # refuses an epsilon that is too small for a label
        return cls(mechanism, allocation, epsilon, key)

    @property
    def count(self) -> int:
        """How many labels there are to learn from: all that are kept, or those that were reported by now."""
        if isinstance(self.mechanism, RepeatedFlips):
            return self.mechanism.count(self.allocation)
        return len(self.allocation)

    @property
    def release(self) -> Release:
        """What making the targets gives away."""
        return self.mechanism.release(self.allocation, self.epsilon)

    def targets(self, examples: Examples, secret: bytes) -> Targets:
        """The noisy targets of the examples that it was planned for; `rows` are places within them."""
        labels = labels_for_mechanism(self.mechanism, examples)
        return self.mechanism.targets(
            labels, examples.key("row"), self.allocation, self.epsilon, key=self.key, secret=secret
        )


def labels_for_mechanism(mechanism: LabelMechanism, examples: Examples) -> NDArray[Any]:
    """The true labels as the mechanism takes them: 0 or 1, what its bins are of, or seconds to conversion."""
    if isinstance(mechanism, RepeatedFlips):
        return examples.delays
    if isinstance(mechanism.classes, Binary):
        return examples.labels
    if examples.label is None:
        raise BadInput("expected a label column, got a log without one")
    labels = np.asarray(examples.at.of(examples.label))
    mechanism.classes.of(labels)  # refuses what is no number
    return labels


def allocate_labels(
    examples: Examples, unit: Unit, cap: Cap, *, key: FlipKey, secret: bytes, now: int | None = None
) -> Allocation:
    """Which examples keep a label, and their shares of epsilon: the same whenever it is asked for.

    A random cap is drawn from the task and window of the key, not from its version: all versions of a unit's
    labels are of the same rows.
    """
    wanted = ("row", *unit.kind.key_columns, "time")
    columns = {name: examples.key(name) for name in wanted if name in examples.keys}
    drawn = None
    if cap.choice is CapChoice.RANDOM and unit.kind is not UnitKind.IMPRESSION:
        drawn = ranks(examples.key("row"), replace(key, version=0), secret)
    return allocate(unit, cap, columns, public=examples.public_keys, now=now, ranks=drawn)


def base_rate(targets: Targets) -> float:
    """How often the label is 1, from the targets alone: free, and within [1e-4, 1 - 1e-4].

    With keep probabilities it is the likeliest rate, which weighs labels by what they tell; else the mean
    target, which is the rate of reports for raw targets and leans on the prior for posterior ones.
    """
    if targets.head is not Head.LOGISTIC:
        raise BadInput(f"expected targets of a probability for a base rate, got a {targets.head} head")
    if not len(targets):
        raise BadInput("expected at least one target for a base rate, got none")
    if targets.keep is None:
        return float(np.clip(targets.mean, LEAST_RATE, 1 - LEAST_RATE))
    # A report of 1 has the chance (1 - keep) + (2 keep - 1) rate; the log-likelihood is concave in the rate.
    signed, counts = np.unique(np.where(targets.values > 0.5, targets.keep, -targets.keep), return_counts=True)
    keep = np.abs(signed).astype(np.float64)
    gain = np.sign(signed) * (2 * keep - 1)
    start = np.where(signed > 0, 1 - keep, keep)

    def slope(rate: float) -> float:
        return float(counts @ (gain / (start + gain * rate)))

    low, high = LEAST_RATE, 1 - LEAST_RATE
    if slope(low) <= 0:
        return low
    if slope(high) >= 0:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2
