"""Lines with intervals over people, and rules for verdicts on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.studies.contexts.clustered import Tally, at_threshold, measured
from tacit.studies.plotting import Mechanism, Series
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


def within(difference: Measured, reach: float) -> bool | None:
    """The whole interval within reach of 0; one that lies beyond it decides."""
    if math.isnan(difference.value):
        return None
    if -reach <= difference.low and difference.high <= reach:
        return True
    return False if difference.low > reach or difference.high < -reach else None


def line(name: str, xs: Sequence[float], points: Sequence[Measured], look: Mechanism) -> Series:
    """Points that could not be measured are left out."""
    known = [(x, point) for x, point in zip(xs, points, strict=True) if not math.isnan(point.value)]
    return Series(
        name,
        [x for x, _ in known],
        [point.value for _, point in known],
        [point.low for _, point in known],
        [point.high for _, point in known],
        mechanism=look,
    )


def trade_off(name: str, tally: Tally, look: Mechanism) -> Series:
    """Precision over coverage, one point a threshold."""
    points = range(tally.shown.shape[1])
    coverage = [measured(tally, at_threshold(at, "coverage")).value for at in points]
    return line(name, coverage, [measured(tally, at_threshold(at, "precision")) for at in points], look)
