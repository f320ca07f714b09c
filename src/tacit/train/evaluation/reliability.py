"""Reliability: what was predicted against what happened, by quantiles of the prediction."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit import expect
from tacit.train.evaluation.checks import probabilities
from tacit.train.evaluation.estimates import LEVEL, Estimate, Measured, t_quantile
from tacit.train.evaluation.outcomes import Known, Outcomes


@dataclass(frozen=True)
class Bin:
    """The rows whose predictions lie from `lowest` to `highest`."""

    lowest: float
    highest: float
    rows: int
    predicted: float
    observed: Measured

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def reliability(
    outcomes: Outcomes, probability: ArrayLike, *, bins: int = 10, level: float = LEVEL
) -> tuple[Bin, ...]:
    """At most `bins` bins of about as many rows each, by prediction from low to high.

    Rows with the same prediction share a bin, so that the table does not depend on the order of rows; a model
    that gives few distinct predictions has fewer bins.
    """
    bins = expect.whole("bins", bins, at_least=1)
    predicted = probabilities("probability", probability, rows=len(outcomes))
    distinct, place, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2  # a prediction goes where the middle of its rows belongs
    bin_of_distinct = np.minimum((middle * bins / len(predicted)).astype(np.intp), bins - 1)
    bin_of = bin_of_distinct[place]
    weight = outcomes.positive + outcomes.negative
    table = []
    for each in np.unique(bin_of_distinct):
        inside, values = bin_of == each, distinct[bin_of_distinct == each]
        table.append(
            Bin(
                lowest=float(values[0]),
                highest=float(values[-1]),
                rows=int(np.count_nonzero(inside)),
                predicted=float(np.average(predicted[inside], weights=weight[inside])),
                observed=_observed(outcomes, inside, level),
            )
        )
    return tuple(table)


def _observed(outcomes: Outcomes, inside: np.ndarray[Any, np.dtype[np.bool_]], level: float) -> Measured:
    """The rate of positives: Wilson's interval for labels, with as many rows as the clusters are worth."""
    weight = outcomes.positive + outcomes.negative
    positive, total = outcomes.positive[inside], float(weight[inside].sum())
    rate = float(positive.sum() / total)
    pulls = np.zeros(len(outcomes))
    pulls[inside] = (positive - rate * weight[inside]) / total
    groups = int(inside.sum()) if outcomes.cluster is None else len(np.unique(outcomes.cluster[inside]))
    estimate = Estimate(rate, pulls, outcomes.cluster, max(groups - 1, 1))
    if outcomes.known is not Known.LABELS:
        return estimate.measured(level)
    worth = rate * (1 - rate) / estimate.variance if estimate.variance > 0 else groups
    z = t_quantile(level, estimate.freedom)
    centre = (rate + z**2 / (2 * worth)) / (1 + z**2 / worth)
    reach = z / (1 + z**2 / worth) * math.sqrt(rate * (1 - rate) / worth + z**2 / (4 * worth**2))
    return Measured(rate, max(centre - reach, 0.0), min(centre + reach, 1.0), level)
