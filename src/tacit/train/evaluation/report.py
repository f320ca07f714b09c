"""All figures of one model on one set of rows, beside a baseline's on the same rows if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from tacit.train.evaluation import measures
from tacit.train.evaluation.checks import probabilities
from tacit.train.evaluation.estimates import LEVEL, Measured
from tacit.train.evaluation.outcomes import Known, Outcomes

NAMES = {
    "auc_loss": "AUC loss",
    "log_loss": "log loss",
    "calibration_ratio": "predicted / observed",
    "relative_auc_loss_percent": "AUC loss against baseline, %",
    "auc_difference": "AUC less baseline's",
    "log_loss_difference": "log loss less baseline's",
}


@dataclass(frozen=True)
class Evaluation:
    """What was measured, on what. The last three figures are there if there was a baseline."""

    known: Known
    rows: int
    clusters: int | None
    positive_rate: float
    auc_loss: Measured
    log_loss: Measured
    calibration_ratio: Measured
    relative_auc_loss_percent: Measured | None = None
    auc_difference: Measured | None = None
    log_loss_difference: Measured | None = None

    @property
    def auc(self) -> Measured:
        loss = self.auc_loss
        return Measured(1 - loss.value, 1 - loss.high, 1 - loss.low, loss.level)

    def figures(self) -> dict[str, Measured]:
        """By name; without a baseline, what it would be needed for is left out."""
        every = {"auc": self.auc, **{name: getattr(self, name) for name in NAMES}}
        return {name: measured for name, measured in every.items() if measured is not None}

    def as_json(self) -> dict[str, Any]:
        return {
            "measured_on": str(self.known),
            "rows": self.rows,
            "clusters": self.clusters,
            "positive_rate": self.positive_rate,
            **{name: measured.as_json() for name, measured in self.figures().items()},
        }

    def table(self) -> list[tuple[str, str, str, str]]:
        """Name, value, low and high of each figure, for people."""
        return [
            (NAMES.get(name, "AUC"), f"{each.value:.5g}", f"{each.low:.5g}", f"{each.high:.5g}")
            for name, each in self.figures().items()
        ]


def evaluate(
    label: ArrayLike,
    probability: ArrayLike,
    *,
    baseline: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = LEVEL,
) -> Evaluation:
    """Measure predictions against labels; `clusters` names, row by row, whose rows belong together.

    On private labels the figures are exact and not private: to publish them is a release.
    """
    return of_outcomes(Outcomes.of_labels(label, clusters=clusters), probability, baseline, level)


def from_flipped(
    report: ArrayLike,
    keep_probability: ArrayLike,
    probability: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    baseline: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = LEVEL,
) -> Evaluation:
    """The same figures, for the labels behind flipped ones: no more is learnt than the reports tell already.

    Guarantee:  costs nothing beyond the release of the reports: it is post-processing of them.
    Neighbours: those of that release, where they leave features as they are (replace label).
    Assumes:    each report is its label with probability `keep_probability` (one for all, or row by row), and
                independent of other rows; predictions come from public features and released models alone.
    Source:     Menon, van Rooyen, Ong, Williamson 2015 (ICML) for one keep probability; see `outcomes`, `auc`.

    Sums are unbiased, their ratios so but for a term of the order of 1/rows; estimates may lie outside what
    labels allow, such as an AUC above 1. As ever, measure on rows that the model did not train on.
    For `weight`, see `Outcomes.of_flipped`.
    """
    outcomes = Outcomes.of_flipped(report, keep_probability, weight=weight, clusters=clusters)
    return of_outcomes(outcomes, probability, baseline, level)


def from_known(
    true_probability: ArrayLike,
    probability: ArrayLike,
    *,
    baseline: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = LEVEL,
) -> Evaluation:
    """The same figures without the labels' noise, where a made-up log says how likely each label was."""
    outcomes = Outcomes.of_probabilities(true_probability, clusters=clusters)
    return of_outcomes(outcomes, probability, baseline, level)


def of_outcomes(
    outcomes: Outcomes, probability: ArrayLike, baseline: ArrayLike | None = None, level: float = LEVEL
) -> Evaluation:
    """All figures, whichever way the labels are known."""
    predicted = probabilities("probability", probability, rows=len(outcomes))
    compared: dict[str, Measured] = {}
    if baseline is not None:
        other = probabilities("baseline", baseline, rows=len(outcomes))
        compared = {
            "relative_auc_loss_percent": measures.relative_auc_loss_percent(outcomes, predicted, other, level),
            "auc_difference": measures.auc_difference(outcomes, predicted, other, level),
            "log_loss_difference": measures.log_loss_difference(outcomes, predicted, other, level),
        }
    return Evaluation(
        known=outcomes.known,
        rows=len(outcomes),
        clusters=None if outcomes.cluster is None else outcomes.groups,
        positive_rate=outcomes.mean_of(outcomes.positive).value,
        auc_loss=measures.auc_loss(outcomes, predicted, level),
        log_loss=measures.log_loss(outcomes, predicted, level),
        calibration_ratio=measures.calibration_ratio(outcomes, predicted, level),
        **compared,
    )
