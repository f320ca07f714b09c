"""What a model is trained towards in place of the labels, and the derivative of the loss in its score.

A score z is a logit, the logarithm of a rate, or a value, by its head. Every head's loss is convex in z and
linear in the target y up to a term without z, with the derivative mean(z) - y. So an unbiased target gives an
unbiased gradient, whatever mechanism made it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit.arrays import Floats32
from tacit.errors import BadInput
from tacit.expect import Choice

MOST_SCORE = 30.0  # beyond it e^z only costs precision


class Head(Choice):
    """What a score means."""

    LOGISTIC = "logistic"  # the logit of a probability
    POISSON = "poisson"  # the logarithm of an expected count
    SQUARED = "squared"  # an expected value itself

    def mean(self, scores: Floats32) -> Floats32:
        """The prediction that a score stands for."""
        if self is Head.LOGISTIC:
            probability: Floats32 = expit(scores)
            return probability
        if self is Head.POISSON:
            return np.exp(np.clip(scores, -MOST_SCORE, MOST_SCORE))
        return scores

    def score(self, mean: float) -> float:
        """The score that stands for a prediction."""
        if self is Head.LOGISTIC:
            return math.log(mean / (1 - mean))
        return math.log(mean) if self is Head.POISSON else mean


@dataclass(frozen=True)
class Targets:
    """One target for each of `rows` (places within the examples; None: all of them, in order).

    `keep` is the probability with which each target, then 0 or 1, is the true label: with it the loss is
    corrected forward, by comparing the target with what the model expects a flipped label to be.
    """

    values: Floats32
    keep: Floats32 | None = None
    rows: NDArray[np.int64] | None = None
    head: Head = Head.LOGISTIC

    def __post_init__(self) -> None:
        for name in ("values", "keep"):
            array = getattr(self, name)
            if array is None:
                continue
            if array.dtype != np.float32 or array.ndim != 1:
                raise BadInput(f"expected {name} as a flat array of float32, got {array.dtype} {array.shape}")
            if not np.all(np.isfinite(array)):
                raise BadInput(f"expected finite {name}, got one that is not")
        if self.keep is not None:
            if self.head is not Head.LOGISTIC:
                raise BadInput(f"expected a logistic head for forward correction, got {self.head}")
            if self.keep.shape != self.values.shape:
                raise BadInput(f"expected {len(self.values)} keep probabilities, got {len(self.keep)}")
            if np.any(self.keep <= 0.5) or np.any(self.keep > 1):
                raise BadInput("expected keep probabilities above 1/2 and at most 1, got another")
        if self.rows is not None and self.rows.shape != self.values.shape:
            raise BadInput(f"expected {len(self.values)} rows for the targets, got {self.rows.shape}")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        """An estimate of the mean label, from the targets alone."""
        values = self.values.astype(np.float64)
        if self.keep is not None:
            keep = self.keep.astype(np.float64)
            values = (values - (1 - keep)) / (2 * keep - 1)
        return float(values.mean()) if len(values) else 0.0

    def residual(self, scores: Floats32, at: NDArray[np.int64]) -> Floats32:
        """The derivative of each example's loss in its score; `at` are places within the targets."""
        y = self.values[at]
        mean = self.head.mean(scores)
        if self.keep is None:
            return mean - y
        keep = self.keep[at]
        reported = _report_chance(mean, keep)
        # q(1 - q) / (r(1 - r)), which tends to 1 where nothing is flipped.
        spread, reported_spread = mean * (1 - mean), reported * (1 - reported)
        ratio = np.divide(spread, reported_spread, out=np.ones_like(spread), where=reported_spread > 0)
        slope: Floats32 = (reported - y) * (2 * keep - 1) * ratio
        return slope

    def losses(self, scores: Floats32, at: NDArray[np.int64]) -> NDArray[np.float64]:
        """The loss of each of these places, up to a term without scores."""
        z, y = scores.astype(np.float64), self.values[at].astype(np.float64)
        if self.keep is not None:
            mean = np.clip(self.head.mean(scores).astype(np.float64), 1e-12, 1 - 1e-12)
            reported = _report_chance(mean, self.keep[at].astype(np.float64))
            return np.asarray(-y * np.log(reported) - (1 - y) * np.log1p(-reported))
        if self.head is Head.LOGISTIC:
            return np.asarray(np.logaddexp(0, z) - y * z)
        if self.head is Head.POISSON:
            return np.asarray(np.exp(np.clip(z, -MOST_SCORE, MOST_SCORE)) - y * z)
        return np.asarray(0.5 * (z - y) ** 2)


def _report_chance(mean: NDArray[np.floating], keep: NDArray[np.floating]) -> NDArray[np.floating]:
    """The chance that a flipped label is 1, where the label itself is 1 with probability `mean`."""
    return (1 - keep) + (2 * keep - 1) * mean
