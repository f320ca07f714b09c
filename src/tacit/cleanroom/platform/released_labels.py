"""Release mode: asks the room once for the flipped labels of all records, and trains on them at home."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit.cleanroom.model.examples import ConversionExamples
from tacit.cleanroom.model.learning import LearningProgress, predict, tune_adapter
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.metrics import flipped_positives, refuse_unjoined
from tacit.cleanroom.platform.steps import AdapterPlan, Tokens, token_slabs
from tacit.cleanroom.protocol.answers import AuditReceipt
from tacit.cleanroom.protocol.modes import Mode, statement_after
from tacit.cleanroom.protocol.requests import LabelsRequest, RoomLink
from tacit.errors import BadInput
from tacit.privacy.statement import PrivacyStatement
from tacit.train.evaluation.intervals import MeasuredValue


@dataclass(frozen=True, eq=False)
class ReleasedLabels:
    """Labels that the room flipped, each kept as it was with probability `keep`."""

    labels: NDArray[np.uint8]  # (rows,)
    keep: float
    bytes_sent: int
    bytes_received: int
    receipt: AuditReceipt
    statement: PrivacyStatement

    @property
    def positives(self) -> MeasuredValue:
        """How many of the true labels are 1, as far as the flips let it be known."""
        return flipped_positives(float(self.labels.sum()), len(self.labels), self.keep)


def ask_for_labels(tokens: Tokens, link: RoomLink, *, task: str, run: str) -> ReleasedLabels:
    """One flipped label for each record, in order; asked again, the very same ones."""
    terms = link.describe().terms
    if terms.mode is not Mode.RELEASE:
        raise BadInput(f"expected an agreement of mode release, got {terms.mode}")
    if task not in terms.tasks:
        raise BadInput(f"expected task among the agreed {', '.join(terms.tasks)}, got {task!r}")
    request, slabs = LabelsRequest(terms.digest, run, task, len(tokens)), token_slabs(tokens)
    answer = link.labels(request, slabs)
    return ReleasedLabels(
        answer.labels,
        terms.keep,
        slabs.size + len(request.to_bytes()),
        sum(len(chunk) for chunk in answer.to_chunks()),
        answer.receipt,
        statement_after(terms, link.describe().remaining),
    )


def train_on_released(
    model: ConversionModel,
    adapter: str,
    examples: ConversionExamples,
    tokens: Tokens,
    link: RoomLink,
    plan: AdapterPlan,
    *,
    run: str,
    progress: Callable[[LearningProgress], None] | None = None,
) -> ReleasedLabels:
    """Train the adapter in place on flipped labels, with the plan's loss; the room is asked once."""
    if len(tokens) != len(examples):
        raise BadInput(f"expected a token for each of {len(examples)} examples, got {len(tokens)}")
    released = ask_for_labels(tokens, link, task=plan.task, run=run)
    if plan.least_share:
        predicted = float(expit(predict(model, examples, plan.task).astype(np.float64)).sum())
        refuse_unjoined(released.positives, predicted, len(examples), plan.least_share)
    tune_adapter(
        model, adapter, examples, plan.task, released.labels, plan.learning(len(examples)), loss=plan.loss,
        keep=released.keep, watch=progress,
    )  # fmt: skip
    return released
