"""All figures of one model on one set of rows, beside a baseline's: of probabilities, with their reliability
table, or of values."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.display import brief, html_table
from tacit.errors import BadInput
from tacit.train.evaluation import measures
from tacit.train.evaluation.intervals import (
    LEVEL,
    InfluenceEstimate,
    IntervalScale,
    MeasuredValue,
    number_column,
    probability_column,
    t_quantile,
    weighted_mean,
)
from tacit.train.evaluation.measures import LabelSource, Outcomes, cluster_ids

FIGURE_NAMES = {
    "auc_loss": "AUC loss",
    "log_loss": "log loss",
    "calibration_ratio": "predicted / observed",
    "relative_auc_loss_percent": "AUC loss against baseline, %",
    "auc_difference": "AUC less baseline's",
    "log_loss_difference": "log loss less baseline's",
}
VALUE_FIGURE_NAMES = {
    "mean_squared_error": "mean squared error",
    "explained": "variance explained",
    "calibration_ratio": "predicted / observed",
    "mean_squared_error_difference": "mean squared error less baseline's",
}


@dataclass(frozen=True)
class Evaluation:
    """All figures of one model: AUC, log loss, calibration and reliability, with their intervals, and on what
    they were measured. The last three are there if there was a baseline."""

    known: LabelSource
    rows: int
    clusters: int | None
    positive_rate: float
    auc_loss: MeasuredValue
    log_loss: MeasuredValue
    calibration_ratio: MeasuredValue
    relative_auc_loss_percent: MeasuredValue | None = None
    auc_difference: MeasuredValue | None = None
    log_loss_difference: MeasuredValue | None = None

    def __repr__(self) -> str:
        figures = {name: float(f"{each.value:.4g}") for name, each in self.figures().items()}
        return brief(self, rows=self.rows, measured_on=str(self.known), **figures)

    def _repr_html_(self) -> str:
        level = f"{self.auc_loss.level:.0%}"
        head = ["", "value", f"{level} from", "to"]
        note = f"{self.rows:,} rows, measured on {self.known}. Exact figures on private labels are not private."
        return html_table("Evaluation", head, self.table(), note=note)

    @property
    def auc(self) -> MeasuredValue:
        loss = self.auc_loss
        return MeasuredValue(1 - loss.value, 1 - loss.high, 1 - loss.low, loss.level)

    def figures(self) -> dict[str, MeasuredValue]:
        """By name; without a baseline, what it would be needed for is left out."""
        every = {"auc": self.auc, **{name: getattr(self, name) for name in FIGURE_NAMES}}
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
            (FIGURE_NAMES.get(name, "AUC"), f"{each.value:.5g}", f"{each.low:.5g}", f"{each.high:.5g}")
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
    return evaluate_outcomes(Outcomes.of_labels(label, clusters=clusters), probability, baseline, level)


def evaluate_outcomes(
    outcomes: Outcomes, probability: ArrayLike, baseline: ArrayLike | None = None, level: float = LEVEL
) -> Evaluation:
    """All figures, whichever way the labels are known: by themselves, flipped, or by their probabilities."""
    predicted = probability_column("probability", probability, rows=len(outcomes))
    compared: dict[str, MeasuredValue] = {}
    if baseline is not None:
        other = probability_column("baseline", baseline, rows=len(outcomes))
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


@dataclass(frozen=True)
class ValueEvaluation:
    """What was measured of predictions of counts or amounts; the last figure is there if there was a baseline.

    `explained` is one less the mean squared error as a part of the variance, which is what the mean would make.
    """

    rows: int
    clusters: int | None
    mean: float
    mean_squared_error: MeasuredValue
    explained: MeasuredValue
    calibration_ratio: MeasuredValue
    mean_squared_error_difference: MeasuredValue | None = None

    def figures(self) -> dict[str, MeasuredValue]:
        every = {name: getattr(self, name) for name in VALUE_FIGURE_NAMES}
        return {name: measured for name, measured in every.items() if measured is not None}

    def as_json(self) -> dict[str, Any]:
        figures = {name: measured.as_json() for name, measured in self.figures().items()}
        known = {"measured_on": str(LabelSource.LABELS), "rows": self.rows, "clusters": self.clusters}
        return {**known, "mean": self.mean, **figures}

    def table(self) -> list[tuple[str, str, str, str]]:
        """Name, value, low and high of each figure, for people."""
        return [
            (VALUE_FIGURE_NAMES[name], f"{each.value:.5g}", f"{each.low:.5g}", f"{each.high:.5g}")
            for name, each in self.figures().items()
        ]


def evaluate_values(
    label: ArrayLike,
    prediction: ArrayLike,
    *,
    baseline: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = LEVEL,
) -> ValueEvaluation:
    """Measure predictions of counts or amounts; `clusters` names, row by row, whose rows belong together.

    On private labels the figures are exact and not private: to publish them is a release.
    """
    value = number_column("label", label)
    predicted = number_column("prediction", prediction, rows=len(value))
    cluster, ones = cluster_ids(clusters, len(value)), np.ones(len(value))
    error = weighted_mean((predicted - value) ** 2, ones, cluster)
    spread = weighted_mean((value - value.mean()) ** 2, ones, cluster)
    observed = weighted_mean(value, ones, cluster)
    if spread.value == 0 or observed.value == 0:
        raise BadInput("expected values that differ, and whose mean is not 0, got others")
    rest = error.over(spread)
    explained = replace(rest, value=1 - rest.value, influence=-rest.influence)
    difference = None
    if baseline is not None:
        other = number_column("baseline", baseline, rows=len(value))
        difference = error.minus(weighted_mean((other - value) ** 2, ones, cluster)).with_interval(level)
    return ValueEvaluation(
        rows=len(value),
        clusters=None if cluster is None else int(cluster.max()) + 1,
        mean=observed.value,
        mean_squared_error=error.with_interval(level, IntervalScale.LOG),
        explained=explained.with_interval(level),
        calibration_ratio=weighted_mean(predicted, ones, cluster).over(observed).with_interval(level),
        mean_squared_error_difference=difference,
    )


@dataclass(frozen=True)
class ReliabilityBin:
    """The rows whose predictions lie from `lowest` to `highest`."""

    lowest: float
    highest: float
    rows: int
    predicted: float
    observed: MeasuredValue

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def reliability_table(
    outcomes: Outcomes, probability: ArrayLike, *, bins: int = 10, level: float = LEVEL
) -> tuple[ReliabilityBin, ...]:
    """At most `bins` bins of about as many rows each, by prediction from low to high.

    Rows with the same prediction share a bin, so that the table does not depend on the order of rows; a model
    that gives few distinct predictions has fewer bins.
    """
    bins = expect.whole("bins", bins, at_least=1)
    predicted = probability_column("probability", probability, rows=len(outcomes))
    distinct, place, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2  # a prediction goes where the middle of its rows belongs
    bin_of_distinct = np.minimum((middle * bins / len(predicted)).astype(np.intp), bins - 1)
    bin_of = bin_of_distinct[place]
    weight = outcomes.positive + outcomes.negative
    table = []
    for each in np.unique(bin_of_distinct):
        inside, values = bin_of == each, distinct[bin_of_distinct == each]
        table.append(
            ReliabilityBin(
                lowest=float(values[0]),
                highest=float(values[-1]),
                rows=int(np.count_nonzero(inside)),
                predicted=float(np.average(predicted[inside], weights=weight[inside])),
                observed=_observe_rate(outcomes, inside, level),
            )
        )
    return tuple(table)


def _observe_rate(
    outcomes: Outcomes, inside: np.ndarray[Any, np.dtype[np.bool_]], level: float
) -> MeasuredValue:
    """The rate of positives: Wilson's interval for labels, with as many rows as the clusters are worth."""
    weight = outcomes.positive + outcomes.negative
    positive, total = outcomes.positive[inside], float(weight[inside].sum())
    rate = float(positive.sum() / total)
    pulls = np.zeros(len(outcomes))
    pulls[inside] = (positive - rate * weight[inside]) / total
    groups = int(inside.sum()) if outcomes.cluster is None else len(np.unique(outcomes.cluster[inside]))
    estimate = InfluenceEstimate(rate, pulls, outcomes.cluster, max(groups - 1, 1))
    if outcomes.known is not LabelSource.LABELS:
        return estimate.with_interval(level)
    worth = rate * (1 - rate) / estimate.variance if estimate.variance > 0 else groups
    z = t_quantile(level, estimate.freedom)
    centre = (rate + z**2 / (2 * worth)) / (1 + z**2 / worth)
    reach = z / (1 + z**2 / worth) * math.sqrt(rate * (1 - rate) / worth + z**2 / (4 * worth**2))
    return MeasuredValue(rate, max(centre - reach, 0.0), min(centre + reach, 1.0), level)
