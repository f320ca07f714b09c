"""Precision and coverage with bootstrap intervals over people: measured, tabulated, drawn and judged.

    precision  the share of shown ads that were of the place that was visited
    coverage   the share of requests that were shown an ad

A person's requests are alike, so people are resampled. All arms of a study meet the same requests and the
same resamples of people, so that a difference is paired.

A log may be too small for some figures: a precision where nothing was shown, first visits where there are
none. Such a figure is NaN, and is left out of lines, empty in a table, and said in words. A contrast is the
difference of two arms, people paired; the table has its interval, since those of the two arms do not give
it. An empty end of an interval is open; where all is empty there was nothing to measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tacit.arrays import Flags, Floats, Integers
from tacit.errors import BadInput
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.results import Cell, ResultFiles
from tacit_lab.studies.runs import words

RESAMPLES, LEVEL = 1_000, 0.95
KNOWN = 0.5  # the share of resamples in which a figure must exist
_STREAM = 61


@dataclass(frozen=True, eq=False)
class PeopleTally:
    """What each person's requests came to, at each threshold.

    requests  (people,)
    shown     (people, thresholds)
    clicked   (people, thresholds)
    """

    requests: Floats
    shown: Floats
    clicked: Floats

    @classmethod
    def of(
        cls, user: Integers, shown: Flags, clicked: Flags | Floats, among: Flags | None = None
    ) -> PeopleTally:
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
    def together(cls, tallies: Sequence[PeopleTally]) -> PeopleTally:
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

Statistic = Callable[[Floats, Floats], Floats]
"""Of precision and coverage, each (resamples, thresholds): a figure per resample."""


def precision_at(coverage: float) -> Statistic:
    """The precision at this coverage, between thresholds on a line; NaN where it is never reached."""
    return lambda precisions, coverages: _crossing(coverages, precisions, coverage)


def coverage_at(precision: float) -> Statistic:
    """The most that is covered at a threshold, or between two, whose precision is at least this; else 0."""

    def most_covered(precisions: Floats, coverages: Floats) -> Floats:
        return np.array([_most_covered(*curve, precision) for curve in zip(precisions, coverages, strict=True)])

    return most_covered


def at_threshold(place: int, of: str) -> Statistic:
    """The precision or the coverage at one of the thresholds."""
    return lambda precisions, coverages: (precisions if of == "precision" else coverages)[:, place]


def measure(tally: PeopleTally, statistic: Statistic) -> MeasuredValue:
    return bootstrap_interval(statistic(*tally.curves))


def compare(
    one: PeopleTally,
    other: PeopleTally,
    statistic: Statistic,
    by: Callable[[Floats, Floats], Floats] = np.subtract,
    other_statistic: Statistic | None = None,
) -> MeasuredValue:
    """How far apart two arms are, people paired."""
    return bootstrap_interval(by(statistic(*one.curves), (other_statistic or statistic)(*other.curves)))


def bootstrap_interval(figures: Floats) -> MeasuredValue:
    """A figure of all people, with the middle 95% of what resampled people give."""
    value, resampled = float(figures[0]), figures[1:]
    known = ~np.isnan(resampled)
    if known.mean() < KNOWN:  # what half of the resamples could not tell, people as they come could not either
        return MeasuredValue(math.nan, math.nan, math.nan, LEVEL)
    low, high = _middle(resampled[known])
    return MeasuredValue(value, min(low, value), max(high, value), LEVEL)


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


def rises(difference: MeasuredValue) -> bool | None:
    """The whole interval above 0, or the whole of it at 0 or below; else undecided."""
    if math.isnan(difference.value):
        return None
    if difference.low > 0:
        return True
    return False if difference.high <= 0 else None


def falls(difference: MeasuredValue) -> bool | None:
    return rises(MeasuredValue(-difference.value, -difference.high, -difference.low, difference.level))


def stays(difference: MeasuredValue) -> bool | None:
    """Does not fall: the whole interval at 0 or above, or the whole of it below; else undecided."""
    fell = falls(difference)
    return None if fell is None else not fell


def within(difference: MeasuredValue, reach: float) -> bool | None:
    """The whole interval within reach of 0; one that lies beyond it decides."""
    if math.isnan(difference.value):
        return None
    if -reach <= difference.low and difference.high <= reach:
        return True
    return False if difference.low > reach or difference.high < -reach else None


def say(figure: MeasuredValue, digits: int = 2, *, unit: str = "", otherwise: str = "none") -> str:
    """In words; `otherwise` where there was nothing to measure."""
    return f"{words(figure, digits)}{unit}" if math.isfinite(figure.value) else otherwise


def interval_line(
    name: str, xs: Sequence[float], points: Sequence[MeasuredValue], look: Mechanism
) -> Series | None:
    """Points that could not be measured are left out; None where that is all of them."""
    known = [(x, point) for x, point in zip(xs, points, strict=True) if not math.isnan(point.value)]
    if not known:
        return None
    return Series(
        name,
        [x for x, _ in known],
        [point.value for _, point in known],
        [point.low for _, point in known],
        [point.high for _, point in known],
        mechanism=look,
    )


def make_panels(
    several: Iterable[tuple[str, Iterable[Series | None]]],
    needed: str = "a log in which some request is shown an ad",
) -> list[Panel]:
    """Titles with their lines; a panel without any is left out, and a log without all of them refused."""
    found = [(title, [each for each in lines if each is not None]) for title, lines in several]
    if not any(lines for _, lines in found):
        raise BadInput(f"expected {needed}, got one without: there is nothing to draw")
    return [Panel(title, lines) for title, lines in found if lines]


def trade_off_line(name: str, tally: PeopleTally, look: Mechanism) -> Series | None:
    """Precision over coverage, one point per threshold."""
    points = range(tally.shown.shape[1])
    coverage = [measure(tally, at_threshold(at, "coverage")).value for at in points]
    return interval_line(name, coverage, [measure(tally, at_threshold(at, "precision")) for at in points], look)


FIGURE, CONTRAST = "figure", "contrast"

Row = dict[str, Any]


def figure_row(found: MeasuredValue, **labels: Cell) -> Row:
    return {"kind": FIGURE, **labels, **_cells(found)}


def contrast_row(name: str, found: MeasuredValue) -> Row:
    return {"kind": CONTRAST, "contrast": name, **_cells(found)}


def read_figure(kept: ResultFiles, **labels: Cell) -> MeasuredValue:
    """The figure with these labels."""
    return _only(kept, {"kind": FIGURE, **labels})


def read_contrast(kept: ResultFiles, name: str) -> MeasuredValue:
    return _only(kept, {"kind": CONTRAST, "contrast": name})


def _cells(found: MeasuredValue) -> dict[str, float | None]:
    if math.isnan(found.value):
        return dict.fromkeys(found.as_json())
    return {name: each if math.isfinite(each) else None for name, each in found.as_json().items()}


def _only(kept: ResultFiles, labels: Row) -> MeasuredValue:
    found = [row for row in kept.rows if all(row.get(name) == each for name, each in labels.items())]
    if len(found) != 1:
        raise BadInput(f"expected one row with {labels} in the table, got {len(found)}")
    value, low, high = (found[0][name] for name in ("value", "low", "high"))
    if value is None and low is None and high is None:
        return MeasuredValue(math.nan, math.nan, math.nan, LEVEL)
    return MeasuredValue(_end(value, math.inf), _end(low, -math.inf), _end(high, math.inf), LEVEL)


def _end(cell: Cell, otherwise: float) -> float:
    return otherwise if cell is None else float(cell)
