"""Lifts over the non-personalised choice with intervals over auctions, and rules for verdicts on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tacit.deliver.auction.candidates import Floats
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.deliver.auction.market import Results
from tacit.deliver.auction.metrics import KINDS, LEVEL, REACH
from tacit.studies.choice.contestants import Contestant
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.runs import words
from tacit.train.evaluation.estimates import Measured

METRICS = {metric: kind.caption for metric, kind in KINDS.items()}
TITLES = {metric: name if name.isupper() else name.capitalize() for metric, name in METRICS.items()}
SHOWN = ("clicks", "surplus", "revenue")
LIFT_LABEL = "over the non-personalised choice, %"

Record = dict[str, Any]


def lift(results: Results, arm: str, metric: str, over: str = NON_PERSONALISED) -> Measured:
    """By how many percent an arm is above another, auctions paired."""
    value, error = results.lift(arm, over, metric)
    return around(100 * value, 100 * error)


def around(value: float, error: float) -> Measured:
    """A figure with the interval of its standard error."""
    return Measured(value, value - REACH * error, value + REACH * error, LEVEL)


def mean_of(values: Floats) -> Measured:
    """The mean of independent values."""
    return around(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)))


def above_zero(found: Measured) -> bool | None:
    """Whether a figure is above 0: its whole interval is, or the whole interval is below, else nobody knows."""
    if found.low > 0:
        return True
    return False if found.high < 0 else None


def above(results: Results, arm: str, other: str, metric: str) -> bool | None:
    """Whether an arm is above another, by the interval of the paired lift."""
    return above_zero(lift(results, arm, metric, over=other))


def none_above(results: Results, arms: Iterable[str], metric: str) -> bool | None:
    """Whether no arm beats the non-personalised choice: all intervals below 0; one above 0 decides."""
    found = [lift(results, arm, metric) for arm in arms]
    if any(each.low > 0 for each in found):
        return False
    return True if all(each.high < 0 for each in found) else None


def share(results: Results, arm: str, metric: str) -> float | None:
    """How much of the greedy choice's gain over the non-personalised one an arm has; None where that gain may
    be nothing, by its interval."""
    if not above(results, GREEDY, NON_PERSONALISED, metric):
        return None
    base, best = results.mean(NON_PERSONALISED, metric), results.mean(GREEDY, metric)
    return (results.mean(arm, metric) - base) / (best - base)


def at_least(part: float | None, bound: float) -> bool | None:
    """Whether a share is at least so much; undecided where there is nothing to gain."""
    return None if part is None else part >= bound


def share_words(part: float | None, digits: int = 0) -> str:
    return "nothing to gain" if part is None else f"{part:.{digits}%}"


def said(results: Results, arms: Iterable[str], metric: str) -> str:
    """Lifts in words."""
    return ", ".join(f"{arm} {words(lift(results, arm, metric))}%" for arm in arms)


def line(results: Results, contestant: Contestant, epsilons: Sequence[float], metric: str) -> Series:
    return series(
        contestant.name,
        epsilons,
        [lift(results, contestant.at(epsilon), metric) for epsilon in epsilons],
        contestant.look,
    )


def greedy_line(results: Results, xs: Sequence[float], metric: str) -> Series:
    """The end without privacy."""
    found = lift(results, GREEDY, metric).value
    return Series("greedy, no privacy", [min(xs), max(xs)], [found] * 2, mechanism=Mechanism.NON_PRIVATE)


def panels_over(
    results: Results,
    contestants: Sequence[Contestant],
    epsilons: Sequence[float],
    metrics: Iterable[str],
    market: str,
) -> list[Panel]:
    """One panel a metric: every contestant over epsilon, under the end without privacy."""
    return [
        Panel(
            f"{TITLES[metric]}, {market}",
            [
                *(line(results, each, epsilons, metric) for each in contestants),
                greedy_line(results, epsilons, metric),
            ],
        )
        for metric in metrics
    ]


def arms_over(contestants: Iterable[Contestant], epsilons: Sequence[float]) -> list[tuple[str, Record]]:
    """Every contestant at every epsilon, by the name of its arm and with what a table says of it."""
    return [
        (each.at(epsilon), {"mechanism": each.name, "epsilon": epsilon})
        for each in contestants
        for epsilon in epsilons
    ]


def series(name: str, xs: Sequence[float], found: Sequence[Measured], look: Mechanism) -> Series:
    values, lows, highs = ([getattr(each, part) for each in found] for part in ("value", "low", "high"))
    return Series(name, xs, values, lows, highs, mechanism=look)


def records(results: Results, labels: Record, arms: Iterable[tuple[str, Record]]) -> list[Record]:
    """Rows of a study's table: means an auction and lifts of each metric."""
    rows = []
    for arm, own in arms:
        for metric, name in METRICS.items():
            found = lift(results, arm, metric)
            row = {**labels, "arm": arm, **own, "metric": name, "mean": results.mean(arm, metric)}
            rows.append({**row, "lift_percent": found.value, "low": found.low, "high": found.high})
    return rows


def cells(results: Results, arm: str) -> tuple[str, ...]:
    return tuple(words(lift(results, arm, metric)) for metric in METRICS)
