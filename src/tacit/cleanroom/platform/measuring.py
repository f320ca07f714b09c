"""Asking the room how well scores do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.platform.link import RoomLink
from tacit.cleanroom.platform.metrics import BINS, Metrics, Positives, ScoreBins, measure
from tacit.cleanroom.platform.sending import Tokens, statistic_slabs
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.requests import Purpose, StatisticRequest
from tacit.errors import BadInput


def ask(
    logits: NDArray[np.floating],
    tokens: Tokens,
    link: RoomLink,
    terms: Terms,
    *,
    task: str,
    run: str,
    number: int,
    bins: int = BINS,
) -> Metrics:
    """AUC, calibration and log loss of these rows.

    Where labels are flipped it costs nothing. In the other modes it is a release of its own: one of those that
    each of these records has.
    """
    if len(logits) != len(tokens):
        raise BadInput(f"expected a logit for each of {len(tokens)} records, got {len(logits)}")
    score_bins = ScoreBins.of(logits, bins)
    cells = score_bins.cell[:, None]
    request = StatisticRequest(
        agreement=terms.digest,
        run=run,
        number=number,
        task=task,
        purpose=Purpose.METRIC,
        rows=len(tokens),
        cells=len(score_bins),
        indices=1,
        cell_weight=1.0,
        features=0,
    )
    answer = link.statistic(request, statistic_slabs(tokens, cells, np.empty((len(tokens), 0), np.float32)))
    keep = terms.keep if terms.mode.flips else 1.0
    return measure(score_bins, Positives(answer.sums, keep, answer.noise_stddev))
