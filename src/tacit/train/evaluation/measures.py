"""AUC, log loss and calibration of predictions, each with its interval, whichever way labels are known.

All three are ratios of sums that are linear in each single label. So an unbiased stand-in for the label,
independent between rows, leaves every sum unbiased: the label itself, the inversion of a flipped one, or the
probability with which it is 1. `Outcomes` says how much each row counts as a positive and as a negative.

AUC is the chance that a random positive scores above a random negative, equal scores counting half. Everything
comes from one sort. With weights a_i for "row i is a positive" and b_j for "row j is a negative",

    AUC = sum_{i != j} a_i b_j above(s_i, s_j) / sum_{i != j} a_i b_j,      above = 1, 1/2 or 0

where a row is never paired with itself: it has one label only, and for flipped labels a_i b_i is not zero on
average.
Source: DeLong, DeLong, Clarke-Pearson 1988 (Biometrics 44); by sorting: Sun, Xu 2014 (IEEE SPL 21).
With one keep probability for all rows, the flipped form is the linear relation between clean and corrupted AUC
of Menon, van Rooyen, Ong, Williamson 2015 (ICML), but for the excluded pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.train.evaluation.intervals import (
    LEVEL,
    Clusters,
    InfluenceEstimate,
    IntervalScale,
    MeasuredValue,
    binary_column,
    number_column,
    probability_column,
    small_sample_factor,
    summed_squares,
    weighted_mean,
)

LEAST_STANDARD_ERRORS = 3
"""From flipped labels, both classes must be this many standard errors away from empty: every figure divides by
their sizes, and its interval takes the error of that to be small."""


class LabelSource(Choice):
    """How labels are known."""

    LABELS = "labels"
    FLIPPED = "flipped labels"
    PROBABILITIES = "known probabilities"


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Labels to measure predictions on, true, flipped or known as probabilities; make it by a class method.

    `positive` stands in for a row's label y, `negative` for 1 - y. Those of flipped labels lie outside [0, 1].
    `cluster` numbers from 0 which rows may depend on one another.
    """

    known: LabelSource
    positive: Floats  # (rows,)
    negative: Floats  # (rows,)
    cluster: Clusters

    __repr__ = brief_repr

    @classmethod
    def of_labels(cls, label: ArrayLike, *, clusters: ArrayLike | None = None) -> Outcomes:
        """Labels as they are, 0 or 1."""
        truth = binary_column("label", label)
        return cls(LabelSource.LABELS, truth, 1 - truth, cluster_ids(clusters, len(truth)))._with_both_classes()

    @classmethod
    def of_flipped(
        cls,
        report: ArrayLike,
        keep_probability: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
    ) -> Outcomes:
        """Labels that randomized response has kept with a known probability, one for all rows or one each.

        Guarantee:  figures cost nothing beyond the release of the reports: they are post-processing of them.
        Neighbours: those of that release, where they leave features as they are (replace label).
        Assumes:    each report is its label with probability `keep_probability`, and independent of other rows;
                    predictions come from public features and released models alone.
        Source:     Menon, van Rooyen, Ong, Williamson 2015 (ICML) for one keep probability; see the module.

        Sums are unbiased, their ratios so but for a term of the order of 1/rows; estimates may lie outside what
        labels allow, such as an AUC above 1. As ever, measure on rows that the model did not train on. Where
        keep probabilities differ, rows near 1/2 bring most of the noise: a `weight` of (2 keep - 1)^2 quiets
        them, and then every figure speaks of a population in which rows count by their weight.
        """
        reported = binary_column("report", report)
        rows = len(reported)
        keep = np.broadcast_to(keep_probability, rows) if np.ndim(keep_probability) == 0 else keep_probability
        keep = probability_column("keep_probability", keep, rows=rows)
        if np.any(keep <= 0.5):
            raise BadInput("expected keep_probability above 1/2, got a row whose report tells nothing")
        weights = np.ones(rows) if weight is None else number_column("weight", weight, rows=rows)
        if np.any(weights <= 0):
            raise BadInput("expected weight > 0 in every row, got another")
        label = unflip(reported, keep)
        made = cls(LabelSource.FLIPPED, weights * label, weights * (1 - label), cluster_ids(clusters, rows))
        return made._with_enough_of_both()

    @classmethod
    def of_probabilities(cls, true_probability: ArrayLike, *, clusters: ArrayLike | None = None) -> Outcomes:
        """The probability of each label, known where the log was made up: figures without the labels' noise."""
        truth = probability_column("true_probability", true_probability)
        made = cls(LabelSource.PROBABILITIES, truth, 1 - truth, cluster_ids(clusters, len(truth)))
        return made._with_both_classes()

    def __len__(self) -> int:
        return len(self.positive)

    @property
    def groups(self) -> int:
        """How many clusters there are; rows, if each is its own."""
        return len(self) if self.cluster is None else int(self.cluster.max()) + 1

    @cached_property
    def positive_groups(self) -> int:
        """How many clusters have a positive."""
        return self._groups_with(self.positive)

    @cached_property
    def negative_groups(self) -> int:
        return self._groups_with(self.negative)

    def mean_of(self, amounts: Floats) -> InfluenceEstimate:
        """The mean over rows, by weight, of amounts that were multiplied by the rows' weights already."""
        return weighted_mean(amounts, self.positive + self.negative, self.cluster)

    def checked_for_intervals(self) -> Outcomes:
        """Refuse what cannot tell how far a figure may be off."""
        for groups, name in ((self.positive_groups, "positive"), (self.negative_groups, "negative")):
            if groups < 2:
                what = "rows" if self.cluster is None else "clusters"
                raise BadInput(f"expected at least two {what} with a {name} for an interval, got {groups}")
        return self

    def _groups_with(self, amounts: Floats) -> int:
        some = amounts != 0
        return int(np.count_nonzero(some) if self.cluster is None else len(np.unique(self.cluster[some])))

    def _with_both_classes(self) -> Outcomes:
        for amounts, name in ((self.positive, "positive"), (self.negative, "negative")):
            if not np.any(amounts):
                raise BadInput(f"expected labels of both classes, got no {name} among {len(self)} rows")
        return self

    def _with_enough_of_both(self) -> Outcomes:
        for amounts, name in ((self.positive, "positives"), (self.negative, "negatives")):
            if not self.mean_of(amounts).stands_out(LEAST_STANDARD_ERRORS):
                raise BadInput(
                    f"expected {name} to stand out from the flips by {LEAST_STANDARD_ERRORS} standard errors, "
                    f"got fewer in {len(self)} rows: more rows, or a larger epsilon, would tell"
                )
        return self


