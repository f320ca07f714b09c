"""The best settings per unit and epsilon, what all runs cost together, and the files a sweep leaves.

Written are two tables as CSV, and the frontier as a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.units import Relation, Unit
from tacit.train.config import PrivacySettings
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit_lab.studies.results import StudySettings, write_result
from tacit_lab.studies.runs import mean
from tacit_lab.studies.sweep.grid import Sweep, SweepPoint, value_words
from tacit_lab.studies.sweep.runs import Record

FEWEST_SEEDS = 4
"""Of fewer seeds Student's interval is mostly its own quantile (12.7 standard errors of two): none is given."""
LIMITS = {"auc_loss": (0.0, 1.0), "log_loss": (0.0, math.inf), "calibration_ratio": (0.0, math.inf)}
COLUMNS = ("unit", "epsilon", "method", "model")  # settings with a column of their own


@dataclass(frozen=True, eq=False)
class TriedPoint:
    """A point with the records of its seeds. `k` is the share of epsilon that the Hybrid gave to labels."""

    point: SweepPoint
    records: Sequence[Record]
    k: float | None = None

    @property
    def has_interval(self) -> bool:
        return len(self.records) >= FEWEST_SEEDS

    def figure(self, name: str) -> MeasuredValue:
        """The mean over the seeds; with its interval, within what the figure can be, if there are enough."""
        figures = np.array([record[name] for record in self.records], dtype=np.float64)
        if not self.has_interval:
            value = float(figures.mean())
            return MeasuredValue(value, value, value, 0.0)
        found, (least, most) = mean(figures), LIMITS[name]
        return replace(found, low=max(found.low, least), high=min(found.high, most))

    def figure_json(self, name: str) -> dict[str, float | None]:
        found = self.figure(name)
        return {**found.as_json()} if self.has_interval else _without_interval(found)

    @property
    def place(self) -> tuple[str, float]:
        """What is promised: the unit, and epsilon; without privacy there is neither."""
        privacy = self.point.config.privacy
        return ("", 0.0) if not privacy.is_private else (str(privacy.unit), float(privacy.epsilon or 0))

    @property
    def line(self) -> tuple[str, str]:
        """Which line of the figure it belongs to."""
        return self.point.config.privacy.method, value_words(
            self.point["model"] or self.point.config.model.name
        )

    @property
    def other_settings(self) -> str:
        """What else was tried here, in words."""
        rest = {name: value_words(value) for name, value in self.point.settings if name not in COLUMNS}
        if self.k is not None:
            chosen = self.point.config.privacy.k == "auto"
            rest["k"] = f"{self.k:.3g}{' (auto)' if chosen else ''}"
        return ", ".join(f"{name} {value}" for name, value in rest.items())


@dataclass(frozen=True, eq=False)
class BestPoint:
    """The settings with the least mean AUC loss among all that promise the same."""

    tried: TriedPoint
    among: int

    def as_json(self) -> dict[str, Any]:
        tried, privacy = self.tried, self.tried.point.config.privacy
        unit, epsilon = tried.place
        return {
            "unit": unit or None,
            "epsilon": epsilon or None,
            "delta": None if privacy.delta is None else float(privacy.delta),
            "method": privacy.method,
            "settings": dict(tried.point.settings),
            "k": tried.k,
            "among": self.among,
            "seeds": len(tried.records),
            **{name: tried.figure_json(name) for name in LIMITS},
        }


def _without_interval(found: MeasuredValue) -> dict[str, float | None]:
    return {"value": found.value, "low": None, "high": None, "level": None}


def best_points(tried: Iterable[TriedPoint], *, by_line: bool = False) -> list[BestPoint]:
    """The best of each unit and epsilon, in that order; `by_line` keeps methods and models apart."""
    groups: dict[tuple[Any, ...], list[TriedPoint]] = {}
    for each in tried:
        groups.setdefault((*each.place, *(each.line if by_line else ())), []).append(each)
    return [
        BestPoint(min(group, key=lambda each: each.figure("auc_loss").value), len(group))
        for _, group in sorted(groups.items(), key=lambda item: item[0])
    ]


def run_cost(privacy: PrivacySettings) -> Guarantee | None:
    """What one run costs at most: its method solves its noise for this. None where nothing is promised."""
    if not privacy.is_private or privacy.epsilon is None:
        return None
    labels = privacy.method in ("label-dp", "statistic")
    relation = Relation.REPLACE_LABEL if labels else Relation.REPLACE_ONE
    budget = Budget.of(privacy.epsilon, privacy.delta or 0)
    return Guarantee(budget, privacy.unit, relation, sensitive_features=not labels)


