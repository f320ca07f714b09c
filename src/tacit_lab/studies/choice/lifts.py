"""Lifts of one arm over another, auctions paired: as table rows, as lines in figures, and rules for
verdicts.

A row is an arm, the arm that it is compared with (mostly the non-personalised choice) and a metric. Figures
are drawn and verdicts are found from these rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tacit.arrays import Floats
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.deliver.auction.market import MarketResults
from tacit.deliver.auction.metrics import KINDS, LEVEL, REACH
from tacit.errors import BadInput
from tacit.train.evaluation.intervals import MeasuredValue, symmetric_interval
from tacit_lab.studies import report
from tacit_lab.studies.choice.contestants import ChoiceContestant
from tacit_lab.studies.choice.markets import LOG, RELATION, UNIT
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import StudyOutcome, StudyRequest
from tacit_lab.studies.verdicts import every

METRICS = {metric: kind.caption for metric, kind in KINDS.items()}
SHOWN = ("clicks", "surplus", "revenue")

LiftRow = dict[str, Any]
Pair = tuple[str, str]  # an arm, and what it is held against
Part = tuple[str, float]  # an arm, and how much of the greedy gain it is held against


def records(
    results: MarketResults,
    labels: LiftRow,
    arms: Iterable[tuple[str, LiftRow]],
    pairs: Iterable[Pair] = (),
    metrics: Sequence[str] = tuple(METRICS),
    over: str = NON_PERSONALISED,
    parts: Iterable[Part] = (),
) -> list[LiftRow]:
    """Rows of a table: means per auction and lifts of each metric, of arms over one, of further pairs, and over
    parts of the greedy gain."""
    own = dict(arms)
    asked = {pair: partial(results.lift, *pair) for pair in (*((arm, over) for arm in own), *pairs)}
    asked |= {(arm, part_words(part)): partial(_beyond, results, arm, part) for arm, part in parts}
    rows = []
    for (arm, other), lift_in in asked.items():
        for metric in metrics:
            value, error = lift_in(metric)
            found = interval_around(100 * value, 100 * error)
            row = {**labels, "arm": arm, **own.get(arm, {}), "over": other, "metric": METRICS[metric]}
            lift = {"lift_percent": found.value, "low": found.low, "high": found.high}
            rows.append({**row, "mean": results.mean(arm, metric), **lift})
    return rows


def part_words(part: float) -> str:
    """What an arm is held against that should have this share of the greedy choice's gain."""
    return f"{part:.0%} of the greedy gain"


def _beyond(results: MarketResults, arm: str, part: float, metric: str) -> tuple[float, float]:
    """By how much an arm is above the non-personalised choice with a share of the greedy gain added, relative
    to the former, and its standard error; auctions are paired."""
    weight = np.zeros(results.totals.columns)
    for name, share in ((arm, 1.0), (GREEDY, -part), (NON_PERSONALISED, part - 1.0)):
        weight[results.arms.index(name) * len(METRICS) + list(METRICS).index(metric)] += share
    base = abs(results.mean(NON_PERSONALISED, metric))
    variance = float(weight @ results.totals.covariance @ weight)
    return float(weight @ results.totals.means) / base, math.sqrt(max(0.0, variance)) / base