def unflip(report: Floats, keep_probability: Floats) -> Floats:
    """For each report a number, outside [0, 1], whose mean over the flip is the label.

    Source: Warner 1965; for losses: Natarajan, Dhillon, Ravikumar, Tewari 2013 (NeurIPS), Lemma 1.
    """
    return (report - (1 - keep_probability)) / (2 * keep_probability - 1)


def cluster_ids(clusters: ArrayLike | None, rows: int) -> Clusters:
    """Each row's cluster, numbered from 0."""
    if clusters is None:
        return None
    keys = np.asarray(clusters)
    if keys.shape != (rows,):
        raise BadInput(f"expected clusters to have {rows} rows like the labels, got shape {keys.shape}")
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        raise BadInput("expected a cluster for every row, got NaN")
    return np.unique(keys, return_inverse=True)[1]


CLIP = 1e-7
"""Log loss reads predictions no closer to 0 or 1 than this, about what float32 can tell from 1. One confident
mistake then costs at most 16.1."""


def auc(label: ArrayLike, score: ArrayLike) -> float:
    """Area under the ROC curve of scores for labels of 0 or 1; a higher score means likelier.

    >>> auc([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8])
    0.875
    """
    return auc_value(Outcomes.of_labels(label), score)


def expected_auc(score: ArrayLike, true_probability: ArrayLike) -> float:
    """AUC without the noise of labels, where the probability of each label is known.

    The expected number of pairs in the right order over that of all pairs, both exact for independent labels.
    The mean AUC of many draws of labels differs from it by a term of the order of 1/rows.
    """
    return auc_value(Outcomes.of_probabilities(true_probability), score)


