"""AUC: the chance that a random positive scores above a random negative, equal scores counting half.

Everything comes from one sort. With weights a_i for "row i is a positive" and b_j for "row j is a negative",

    AUC = sum_{i != j} a_i b_j above(s_i, s_j) / sum_{i != j} a_i b_j,      above = 1, 1/2 or 0

where a row never meets itself: it has one label only, and for flipped labels a_i b_i is not zero on average.
Source: DeLong, DeLong, Clarke-Pearson 1988 (Biometrics 44); by sorting: Sun, Xu 2014 (IEEE SPL 21).
With one keep probability for all rows, the flipped form is the linear relation between clean and corrupted AUC
of Menon, van Rooyen, Ong, Williamson 2015 (ICML), but for the excluded pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import BadInput
from tacit.train.evaluation.checks import Floats, numbers
from tacit.train.evaluation.estimates import Estimate, small_sample, summed_squares
from tacit.train.evaluation.outcomes import Outcomes


def auc(label: ArrayLike, score: ArrayLike) -> float:
    """AUC of any scores, higher meaning likelier.

    >>> auc([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8])
    0.875
    """
    return value(Outcomes.of_labels(label), score)


def expected_auc(score: ArrayLike, true_probability: ArrayLike) -> float:
    """AUC without the noise of labels, where the probability of each label is known.

    The expected number of pairs in the right order over that of all pairs, both exact for independent labels.
    The mean AUC of many draws of labels differs from it by a term of the order of 1/rows.
    """
    return value(Outcomes.of_probabilities(true_probability), score)


def value(outcomes: Outcomes, score: ArrayLike) -> float:
    """The AUC alone."""
    positives_above, _, pairs = _pairs(outcomes, score)
    return float(np.dot(outcomes.negative, positives_above) / pairs)


def estimate(outcomes: Outcomes, score: ArrayLike) -> Estimate:
    """The AUC with each row's influence: DeLong's structural components, less the AUC.

    Without clusters the variance is DeLong's exactly, and `estimate(o, s).minus(estimate(o, t))` is the paired
    comparison. With clusters it is Obuchowski's, up to the factor (near 1) of the term that joins both classes.
    Degrees of freedom follow Satterthwaite: with few positives, mostly theirs count.
    """
    outcomes.checked_for_intervals()
    positives_above, negatives_below, pairs = _pairs(outcomes, score)
    a, b = outcomes.positive, outcomes.negative
    found = float(np.dot(b, positives_above) / pairs)
    as_positive = a * (negatives_below - found * (b.sum() - b)) / pairs * small_sample(outcomes.positive_groups)
    as_negative = b * (positives_above - found * (a.sum() - a)) / pairs * small_sample(outcomes.negative_groups)
    return Estimate(
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
    scores = numbers("score", score, rows=len(outcomes))
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
