"""Rules by which a finding holds, fails, or stays undecided: over paired seeds, at 95%.

A claim that a is below b holds where the whole interval of the mean difference is below 0, fails where the
whole interval is at 0 or above, and is undecided where it spans 0, on whichever side its mean is: more
seeds would tell. A difference of exactly 0 at every seed has no width, and then a is not below b; a study
where that only says that both were given the same setting leaves it open by itself. Rules were fixed before
this run; earlier trials were known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tacit.arrays import Floats
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.runs import difference, mean, words

FEWEST_SEEDS = 3  # fewer decide nothing
ENOUGH_SEEDS = 2 * FEWEST_SEEDS  # what these do not show is called not seen


def below(a: Floats, b: Floats) -> bool | None:
    """Whether a is below b: the whole interval of the difference is, or the whole of it is at 0 or above."""
    found = difference(a, b)
    if len(a) < FEWEST_SEEDS:
        return None
    if found.high < 0:
        return True
    return False if found.low >= 0 else None


def no_better(a: Floats, b: Floats) -> bool | None:
    """Whether a is not below b: the whole interval is at 0 or above, or it reaches 0 and there are seeds enough
    that a lead would have been seen; fails where the whole interval is below 0."""
    is_below = below(a, b)
    if is_below is None:
        return True if len(a) >= ENOUGH_SEEDS else None
    return not is_below


def at_most(figures: Floats, bound: float) -> bool | None:
    """Whether the mean is at most a bound: its whole interval is, or the whole of it is above."""
    return between(figures, -math.inf, bound)


def between(figures: Floats, least: float, most: float) -> bool | None:
    """Whether the mean lies between two bounds, or at one: its whole interval does, or none of it does."""
    return interval_within(mean(figures), least, most) if len(figures) >= FEWEST_SEEDS else None


def interval_within(found: MeasuredValue, least: float = -math.inf, most: float = math.inf) -> bool | None:
    """Whether a figure lies between two bounds, or at one: its whole interval does, or none of it does."""
    if least <= found.low and found.high <= most:
        return True
    return False if found.high < least or found.low > most else None


def every(verdicts: Iterable[bool | None]) -> bool | None:
    """All of them: one that fails decides, one that is undecided leaves it open, and so does having none."""
    found = list(verdicts)
    if False in found:
        return False
    return None if None in found or not found else True


def say(label: str, figures: Floats, digits: int = 2) -> str:
    return f"{label} {words(mean(figures), digits)}"


def signed_gap(a: Floats, b: Floats, digits: int = 2) -> str:
    """A difference in words, with its sign."""
    found: MeasuredValue = difference(a, b)
    text = words(found, digits)
    return text if text.startswith("-") else f"+{text}"
