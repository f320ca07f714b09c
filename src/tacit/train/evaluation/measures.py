"""The figures that a model is judged by, each with its interval."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import BadInput
from tacit.train.evaluation import auc
from tacit.train.evaluation.checks import Floats, probabilities
from tacit.train.evaluation.estimates import LEVEL, Estimate, Measured, Scale
from tacit.train.evaluation.outcomes import LEAST_STANDARD_ERRORS, Known, Outcomes

__all__ = [
    "CLIP", "Measured", "auc_difference", "auc_loss", "calibration_ratio", "log_loss", "log_loss_difference",
    "relative_auc_loss_percent",
]  # fmt: skip

CLIP = 1e-7
"""Log loss reads predictions no closer to 0 or 1 than this, about what float32 can tell from 1. One confident
mistake then costs at most 16.1."""


def auc_loss(outcomes: Outcomes, score: ArrayLike, level: float = LEVEL) -> Measured:
    """1 - AUC; the interval is symmetric in its logit."""
    loss = _auc_loss(outcomes, score)
    measured = loss.measured(level, Scale.LOGIT)
    if outcomes.known is Known.LABELS and loss.value in (0, 1):
        reach = _chance_of_a_first_mistake(outcomes, level)
        low, high = (0.0, reach) if loss.value == 0 else (1 - reach, 1.0)
        return Measured(loss.value, low, high, level)
    return measured


def log_loss(outcomes: Outcomes, probability: ArrayLike, level: float = LEVEL) -> Measured:
    """The mean of -ln(probability given to what happened), predictions clipped at `CLIP`."""
    return _log_loss(outcomes, probability).measured(level, Scale.LOG)


def calibration_ratio(outcomes: Outcomes, probability: ArrayLike, level: float = LEVEL) -> Measured:
    """Sum predicted over sum observed: above 1, the model promises more than happens."""
    predicted = probabilities("probability", probability, rows=len(outcomes))
    weight = outcomes.positive + outcomes.negative
    promised, happened = outcomes.mean_of(weight * predicted), outcomes.mean_of(outcomes.positive)
    return promised.over(happened).measured(level, Scale.LOG)


def relative_auc_loss_percent(
    outcomes: Outcomes, score: ArrayLike, baseline: ArrayLike, level: float = LEVEL
) -> Measured:
    """100 (AUC loss / the baseline's AUC loss - 1), both on these rows; symmetric in the ratio's logarithm."""
    loss, other = _auc_loss(outcomes, score), _auc_loss(outcomes, baseline)
    if other.value <= 0 and outcomes.known is not Known.FLIPPED:
        raise BadInput("expected a baseline with some AUC loss, got one that ranks perfectly here")
    if outcomes.known is Known.FLIPPED and not other.stands_out(LEAST_STANDARD_ERRORS):
        raise BadInput(
            f"expected a baseline whose AUC loss stands out from the flips by {LEAST_STANDARD_ERRORS} standard "
            f"errors, got less in {len(outcomes)} rows: leave it out, or take more rows"
        )
    ratio = loss.over(other).measured(level, Scale.LOG)
    high = ratio.high
    if outcomes.known is Known.LABELS and loss.value == 0:
        high = auc_loss(outcomes, score, level).high / auc_loss(outcomes, baseline, level).low
    return Measured(100 * (ratio.value - 1), 100 * (ratio.low - 1), 100 * (high - 1), level)


def auc_difference(outcomes: Outcomes, score: ArrayLike, baseline: ArrayLike, level: float = LEVEL) -> Measured:
    """AUC less the baseline's, on the same rows (DeLong's paired comparison)."""
    return auc.estimate(outcomes, score).minus(auc.estimate(outcomes, baseline)).measured(level)


def log_loss_difference(
    outcomes: Outcomes, probability: ArrayLike, baseline: ArrayLike, level: float = LEVEL
) -> Measured:
    """Log loss less the baseline's, on the same rows."""
    return _log_loss(outcomes, probability).minus(_log_loss(outcomes, baseline)).measured(level)


def _auc_loss(outcomes: Outcomes, score: ArrayLike) -> Estimate:
    ranked = auc.estimate(outcomes, score)
    return replace(ranked, value=1 - ranked.value, influence=-ranked.influence)


def _log_loss(outcomes: Outcomes, probability: ArrayLike) -> Estimate:
    predicted = np.clip(probabilities("probability", probability, rows=len(outcomes)), CLIP, 1 - CLIP)
    losses: Floats = -outcomes.positive * np.log(predicted) - outcomes.negative * np.log1p(-predicted)
    return outcomes.mean_of(losses)


def _chance_of_a_first_mistake(outcomes: Outcomes, level: float) -> float:
    """How large the AUC loss may be where no pair was in the wrong order.

    Influence is zero there, and says nothing. But k pairs without a common cluster are independent: all are in
    order with probability at most (1 - loss)^k.
    """
    disjoint = min(outcomes.positive_groups, outcomes.negative_groups, outcomes.groups // 2)
    return 1 - math.exp(math.log((1 - level) / 2) / disjoint)