def auc_value(outcomes: Outcomes, score: ArrayLike) -> float:
    """Area under the ROC curve on any `Outcomes`, without its interval."""
    positives_above, _, pairs = _pairs(outcomes, score)
    return float(np.dot(outcomes.negative, positives_above) / pairs)


def auc_estimate(outcomes: Outcomes, score: ArrayLike) -> InfluenceEstimate:
    """The AUC with each row's influence: DeLong's structural components, less the AUC.

    Without clusters the variance is DeLong's exactly, and `auc_estimate(o, s).minus(auc_estimate(o, t))` is the
    paired comparison. With clusters it is Obuchowski's, up to the factor (near 1) of the term that joins both
    classes. Degrees of freedom follow Satterthwaite: with few positives, mostly theirs count.
    """
    outcomes.checked_for_intervals()
    positives_above, negatives_below, pairs = _pairs(outcomes, score)
    a, b = outcomes.positive, outcomes.negative
    found = float(np.dot(b, positives_above) / pairs)
    as_positive = (
        a * (negatives_below - found * (b.sum() - b)) / pairs * small_sample_factor(outcomes.positive_groups)
    )
    as_negative = (
        b * (positives_above - found * (a.sum() - a)) / pairs * small_sample_factor(outcomes.negative_groups)
    )
    return InfluenceEstimate(
        found, as_positive + as_negative, outcomes.cluster, _freedom(outcomes, as_positive, as_negative)
    )


def _freedom(outcomes: Outcomes, as_positive: Floats, as_negative: Floats) -> float:
    """Satterthwaite's degrees of freedom for the sum of the two classes' variances."""
    u = summed_squares(as_positive, outcomes.cluster)
    v = summed_squares(as_negative, outcomes.cluster)
    below = u**2 / (outcomes.positive_groups - 1) + v**2 / (outcomes.negative_groups - 1)
    return (u + v) ** 2 / below if below > 0 else outcomes.groups - 1


def _pairs(outcomes: Outcomes, score: ArrayLike) -> tuple[Floats, Floats, float]:
    """For each row the positives above it and the negatives below it, itself left out; and all pairs."""
    expect.kind("outcomes", outcomes, Outcomes)
    scores = number_column("score", score, rows=len(outcomes))
    a, b = outcomes.positive, outcomes.negative
    _, place = np.unique(scores, return_inverse=True)
    positives_above = a.sum() - _below(place, a) - a / 2
    negatives_below = _below(place, b) - b / 2
    pairs = float(a.sum() * b.sum() - np.dot(a, b))
    if pairs <= 0:
        raise BadInput("expected pairs of a positive and a negative, got none")
    return positives_above, negatives_below, pairs


def _below(place: NDArray[np.intp], weight: Floats) -> Floats:
    """The weight of rows with lower scores, plus half of that with the same score (the row itself included)."""
    at_place = np.bincount(place, weight)
    below: Floats = (np.cumsum(at_place) - at_place / 2)[place]
    return below


def auc_loss(outcomes: Outcomes, score: ArrayLike, level: float = LEVEL) -> MeasuredValue:
    """1 - AUC; the interval is symmetric in its logit."""
    loss = _auc_loss(outcomes, score)
    measured = loss.with_interval(level, IntervalScale.LOGIT)
    if outcomes.known is LabelSource.LABELS and loss.value in (0, 1):
        reach = _chance_of_a_first_mistake(outcomes, level)
        low, high = (0.0, reach) if loss.value == 0 else (1 - reach, 1.0)
        return MeasuredValue(loss.value, low, high, level)
    return measured


