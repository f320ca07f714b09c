"""Figures and contrasts as rows of a study's table, and back: verdicts are read from what the table holds.

A contrast is the difference of two arms, people paired; the table has its interval, since those of the two arms
do not give it. An empty end of an interval is open; where all is empty there was nothing to measure.
"""

from __future__ import annotations

import math
from typing import Any

from tacit.errors import BadInput
from tacit.studies.contexts.clustered import LEVEL
from tacit.studies.results import Cell, Kept
from tacit.train.evaluation.estimates import Measured

FIGURE, CONTRAST = "figure", "contrast"

Row = dict[str, Any]


def figure(found: Measured, **labels: Cell) -> Row:
    return {"kind": FIGURE, **labels, **_cells(found)}


def contrast(name: str, found: Measured) -> Row:
    return {"kind": CONTRAST, "contrast": name, **_cells(found)}


def figure_of(kept: Kept, **labels: Cell) -> Measured:
    """The figure with these labels."""
    return _only(kept, {"kind": FIGURE, **labels})


def contrast_of(kept: Kept, name: str) -> Measured:
    return _only(kept, {"kind": CONTRAST, "contrast": name})


def _cells(found: Measured) -> dict[str, float | None]:
    if math.isnan(found.value):
        return dict.fromkeys(found.as_json())
    return {name: each if math.isfinite(each) else None for name, each in found.as_json().items()}


def _only(kept: Kept, labels: Row) -> Measured:
    found = [row for row in kept.rows if all(row.get(name) == each for name, each in labels.items())]
    if len(found) != 1:
        raise BadInput(f"expected one row with {labels} in the table, got {len(found)}")
    value, low, high = (found[0][name] for name in ("value", "low", "high"))
    if value is None and low is None and high is None:
        return Measured(math.nan, math.nan, math.nan, LEVEL)
    return Measured(_end(value, math.inf), _end(low, -math.inf), _end(high, math.inf), LEVEL)


def _end(cell: Cell, otherwise: float) -> float:
    return otherwise if cell is None else float(cell)
