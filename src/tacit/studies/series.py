"""What a figure shows: lines with their intervals, and histograms, checked before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import BadInput
from tacit.studies.look import Mechanism

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Series:
    """A line of one mechanism; `published` figures are hollow diamonds without a line, in its colour. `steps`
    stay at a value up to the next, as counts do.

    Lines of one mechanism under several names share its colour, from full to pale in the order of their names.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    mechanism: Mechanism = Mechanism.OURS
    published: bool = False
    steps: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", Mechanism(self.mechanism))
        if (self.low is None) != (self.high is None):
            raise BadInput(f"series {self.name}: expected low and high together, got one of them")
        rows = np.size(np.asarray(self.x))
        for part in ("x", "y", "low", "high"):
            if getattr(self, part) is None:
                continue
            column = np.asarray(getattr(self, part), dtype=np.float64)
            if column.shape != (rows,) or not rows:
                raise BadInput(f"series {self.name}: expected {part} as long as x ({rows}), got {column.shape}")
            if not np.isfinite(column).all():
                raise BadInput(f"series {self.name}: expected {part} to be finite, got NaN or infinity")
        _, y, low, high = self.columns
        if np.any(low > y) or np.any(y > high):
            raise BadInput(f"series {self.name}: expected low <= y <= high, got a value outside its interval")

    @property
    def columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """x, y, low and high by rising x; without an interval, y in place of its ends."""
        x, y = np.asarray(self.x, np.float64), np.asarray(self.y, np.float64)
        low = y if self.low is None else np.asarray(self.low, np.float64)
        high = y if self.high is None else np.asarray(self.high, np.float64)
        order = np.argsort(x, kind="stable")
        return x[order], y[order], low[order], high[order]


@dataclass(frozen=True)
class Panel:
    title: str
    series: Sequence[Series]


@dataclass(frozen=True)
class Bars:
    """A histogram: a height for each label; `published` heights are hollow diamonds over the bars."""

    title: str
    labels: Sequence[str]
    heights: Sequence[float]
    published: Sequence[float] | None = None

    def __post_init__(self) -> None:
        for name, column in (("heights", self.heights), ("published heights", self.published)):
            if column is None:
                continue
            if len(column) != len(self.labels) or not len(column):
                raise BadInput(f"expected {len(self.labels)} {name} for as many labels, got {len(column)}")
            if not np.isfinite(column).all() or min(column) < 0:
                raise BadInput(f"expected {name} that are finite and >= 0, got another")