def log_loss(outcomes: Outcomes, probability: ArrayLike, level: float = LEVEL) -> MeasuredValue:
    """Log loss: the mean of -ln(probability given to what happened), predictions clipped at `CLIP`."""
    return _log_loss(outcomes, probability).with_interval(level, IntervalScale.LOG)


def calibration_ratio(outcomes: Outcomes, probability: ArrayLike, level: float = LEVEL) -> MeasuredValue:
    """Sum predicted over sum observed: above 1, the model promises more than happens."""
    expect.kind("outcomes", outcomes, Outcomes)
    predicted = probability_column("probability", probability, rows=len(outcomes))
    weight = outcomes.positive + outcomes.negative
    promised, happened = outcomes.mean_of(weight * predicted), outcomes.mean_of(outcomes.positive)
    return promised.over(happened).with_interval(level, IntervalScale.LOG)


def relative_auc_loss_percent(
    outcomes: Outcomes, score: ArrayLike, baseline: ArrayLike, level: float = LEVEL
) -> MeasuredValue:
    """100 (AUC loss / the baseline's AUC loss - 1), both on these rows; symmetric in the ratio's logarithm."""
    loss, other = _auc_loss(outcomes, score), _auc_loss(outcomes, baseline)
    if other.value <= 0 and outcomes.known is not LabelSource.FLIPPED:
        raise BadInput("expected a baseline with some AUC loss, got one that ranks perfectly here")
    if outcomes.known is LabelSource.FLIPPED and not other.stands_out(LEAST_STANDARD_ERRORS):
        raise BadInput(
            f"expected a baseline whose AUC loss stands out from the flips by {LEAST_STANDARD_ERRORS} standard "
            f"errors, got less in {len(outcomes)} rows: leave it out, or take more rows"
        )
    ratio = loss.over(other).with_interval(level, IntervalScale.LOG)
    high = ratio.high
    if outcomes.known is LabelSource.LABELS and loss.value == 0:
        high = auc_loss(outcomes, score, level).high / auc_loss(outcomes, baseline, level).low
    return MeasuredValue(100 * (ratio.value - 1), 100 * (ratio.low - 1), 100 * (high - 1), level)


def auc_difference(
    outcomes: Outcomes, score: ArrayLike, baseline: ArrayLike, level: float = LEVEL
) -> MeasuredValue:
    """AUC less the baseline's, on the same rows (DeLong's paired comparison)."""
    return auc_estimate(outcomes, score).minus(auc_estimate(outcomes, baseline)).with_interval(level)


def log_loss_difference(
    outcomes: Outcomes, probability: ArrayLike, baseline: ArrayLike, level: float = LEVEL
) -> MeasuredValue:
    """Log loss less the baseline's, on the same rows."""
    return _log_loss(outcomes, probability).minus(_log_loss(outcomes, baseline)).with_interval(level)


def _auc_loss(outcomes: Outcomes, score: ArrayLike) -> InfluenceEstimate:
    ranked = auc_estimate(outcomes, score)
    return replace(ranked, value=1 - ranked.value, influence=-ranked.influence)


def _log_loss(outcomes: Outcomes, probability: ArrayLike) -> InfluenceEstimate:
    expect.kind("outcomes", outcomes, Outcomes)
    predicted = np.clip(probability_column("probability", probability, rows=len(outcomes)), CLIP, 1 - CLIP)
    losses: Floats = -outcomes.positive * np.log(predicted) - outcomes.negative * np.log1p(-predicted)
    return outcomes.mean_of(losses)


def _chance_of_a_first_mistake(outcomes: Outcomes, level: float) -> float:
    """How large the AUC loss may be where no pair was in the wrong order.

    Influence is zero there, and says nothing. But k pairs without a common cluster are independent: all are in
    order with probability at most (1 - loss)^k.
    """
    disjoint = min(outcomes.positive_groups, outcomes.negative_groups, outcomes.groups // 2)
    return 1 - math.exp(math.log((1 - level) / 2) / disjoint)
