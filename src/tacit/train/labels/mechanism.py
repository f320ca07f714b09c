"""What makes targets out of labels, and the ways in which a noisy report can be read."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoised import FlipKey
from tacit.privacy.releases import Composed, NoisyLabels, Release
from tacit.privacy.units import Split, UnitKind
from tacit.train.labels.classes import Classes
from tacit.train.targets import Targets

LEAST_EPSILON = Fraction(1, 1000)
"""Of a single label. With less, a million labels tell less than one honest one."""


class Correction(expect.Choice):
    """How a noisy report becomes a target. All of it is post-processing: none costs privacy.

    RAW        The report as it is. Least variance, and wrong on purpose: predictions are pulled towards the
               middle of the classes, rare events come out far too likely. Order, and so AUC, survives where
               every label has the same epsilon.
    UNBIASED   A target that is the label on average, whatever the label is. Gradients are unbiased, and
               predictions calibrated in the long run; targets lie far outside the labels' range at small
               epsilon, so the loss has no lower bound and a large model fits the noise: stop early.
    FORWARD    The report, with the probability that it is true: the loss compares it with what the model
               expects a flipped label to be. A proper, bounded loss that weighs labels of different epsilons as
               they deserve; not convex in the score. For two classes only.
    POSTERIOR  The expected label given the report and a public prior. Bounded, least squared error; pulled
               towards the prior, the more the smaller epsilon is.
    """

    RAW = "raw"
    UNBIASED = "unbiased"
    FORWARD = "forward"
    POSTERIOR = "posterior"


class LabelMechanism(Protocol):
    """Turns true labels into targets. A value: the labels, the draws' key and the secret are handed in."""

    @property
    def classes(self) -> Classes: ...

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        """What leaves when `targets` are made with this allocation: for one unit, known beforehand."""
        ...

    def targets(
        self,
        labels: ArrayLike,
        records: ArrayLike,
        allocation: Allocation,
        epsilon: expect.Number,
        *,
        key: FlipKey,
        secret: bytes,
    ) -> Targets:
        """A target for each kept row. Labels and record ids are of all rows; `epsilon` is the whole unit's."""
        ...


def shares(allocation: Allocation, epsilon: expect.Number) -> list[tuple[Fraction, NDArray[np.bool_]]]:
    """Each label's epsilon, and which of the kept rows have it; refused where one is too small to tell."""
    whole = expect.positive("epsilon", epsilon)
    divisors = np.unique(allocation.divisor).tolist()
    if divisors and whole / divisors[-1] < LEAST_EPSILON:
        raise BadInput(
            f"expected epsilon >= {float(LEAST_EPSILON):g} for each label, got {float(whole):g} divided by "
            f"{divisors[-1]}: noisy labels would tell nothing"
        )
    return [(whole / divisor, allocation.divisor == divisor) for divisor in divisors]


def pure_release(allocation: Allocation, epsilon: expect.Number, manner: str) -> Release:
    """What leaves when every kept row's label is reported once, each by a mechanism of epsilon / divisor."""
    whole = expect.positive("epsilon", epsilon)
    if allocation.unit.kind is UnitKind.IMPRESSION:
        return NoisyLabels(whole, 1, manner)
    most = allocation.cap.impressions
    if allocation.cap.split is Split.BY_COUNT:
        return NoisyLabels(whole, most, manner)
    return Composed((NoisyLabels(whole / most, 1, manner),), most)
