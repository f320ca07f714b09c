"""A value by one bit: rounded at random to one end of a public range, and that end flipped."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoised import FlipKey, words_for
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import Release
from tacit.train.labels.classes import Bins
from tacit.train.labels.flips import unbiased
from tacit.train.labels.mechanism import shares
from tacit.train.targets import Head, Targets

STEPS = 2**32
"""A value is placed on a grid of so many steps from end to end, so that its rounding is drawn exactly."""


@dataclass(frozen=True)
class FlipEnds:
    """Round each value up to `high` or down to `low`, unbiased, then randomized response on the two ends.

    The target has the value itself as its mean, wherever it lies in the range: no bins, no prior. At small
    epsilon its variance is about (range / epsilon)^2, a sixth of that of eight bins; at large epsilon the
    rounding is what remains, and bins are better.

    Guarantee:  the labels of one unit and window are released with at most epsilon in total, however often the
                targets are made again with the same key. The law of a report is a mixture of the two laws of
                randomized response, so no pair of values is further apart than the two ends.
    Neighbours: replace label, for one unit and window.
    Assumes:    what `allocation.allocate` and `memoised.flip_labels` assume; the range is public. Values
                outside it count as its ends.
    Source:     Duchi, Jordan, Wainwright 2018 (arXiv 1604.02390), for a bounded mean.
    """

    low: float
    high: float
    head: Head = Head.SQUARED

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, float(expect.exact(name, getattr(self, name))))
        if not 0 < self.high - self.low < math.inf:
            raise BadInput(f"expected low < high, and a finite range, got {self.low} and {self.high}")
        object.__setattr__(self, "head", self.classes.head)

    @property
    def classes(self) -> Bins:
        """What is reported: one end or the other."""
        return Bins((self.low / 2 + self.high / 2,), (self.low, self.high), self.head)

    def release(self, allocation: Allocation, epsilon: expect.Number) -> Release:
        return allocation.release(epsilon)

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
        steps, ids = self.steps(labels)[allocation.kept], np.asarray(records)[allocation.kept]
        values = np.empty(len(allocation), np.float32)
        for each, rows in shares(allocation, epsilon):
            response = RandomizedResponse.for_epsilon(each)
            spelled = ("ends", str(response.lie_weight), repr(self.low), repr(self.high))
            words = words_for(ids[rows], steps[rows], key, mechanism=spelled, count=2, secret=secret)
            table = [float(target) for target in unbiased(response, (self.low, self.high))]
            values[rows] = np.array(table)[self.report(steps[rows], words, response)]
        return Targets(values, None, allocation.kept.astype(np.int64), self.head)

    def steps(self, labels: ArrayLike) -> NDArray[np.int64]:
        """Where each value lies: 0 for the low end, 2^32 for the high one."""
        self.classes.of(labels)  # refuses what is no number
        inside = np.clip(np.asarray(labels, np.float64), self.low, self.high)
        return np.rint((inside - self.low) / (self.high - self.low) * STEPS).astype(np.int64)

    @staticmethod
    def report(
        steps: NDArray[np.int64], words: NDArray[np.uint64], response: RandomizedResponse
    ) -> NDArray[np.int64]:
        """Which end is reported, from two words each: the first rounds, the second flips."""
        up = (words[:, 0] >> np.uint64(32)).astype(np.int64) < steps
        return response.report(up.astype(np.int64), words[:, 1])
