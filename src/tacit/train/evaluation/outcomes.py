"""How much each row counts as a positive and as a negative, whichever way its label is known.

AUC, log loss and calibration are ratios of sums that are linear in each single label. So an unbiased stand-in
for the label, independent between rows, leaves every sum unbiased: the label itself, the inversion of a flipped
one, or the probability with which it is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.train.evaluation.intervals import (
    Clusters,
    InfluenceEstimate,
    binary_column,
    number_column,
    probability_column,
    small_sample_factor,
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
    """Stand-ins for y (`positive`) and 1 - y (`negative`), row by row; make it with one of the class methods.

    Those of flipped labels lie outside [0, 1]. `cluster` numbers from 0 which rows may depend on one another.
    """

    known: LabelSource
    positive: Floats  # (rows,)
    negative: Floats  # (rows,)
    cluster: Clusters

    @classmethod
    def of_labels(cls, label: ArrayLike, *, clusters: ArrayLike | None = None) -> Outcomes:
        """Labels as they are, 0 or 1."""
        truth = binary_column("label", label)
        return cls(
            LabelSource.LABELS, truth, 1 - truth, _cluster_ids(clusters, len(truth))
        )._with_both_classes()

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
        Source:     Menon, van Rooyen, Ong, Williamson 2015 (ICML) for one keep probability; see the module and
                    `measures`.

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
        made = cls(LabelSource.FLIPPED, weights * label, weights * (1 - label), _cluster_ids(clusters, rows))
        return made._with_enough_of_both()

    @classmethod
    def of_probabilities(cls, true_probability: ArrayLike, *, clusters: ArrayLike | None = None) -> Outcomes:
        """The probability of each label, known where the log was made up: figures without the labels' noise."""
        truth = probability_column("true_probability", true_probability)
        made = cls(LabelSource.PROBABILITIES, truth, 1 - truth, _cluster_ids(clusters, len(truth)))
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
        if self.groups < 2:
            what = "rows" if self.cluster is None else "clusters"
            raise BadInput(f"expected at least two {what} for an interval, got {self.groups}")
        weight = self.positive + self.negative
        mean = amounts.sum() / weight.sum()
        pulls = (amounts - mean * weight) / weight.sum()
        return InfluenceEstimate(
            float(mean), small_sample_factor(self.groups) * pulls, self.cluster, self.groups - 1
        )

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


def _cluster_ids(clusters: ArrayLike | None, rows: int) -> Clusters:
    if clusters is None:
        return None
    keys = np.asarray(clusters)
    if keys.shape != (rows,):
        raise BadInput(f"expected clusters to have {rows} rows like the labels, got shape {keys.shape}")
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        raise BadInput("expected a cluster for every row, got NaN")
    return np.unique(keys, return_inverse=True)[1]
