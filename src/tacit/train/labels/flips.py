"""Labels by randomized response, and what a flipped label is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoised import FlipKey
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import Release
from tacit.train.labels.classes import BINARY, Classes
from tacit.train.labels.mechanism import Correction, shares
from tacit.train.targets import Targets


@dataclass(frozen=True)
class FlipLabels:
    """Randomized response on each kept label, drawn once per record and key.

    `correction` None is FORWARD for labels of 0 or 1, and UNBIASED for bins.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total, however often the
                targets are made again with the same key.
    Neighbours: replace label, for one unit and window.
    Assumes:    what `allocation.allocate` and `memoised.flip_labels` assume; the classes are public.
    Source:     Warner 1965; Kairouz, Bonawitz, Ramage 2016 (arXiv 1602.07387); forward and unbiased correction:
                Natarajan, Dhillon, Ravikumar, Tewari, NeurIPS 2013; Patrini et al., CVPR 2017 (arXiv
                1609.03683).
    """

    classes: Classes = BINARY
    correction: Correction | None = None

    def __post_init__(self) -> None:
        two = self.classes == BINARY
        chosen = self.correction or (Correction.FORWARD if two else Correction.UNBIASED)
        object.__setattr__(self, "correction", Correction(chosen))
        if self.correction is Correction.FORWARD and not two:
            raise BadInput("expected labels of 0 or 1 for forward correction, got bins: use unbiased or raw")
        if self.correction is Correction.POSTERIOR:
            raise BadInput(
                "expected raw, unbiased or forward correction of flips, got posterior: it needs a prior"
            )

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        return allocation.release(epsilon, len(self.classes.values))

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
        truth, count = self.classes.of(labels), len(self.classes.values)
        values = np.empty(len(allocation), np.float32)
        keep = np.empty(len(allocation), np.float32)
        budgets = shares(allocation, epsilon)
        flipped = allocation.flip(truth, records, epsilon, key=key, secret=secret, classes=count)
        for each, rows in budgets:
            response = RandomizedResponse.for_epsilon(each, count)
            table = self.classes.values
            if self.correction is Correction.UNBIASED:
                table = tuple(float(target) for target in unbiased(response, table))
            values[rows] = np.array(table)[flipped[rows]]
            keep[rows] = float(response.truth)
        forward = self.correction is Correction.FORWARD
        return Targets(values, keep if forward else None, allocation.kept.astype(np.int64), self.classes.head)


def unbiased(response: RandomizedResponse, values: Sequence[float]) -> tuple[Fraction, ...]:
    """The target for each report, such that its mean over reports is the true class's value, exactly.

    A report has the mean lie * sum(values) + (truth - lie) * value, which is linear in the value.
    """
    exact = [Fraction(value) for value in values]
    gain = response.truth - response.lie
    if gain == 0:
        raise BadInput("expected truth > lie, got a response that carries no information")
    return tuple((value - response.lie * sum(exact)) / gain for value in exact)
