"""Rates of clicks and conversions from released counts, with intervals that include the noise.

    cell = CountedCell(hits=61.0, shown=1_900.0, counts=4)
    interval = cell.interval(noise_sd=7.0)          # None where the counts are too small to say anything

Counts come with their privacy statement (`EventCounts`). What is computed of them promises the same and spends
nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tacit import expect
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.display import brief
from tacit.schema.contexts.hierarchy import Node

if TYPE_CHECKING:  # it imports SciPy, which servers do without until they need it
    from tacit.privacy.statement import PrivacyStatement

Z = 1.959963984540054
"""Of an interval that holds with 95%."""

FEWEST_SHOWN, DEVIATIONS = 100.0, 4.0
SUPPRESSION = (
    "a rate is withheld where fewer than 100 impressions were counted, or fewer than 4 standard deviations of "
    "the noise in that count"
)


@dataclass(frozen=True)
class CountedCell:
    """Noisy counts of impressions that led to an event, and of all impressions.

    counts  how many pairs (led to it, did not) were released and added up: each has its own noise
    """

    hits: float
    shown: float
    counts: int = 1

    def __add__(self, other: CountedCell) -> CountedCell:
        return CountedCell(self.hits + other.hits, self.shown + other.shown, self.counts + other.counts)

    def hits_interval(self, noise_sd: float) -> tuple[float, float]:
        """Where the true count lies, by the noise alone: what happened is not a sample of something."""
        reach = Z * noise_sd * math.sqrt(self.counts)
        return max(self.hits - reach, 0.0), max(self.hits + reach, 0.0)

    def is_suppressed(self, noise_sd: float) -> bool:
        return self.shown < max(FEWEST_SHOWN, DEVIATIONS * noise_sd * math.sqrt(2 * self.counts))

    def rate(self) -> float:
        return min(max(self.hits / self.shown, 0.0), 1.0)

    def interval(self, noise_sd: float) -> tuple[float, float] | None:
        """Rates p that 95% of samples with their noise would allow: those for which hits - p shown is within
        1.96 standard deviations of 0. Its variance is p (1 - p) shown by sampling, and for each released pair
        of counts noise_sd^2 ((1 - p)^2 + p^2). None where the cell is suppressed.

        >>> low, high = CountedCell(100, 10_000).interval(0.0)
        >>> round(low, 4), round(high, 4)
        (0.0082, 0.0121)
        """
        if self.is_suppressed(noise_sd):
            return None
        hits, shown, square, noise = self.hits, self.shown, Z**2, noise_sd**2 * self.counts
        a = shown**2 + square * (shown - 2 * noise)
        b = -2 * hits * shown - square * (shown - 2 * noise)
        c = hits**2 - square * noise
        root = math.sqrt(max(b * b - 4 * a * c, 0.0))  # a > 0: shown is at least four deviations
        low, high = (-b - root) / (2 * a), (-b + root) / (2 * a)
        return min(max(low, 0.0), self.rate()), max(min(high, 1.0), self.rate())


@dataclass(frozen=True, eq=False)
class EventCounts:
    """What one round released of an event: by campaign and context, with its promise.

    source    which round or version it is
    made      when it was released, in Unix seconds
    noise_sd  the standard deviation of the noise in each count
    """

    event: BidEvent
    source: str
    made: int
    statement: PrivacyStatement
    noise_sd: float
    cells: Mapping[tuple[int, Node], CountedCell] = field(repr=False)

    def __post_init__(self) -> None:
        expect.at_least_zero("noise_sd", self.noise_sd)

    def __repr__(self) -> str:
        return brief(self, event=self.event, source=self.source, cells=len(self.cells))

    def cell(self, campaigns: Iterable[int], node: Node | None = None) -> CountedCell | None:
        """All of some campaigns together, in one context or in all that were counted; None where none was."""
        wanted = set(campaigns)
        found = [
            cell
            for (campaign, at), cell in self.cells.items()
            if campaign in wanted and (node is None or at == node)
        ]
        total = CountedCell(0.0, 0.0, 0)
        for each in found:
            total = total + each
        return total if found else None
