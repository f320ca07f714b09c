"""How much of one arm's coverage another keeps, at a precision that noisy statistics still reach."""

from __future__ import annotations

import math

import numpy as np

from tacit.studies.contexts.clustered import Floats, Tally, compared, coverage_at
from tacit.train.evaluation.estimates import Measured

PRECISE_ENOUGH = 0.3
NEARLY_ALL = 0.9  # what a minor or mild difference may leave


def kept_share(one: Tally, other: Tally) -> Measured:
    """Of what the other covers; people paired. Nothing where the other covers none."""
    return compared(one, other, coverage_at(PRECISE_ENOUGH), by=_ratio)


def nearly_all_kept(share: Measured) -> bool | None:
    if math.isnan(share.value):
        return None
    if share.low >= NEARLY_ALL:
        return True
    return False if share.high < NEARLY_ALL else None


def _ratio(one: Floats, other: Floats) -> Floats:
    return np.divide(one, other, out=np.full_like(one, np.nan), where=other > 0)
