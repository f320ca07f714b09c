"""Rules by which a finding holds, fails, or stays undecided: over paired seeds, at 95%.

A claim that a is below b holds where the whole interval of the mean difference is below 0, fails where the mean
is not below 0, and is undecided in between: more seeds would tell. Rules are fixed before figures are seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from tacit.studies.runs import Floats, difference, mean, words
from tacit.train.evaluation.estimates import Measured

FEWEST_SEEDS = 3  # fewer decide nothing


def below(a: Floats, b: Floats) -> bool | None:
    """Whether a is below b."""
    found = difference(a, b)
    if len(a) < FEWEST_SEEDS:
        return None
    if found.high < 0:
        return True
    return None if found.value < 0 else False


def no_better(a: Floats, b: Floats) -> bool | None:
    """Whether a is no longer below b: its interval reaches 0, with seeds enough that this means something."""
    found = difference(a, b)
    if len(a) < FEWEST_SEEDS:
        return None
    if found.high < 0:
        return False
    return True if len(a) >= 2 * FEWEST_SEEDS or found.value >= 0 else None


def at_most(figures: Floats, bound: float) -> bool | None:
    """Whether the mean is at most a bound: the whole interval below it, or the mean above it."""
    return below(figures, 0 * figures + bound)


def every(verdicts: Iterable[bool | None]) -> bool | None:
    """All of them: one that fails decides, one that is undecided leaves it open."""
    found = list(verdicts)
    if False in found:
        return False
    return None if None in found else True


def said(label: str, figures: Floats, digits: int = 2) -> str:
    return f"{label} {words(mean(figures), digits)}"


def apart(a: Floats, b: Floats, digits: int = 2) -> str:
    """A difference in words, with its sign."""
    found: Measured = difference(a, b)
    text = words(found, digits)
    return text if text.startswith("-") else f"+{text}"
