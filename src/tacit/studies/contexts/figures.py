"""Figures with intervals over people in tables, words and lines, and rules for verdicts on them.

A log may be too small for some of them: a precision where nothing was shown, first visits where there are none.
Such a figure is NaN, and is left out of lines, empty in a table, and said in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tacit.errors import BadInput
from tacit.studies.contexts.clustered import Tally, at_threshold, measured
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.runs import words
from tacit.train.evaluation.estimates import Measured


def rises(difference: Measured) -> bool | None:
    """The whole interval above 0, or the whole of it at 0 or below; else undecided."""
    if math.isnan(difference.value):
        return None
    if difference.low > 0:
        return True
    return False if difference.high <= 0 else None


def falls(difference: Measured) -> bool | None:
    return rises(Measured(-difference.value, -difference.high, -difference.low, difference.level))


def stays(difference: Measured) -> bool | None:
    """Does not fall: the whole interval at 0 or above, or the whole of it below; else undecided."""
    fell = falls(difference)
    return None if fell is None else not fell


def within(difference: Measured, reach: float) -> bool | None:
    """The whole interval within reach of 0; one that lies beyond it decides."""
    if math.isnan(difference.value):
        return None
    if -reach <= difference.low and difference.high <= reach:
        return True
    return False if difference.low > reach or difference.high < -reach else None


def said(figure: Measured, digits: int = 2, *, unit: str = "", otherwise: str = "none") -> str:
    """In words; `otherwise` where there was nothing to measure."""
    return f"{words(figure, digits)}{unit}" if math.isfinite(figure.value) else otherwise


def line(name: str, xs: Sequence[float], points: Sequence[Measured], look: Mechanism) -> Series | None:
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


def panels(
    several: Iterable[tuple[str, Iterable[Series | None]]],
    needed: str = "a log in which some request is shown an ad",
) -> list[Panel]:
    """Titles with their lines; a panel without any is left out, and a log without all of them refused."""
    found = [(title, [each for each in lines if each is not None]) for title, lines in several]
    if not any(lines for _, lines in found):
        raise BadInput(f"expected {needed}, got one without: there is nothing to draw")
    return [Panel(title, lines) for title, lines in found if lines]


def trade_off(name: str, tally: Tally, look: Mechanism) -> Series | None:
    """Precision over coverage, one point a threshold."""
    points = range(tally.shown.shape[1])
    coverage = [measured(tally, at_threshold(at, "coverage")).value for at in points]
    return line(name, coverage, [measured(tally, at_threshold(at, "precision")) for at in points], look)
