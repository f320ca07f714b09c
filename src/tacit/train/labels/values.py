"""Labels that are counts or amounts: the best bins under a public prior, or one bit per label.

At small epsilon one bit (`FlipEnds`) has less variance, at large epsilon bins have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.allocation import Allocation
from tacit.privacy.mechanisms.memoisation import FlipKey, keyed_words
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import Release
from tacit.train.labels.mechanism import Bins, Correction, shares
from tacit.train.labels.randomizers import unbiased
from tacit.train.targets import Head, Targets

MOST_VALUES = 512  # the search takes their number cubed
STEPS = 2**32
"""Steps from end to end of the grid that a value is placed on, so that its rounding is drawn exactly."""


def best_bins(
    values: ArrayLike,
    prior: ArrayLike,
    epsilon: expect.Number,
    *,
    correction: Correction,
    head: Head = Head.SQUARED,
) -> Bins:
    """The bins whose reports, read as they are, have the least expected squared error under a public prior.

    `values` ascend, `prior` is the probability of each. For RAW targets the bins' values allow for lies, and no
    other epsilon-DP report of such a label has a smaller expected squared error. For UNBIASED targets the bins
    are the same, and each stands for the mean of what it holds: levels come out right on average, where RAW
    pulls them together.
    Source: Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan, Zhang, ICLR 2023 (arXiv 2212.06074).
    """
    correction = Correction(correction)
    if correction not in (Correction.RAW, Correction.UNBIASED):
        raise BadInput(f"expected raw or unbiased correction of bins, got {correction}")
    points, masses = np.asarray(values, np.float64), np.asarray(prior, np.float64)
    if points.ndim != 1 or len(points) < 2 or len(points) > MOST_VALUES or not np.all(np.diff(points) > 0):
        raise BadInput(f"expected 2..{MOST_VALUES} values, each above the last, got shape {points.shape}")
    if masses.shape != points.shape or np.any(masses < 0) or not math.isclose(masses.sum(), 1, abs_tol=1e-6):
        raise BadInput(f"expected {len(points)} probabilities >= 0 that sum to 1 as prior, got others")
    # The weight of a lie beside a truth.
    lie = math.exp(-min(float(expect.positive("epsilon", epsilon)), 700.0))
    moments = np.cumsum([masses, masses * points, masses * points**2], axis=1)
    moments = np.concatenate([np.zeros((3, 1)), moments], axis=1)
    # A bin [low, high) is reported for all its values with weight 1 and for all others with weight `lie`.
    inside = moments[:, None, :] - moments[:, :, None]  # (3, low, high)
    weight, first, second = lie * moments[:, -1, None, None] + (1 - lie) * inside
    held = np.triu(np.ones(weight.shape, bool), k=1)
    spread = np.where(held, second - first**2 / np.where(held, weight, 1), math.inf)

    least, choices = np.full(len(points) + 1, math.inf), []
    least[0], best, bins = 0.0, math.inf, 0
    for count in range(1, len(points) + 1):
        options = least[:, None] + spread  # (low, high)
        choices.append(np.argmin(options, axis=0))
        least = options.min(axis=0)
        error = least[-1] / (1 + (count - 1) * lie)
        if error < best:
            best, bins = error, count
    if bins < 2:  # one bin tells nothing, and says so most cheaply: two are the least that a response needs
        bins = 2
    stops = [len(points)]
    for count in range(bins, 0, -1):
        stops.append(int(choices[count - 1][stops[-1]]))
    spans = list(pairwise(reversed(stops)))
    edges = tuple(float(points[low - 1] + points[low]) / 2 for low, _ in spans[1:])
    if correction is Correction.RAW:
        return Bins(edges, tuple(float(first[span] / weight[span]) for span in spans), head)
    mass, total, _ = inside
    # A bin that nothing falls into, by the prior, stands for its middle.
    middles = {(low, high): float(points[low:high].mean()) for low, high in spans}
    means = tuple(float(total[span] / mass[span]) if mass[span] > 0 else middles[span] for span in spans)
    return Bins(edges, means, head)


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
    Assumes:    what `allocation.allocate` and `memoisation.flip_labels` assume; the range is public. Values
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
            words = keyed_words(ids[rows], steps[rows], key, mechanism=spelled, count=2, secret=secret)
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
