"""A model that was trained anew, beside the one in use: measured on the same rows, and put in use or not.

The rule, stated beforehand: on rows that neither was trained on, the new model's log loss minus that of the one
in use has a 95% interval that reaches down to 0 or below. So a model that is clearly worse stays out, and one
that cannot be told apart goes in, being made of newer data. Where none is in use, its log loss must be below
that of saying the mean rate to everybody.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import BadInput
from tacit.services.ads.rate_models import unpack_model

PART = "test"


@dataclass(frozen=True)
class RolloutDecision:
    """Whether a model is put in use, why, and the figures that decided."""

    use: bool
    why: str
    evaluation: dict[str, Any] | None


def decide_rollout(
    folder: Path,
    in_use: bytes | None,
    data: Path,
    *,
    part: str = PART,
    labels_are_public: bool = False,
    flips: Any = None,
    ledger: Any = None,
    now: int | None = None,
) -> RolloutDecision:
    """Hold the model of a folder to the packed one in use, on a part of a prepared log.

    With `flips` the figures are of labels that were flipped once, which a ledger pays for (`evaluate_model`).
    What cannot be compared, as a model of another encoder, is not put in use.
    """
    from tacit.train.evaluation.report import Evaluation
    from tacit.train.job.model_evaluation import evaluate_model

    with tempfile.TemporaryDirectory() as place:
        baseline = None
        if in_use is not None:
            baseline = Path(place)
            unpack_model(in_use, baseline)
        try:
            found = evaluate_model(
                folder, data, part=part, baseline=baseline, labels_are_public=labels_are_public, flips=flips,
                ledger=ledger, now=now,
            )  # fmt: skip
        except BadInput as wrong:
            said = str(wrong).replace(place, "the model in use")
            return RolloutDecision(False, f"it cannot be compared with the one in use: {said}", None)
    evaluation = found.evaluation
    if not isinstance(evaluation, Evaluation):
        return RolloutDecision(False, "it predicts no probabilities", None)
    use, why = judge_rollout(
        evaluation.log_loss_difference, evaluation.log_loss.value, evaluation.positive_rate
    )
    return RolloutDecision(use, why, {**evaluation.as_json(), "part": part, "notes": list(found.notes)})


def judge_rollout(difference: Any, log_loss: float, positive_rate: float) -> tuple[bool, str]:
    """The rule, on figures: `difference` is that of the log losses, new minus in use; None without one in use.

    >>> judge_rollout(None, 0.2, 0.1)[0], judge_rollout(None, 0.4, 0.1)[0]
    (True, False)
    """
    if difference is None:
        constant = _entropy(positive_rate)
        if log_loss < constant:
            return (
                True,
                f"none was in use, and its log loss {log_loss:.5g} is below a constant's {constant:.5g}",
            )
        return False, f"its log loss {log_loss:.5g} is not below that of the mean rate alone, {constant:.5g}"
    told = (
        f"log loss minus that of the one in use: {difference.value:.3g}, 95% interval {difference.low:.3g} to "
    )
    told += f"{difference.high:.3g}"
    if difference.low <= 0:
        return True, f"it is not worse ({told})"
    return False, f"it is worse ({told})"


def _entropy(rate: float) -> float:
    if not 0 < rate < 1:
        return 0.0
    return -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
