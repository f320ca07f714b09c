"""Coverage at a precision that noisy statistics still reach, and how much of one arm's another keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import Floats, Tally, compared, coverage_at, measured
from tacit.studies.contexts.contest import Found
from tacit.studies.contexts.figures import said
from tacit.studies.results import Kept
from tacit.train.evaluation.estimates import Measured

PRECISE_ENOUGH = 0.3
NEARLY_ALL = 0.9  # what a minor or mild difference may leave


def kept_share(one: Tally, other: Tally) -> Measured:
    """Of what the other covers; people paired. Nothing where the other covers none."""
    return compared(one, other, coverage_at(PRECISE_ENOUGH), by=_ratio)


def coverages(arms: Mapping[str, Found]) -> tuple[list[tabled.Row], list[tuple[str, str]]]:
    """A table of all arms and parts, and rows for people of all requests."""
    table: list[tabled.Row] = []
    rows = []
    for arm, found in arms.items():
        for part, tally in found.parts().items():
            figure = measured(tally, coverage_at(PRECISE_ENOUGH))
            table.append(tabled.figure(figure, statistics=arm, requests=part, precision=PRECISE_ENOUGH))
            if part == "all":
                rows.append((arm, said(figure)))
    return table, rows


def less(one: str, other: str, precision: float = PRECISE_ENOUGH) -> str:
    """The contrast of two arms."""
    return f"coverage at precision {precision:g}, {one} less {other}"


def share_of(one: str, other: str) -> str:
    return f"coverage at precision {PRECISE_ENOUGH:g}, {one} as a share of {other}"


def covered(kept: Kept, arm: str, precision: float = PRECISE_ENOUGH) -> str:
    """An arm's figure in words."""
    return said(tabled.figure_of(kept, statistics=arm, requests="all", precision=precision))


def nearly_all_kept(share: Measured) -> bool | None:
    if math.isnan(share.value):
        return None
    if share.low >= NEARLY_ALL:
        return True
    return False if share.high < NEARLY_ALL else None


def _ratio(one: Floats, other: Floats) -> Floats:
    return np.divide(one, other, out=np.full_like(one, np.nan), where=other > 0)