@dataclass(frozen=True)
class Lifts:
    """Lifts in percent by (arm, over, metric), and means per auction by (arm, metric)."""

    found: Mapping[tuple[str, str, str], MeasuredValue]
    means: Mapping[tuple[str, str], float]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Lifts:
        found, means = {}, {}
        for row in rows:
            arm, over, metric = row["arm"], row["over"], row["metric"]
            found[arm, over, metric] = MeasuredValue(row["lift_percent"], row["low"], row["high"], LEVEL)
            means[arm, metric] = row["mean"]
        return cls(found, means)

    @classmethod
    def by(cls, kept: ResultFiles, *columns: str) -> dict[tuple[Any, ...], Lifts]:
        """Those of every group of rows that agree in these columns, in the table's order."""
        groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in kept.rows:
            if row["arm"] is not None:  # a table may have other rows too
                groups.setdefault(tuple(row[column] for column in columns), []).append(row)
        return {key: cls.of(rows) for key, rows in groups.items()}

    def lift(self, arm: str, metric: str, over: str = NON_PERSONALISED) -> MeasuredValue:
        """By how many percent an arm is above another."""
        key = arm, over, METRICS[metric]
        if key not in self.found:
            raise BadInput(f"expected a row of {arm} over {over} in {METRICS[metric]}, got none")
        return self.found[key]

    def mean(self, arm: str, metric: str) -> float:
        """Per auction, as far as the table has rows of the arm."""
        return self.means[arm, METRICS[metric]]

    def above(self, arm: str, other: str, metric: str) -> bool | None:
        """Whether an arm is above another, by the interval of the paired lift."""
        return above_zero(self.lift(arm, metric, over=other))

    def none_above(self, arms: Iterable[str], metric: str) -> bool | None:
        """Whether no arm beats the non-personalised choice: all intervals below 0; one above 0 decides."""
        above = [above_zero(self.lift(arm, metric)) for arm in arms]
        return every(None if each is None else not each for each in above)

    def share(self, arm: str, metric: str) -> float | None:
        """How much of the greedy choice's gain over the non-personalised one an arm has; None where that gain
        may be nothing, by its interval."""
        if not self.above(GREEDY, NON_PERSONALISED, metric):
            return None
        return self.lift(arm, metric).value / self.lift(GREEDY, metric).value

    def reaches(self, arm: str, part: float, metric: str) -> bool | None:
        """Whether an arm has at least this part of the greedy gain, by its interval; undecided where there may
        be nothing to gain."""
        if not self.above(GREEDY, NON_PERSONALISED, metric):
            return None
        return above_zero(self.lift(arm, metric, over=part_words(part)))

    def say(self, arms: Iterable[str], metric: str) -> str:
        """Lifts over the non-personalised choice in words."""
        return ", ".join(f"{arm} {words(self.lift(arm, metric))}%" for arm in arms)

    def cells(self, arm: str) -> tuple[str, ...]:
        """The same for a table for people: every metric."""
        return tuple(words(self.lift(arm, metric)) for metric in METRICS)


def interval_around(value: float, error: float) -> MeasuredValue:
    """A figure with the interval of its standard error."""
    return symmetric_interval(value, REACH * error, LEVEL)


def sample_mean(values: Floats) -> MeasuredValue:
    """The mean of independent values."""
    return interval_around(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)))


def above_zero(found: MeasuredValue) -> bool | None:
    """Whether a figure is above 0: its whole interval is, or the whole interval is below, else nobody knows."""
    if found.low > 0:
        return True
    return False if found.high < 0 else None


def share_words(part: float | None, digits: int = 0) -> str:
    return "nothing to gain" if part is None else f"{part:.{digits}%}"


TITLES = {metric: name if name.isupper() else name.capitalize() for metric, name in METRICS.items()}
LIFT_LABEL = "over the non-personalised choice, %"


def interval_series(name: str, xs: Sequence[float], found: Sequence[MeasuredValue], look: Mechanism) -> Series:
    values, lows, highs = ([getattr(each, part) for each in found] for part in ("value", "low", "high"))
    return Series(name, xs, values, lows, highs, mechanism=look)


def lift_line(lifts: Lifts, contestant: ChoiceContestant, epsilons: Sequence[float], metric: str) -> Series:
    found = [lifts.lift(contestant.at(epsilon), metric) for epsilon in epsilons]
    return interval_series(contestant.name, epsilons, found, contestant.look)


def greedy_line(lifts: Lifts, xs: Sequence[float], metric: str) -> Series:
    """The end without privacy."""
    found = lifts.lift(GREEDY, metric).value
    return Series("greedy, no privacy", [min(xs), max(xs)], [found] * 2, mechanism=Mechanism.NON_PRIVATE)


def panels_over(
    lifts: Lifts,
    contestants: Sequence[ChoiceContestant],
    epsilons: Sequence[float],
    metrics: Iterable[str],
    market: str,
) -> list[Panel]:
    """One panel per metric: every contestant over epsilon, under the end without privacy."""
    return [
        Panel(
            f"{TITLES[metric]}, {market}",
            [
                *(lift_line(lifts, each, epsilons, metric) for each in contestants),
                greedy_line(lifts, epsilons, metric),
            ],
        )
        for metric in metrics
    ]


def arms_over(contestants: Iterable[ChoiceContestant], epsilons: Sequence[float]) -> list[tuple[str, LiftRow]]:
    """The greedy choice and every contestant at every epsilon, with what a table says of each."""
    return [
        (GREEDY, {"mechanism": GREEDY}),
        *(
            (each.at(epsilon), {"mechanism": each.name, "epsilon": epsilon})
            for each in contestants
            for epsilon in epsilons
        ),
    ]


def write_outcome(name: str, asked: StudyRequest, **told: Any) -> StudyOutcome:
    """As `report.write_outcome`; where files are given, the log among them says whether it was made up, and its
    auctions are one sample, however many seeds are asked for."""
    given = {} if asked.data is None else {"used": [asked.data / LOG], "seeds": report.ONE_SEED}
    return report.write_outcome(name, asked, **{"unit": UNIT, "relation": RELATION, **given, **told})
