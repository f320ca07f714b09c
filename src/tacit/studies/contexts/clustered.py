"""Precision and coverage, with intervals over people: a person's requests are alike, so people are resampled.

    precision  of the ads that were shown, how many were of the place that was visited
    coverage   of the requests, how many were shown an ad

All arms of a study meet the same requests and the same resamples of people, so that a difference is paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.studies.contexts.trace import Flags, Integers
from tacit.train.evaluation.estimates import Measured

RESAMPLES, LEVEL = 1_000, 0.95
KNOWN = 0.5  # the share of resamples in which a figure must exist
_STREAM = 61

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tally:
    """What each person's requests came to, at each threshold.

    requests  (people,)
    shown     (people, thresholds)
    clicked   (people, thresholds)
    """

    requests: Floats
    shown: Floats
    clicked: Floats

    @classmethod
    def of(cls, user: Integers, shown: Flags, clicked: Flags | Floats, among: Flags | None = None) -> Tally:
        """(requests, thresholds) by person, clicks or their chances; `among` keeps some requests."""
        person = np.unique(user, return_inverse=True)[1]
        people = int(person.max()) + 1
        kept = np.ones(len(user), bool) if among is None else among
        requests = np.bincount(person[kept], minlength=people).astype(np.float64)
        sums = [np.zeros((people, shown.shape[1])) for _ in range(2)]
        for into, flags in zip(sums, (shown, clicked), strict=True):
            np.add.at(into, person[kept], flags[kept])
        return cls(requests, *sums)

    @classmethod
    def together(cls, tallies: Sequence[Tally]) -> Tally:
        """The people of several traces."""
        return cls(*(np.concatenate([getattr(each, part) for each in tallies]) for part in _PARTS))

    @cached_property
    def curves(self) -> tuple[Floats, Floats]:
        """Precision and coverage, each (1 + resamples, thresholds): of all people, then of resampled ones."""
        weights = _resamples(len(self.requests))
        shown, clicked = weights @ self.shown, weights @ self.clicked
        precision = np.divide(clicked, shown, out=np.full_like(shown, np.nan), where=shown > 0)
        requests = (weights @ self.requests)[:, None]
        coverage = np.divide(shown, requests, out=np.full_like(shown, np.nan), where=requests > 0)
        return precision, coverage


@lru_cache(maxsize=4)
def _resamples(people: int) -> Floats:
    """(1 + resamples, people) how often each person counts; first, once."""
    draws = np.random.default_rng([_STREAM, people])
    drawn = draws.multinomial(people, np.full(people, 1 / people), RESAMPLES)
    return np.concatenate([np.ones((1, people)), drawn])


_PARTS = ("requests", "shown", "clicked")

Statistic = Callable[
    [Floats, Floats], Floats
]  # of precision and coverage, (resamples, thresholds), a figure each


def precision_at(coverage: float) -> Statistic:
    """The precision where so much is covered, between thresholds on a line; NaN where it is never reached."""
    return lambda precisions, coverages: _crossing(coverages, precisions, coverage)


def coverage_at(precision: float) -> Statistic:
    """The most that is covered at a threshold, or between two, whose precision is at least so high; else 0."""

    def found(precisions: Floats, coverages: Floats) -> Floats:
        return np.array([_most_covered(*curve, precision) for curve in zip(precisions, coverages, strict=True)])

    return found


def at_threshold(place: int, of: str) -> Statistic:
    """The precision or the coverage at one of the thresholds."""
    return lambda precisions, coverages: (precisions if of == "precision" else coverages)[:, place]


def measured(tally: Tally, statistic: Statistic) -> Measured:
    return interval(statistic(*tally.curves))


def compared(
    one: Tally,
    other: Tally,
    statistic: Statistic,
    by: Callable[[Floats, Floats], Floats] = np.subtract,
    other_statistic: Statistic | None = None,
) -> Measured:
    """How far apart two arms are, people paired."""
    return interval(by(statistic(*one.curves), (other_statistic or statistic)(*other.curves)))


def interval(figures: Floats) -> Measured:
    """A figure of all people, with the middle 95% of what resampled people give."""
    value, resampled = float(figures[0]), figures[1:]
    known = ~np.isnan(resampled)
    if known.mean() < KNOWN:  # what so many resamples could not tell, people as they come could not either
        return Measured(math.nan, math.nan, math.nan, LEVEL)
    low, high = _middle(resampled[known])
    return Measured(value, min(low, value), max(high, value), LEVEL)


def _middle(figures: Floats) -> tuple[float, float]:
    ends = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    if np.isfinite(figures).all():
        low, high = np.quantile(figures, ends)
        return float(low), float(high)
    # There is no point between a number and infinity: outwards to the next.
    return float(np.quantile(figures, ends[0], method="lower")), float(
        np.quantile(figures, ends[1], method="higher")
    )


def _crossing(xs: Floats, ys: Floats, x: float) -> Floats:
    """For each row the y at x, by straight lines between points sorted by x."""
    found = np.full(len(xs), np.nan)
    for row, (across, up) in enumerate(zip(xs, ys, strict=True)):
        known = ~np.isnan(up)
        order = np.argsort(across[known], kind="stable")
        across, up = across[known][order], up[known][order]
        if len(across) and across[0] <= x <= across[-1]:
            found[row] = np.interp(x, across, up)
    return found


def _most_covered(precisions: Floats, coverages: Floats, precision: float) -> float:
    """Thresholds rise: the first place, from the most covered on, where the precision is reached."""
    known = ~np.isnan(precisions)
    up, across = precisions[known], coverages[known]
    for at in range(len(up)):
        if up[at] >= precision:
            if not at or up[at - 1] >= precision:
                return float(across[at])
            share = (precision - up[at - 1]) / (up[at] - up[at - 1])
            return float(across[at - 1] + share * (across[at] - across[at - 1]))
    return 0.0