def composed_cost(points: Iterable[SweepPoint], seeds: int) -> list[Guarantee]:
    """What all runs would cost together on people's data, by unit and relation.

    Guarantee:  the sum of epsilon and the sum of delta over all runs that speak of one unit and relation.
    Neighbours: those of each of the runs.
    Assumes:    every run draws its own noise and flips.
    Source:     basic composition: Dwork, McSherry, Nissim, Smith 2006; Dwork, Kenthapadi, McSherry, Mironov,
                Naor 2006.
    """
    found: dict[tuple[Unit, Relation], Guarantee] = {}
    for point in points:
        cost = run_cost(point.config.privacy)
        if cost is None:
            continue
        key = (cost.unit, cost.relation)
        budget = Budget(seeds * cost.budget.epsilon, seeds * cost.budget.delta)
        if key in found:
            budget = budget + found[key].budget
        found[key] = Guarantee(budget, cost.unit, cost.relation, cost.sensitive_features)
    return list(found.values())


RUNS, FRONTIER = "sweep-runs", "sweep-frontier"
COLOURS = {
    "label-dp": Mechanism.RR,
    "dp-sgd": Mechanism.DP_SGD,
    "hybrid": Mechanism.HYBRID,
    "statistic": Mechanism.OURS,
}


def write_sweep(
    out: Path,
    sweep: Sweep,
    tried: Sequence[TriedPoint],
    *,
    data: str,
    synthetic: bool,
    command: str,
    minutes: float,
) -> list[Path]:
    """Write both tables and the figure; the files that are there afterwards."""
    units = dict.fromkeys(each.place[0] for each in tried if each.place[0])
    parameters = {"axes": {axis.name: [value_words(value) for value in axis.values] for axis in sweep.axes}}
    seeds = tuple(range(1, sweep.seeds + 1))
    about: dict[str, Any] = {
        "data": data,
        "synthetic": synthetic,
        "seeds": seeds,
        "unit": " or ".join(units) or "nobody",
        "relation": "as each method promises" if units else "no privacy",
        "command": command,
        "parameters": parameters,
    }
    write_result(out, StudySettings(RUNS, **about), _runs_table(sweep, tried), minutes=minutes)
    private = [each for each in tried if each.place[0]]
    settings = StudySettings(FRONTIER, **about)
    subtitle = settings.words if private and private[0].has_interval else f"{settings.words}: no interval"
    draw = (lambda path: _draw(path, tried, subtitle)) if private else None
    write_result(out, settings, _frontier_table(best_points(tried)), minutes=minutes, draw=draw)
    endings = ("csv", "json", *(("svg", "png") if private else ()))
    return [out / f"{RUNS}.csv", *(out / f"{FRONTIER}.{ending}" for ending in endings)]


def _runs_table(sweep: Sweep, tried: Sequence[TriedPoint]) -> dict[str, list[Any]]:
    rows = [
        {
            **{axis.name: _cell(each.point[axis.name]) for axis in sweep.axes},
            "seed": seed,
            **{name: record[name] for name in ("auc_loss", "log_loss", "calibration_ratio", "seconds")},
        }
        for each in tried
        for seed, record in enumerate(each.records, start=1)
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def _frontier_table(best: Sequence[BestPoint]) -> dict[str, list[Any]]:
    rows = []
    for each in best:
        loss = each.tried.figure("auc_loss")
        method, model = each.tried.line
        unit, epsilon = each.tried.place
        rows.append(
            {
                "unit": unit or None,
                "epsilon": epsilon or None,
                "method": method,
                "model": model,
                "settings": each.tried.other_settings or None,
                "among": each.among,
                "auc_loss": loss.value,
                "low": loss.low if each.tried.has_interval else None,
                "high": loss.high if each.tried.has_interval else None,
                "log_loss": each.tried.figure("log_loss").value,
                "calibration_ratio": each.tried.figure("calibration_ratio").value,
            }
        )
    return {name: [row[name] for row in rows] for name in rows[0]}


def _draw(path: Path, tried: Sequence[TriedPoint], subtitle: str) -> object:
    best = [each.tried for each in best_points(tried, by_line=True)]
    several = len({each.line[1] for each in best}) > 1
    epsilons = sorted({each.place[1] for each in best if each.place[0]})
    panels = []
    for unit in dict.fromkeys(each.place[0] for each in best if each.place[0]):
        lines = dict.fromkeys(each.line for each in best if each.place[0] == unit)
        series = [
            _line(line, several, [each for each in best if each.place[0] == unit and each.line == line])
            for line in lines
        ]
        for each in best:
            if not each.place[0]:
                flat = [each.figure("auc_loss").value] * 2
                name = f"non-private, {each.line[1]}" if several else "non-private"
                ends = [epsilons[0], epsilons[-1]]
                series.append(Series(name, ends, flat, mechanism=Mechanism.NON_PRIVATE))
        panels.append(Panel(unit, series))
    return line_figure(
        panels, subtitle=subtitle, x_label="epsilon", y_label="AUC loss", path=path, log_x_ticks=epsilons
    )


def _line(line: tuple[str, str], several: bool, points: Sequence[TriedPoint]) -> Series:
    method, model = line
    losses = [each.figure("auc_loss") for each in points]
    band = all(each.has_interval for each in points)
    return Series(
        f"{method}, {model}" if several else method,
        [each.place[1] for each in points],
        [loss.value for loss in losses],
        [loss.low for loss in losses] if band else None,
        [loss.high for loss in losses] if band else None,
        COLOURS[method],
    )


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else value_words(value)
