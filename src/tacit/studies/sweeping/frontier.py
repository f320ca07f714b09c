"""The best settings for each unit and epsilon, and what all runs cost together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.relations import Relation
from tacit.privacy.units import Unit
from tacit.studies.runs import mean
from tacit.studies.sweeping.grid import Point, shown
from tacit.studies.sweeping.runs import Record
from tacit.train.configuration.values import Privacy
from tacit.train.evaluation.estimates import Measured

FEWEST_SEEDS = 4
"""Of fewer seeds Student's interval is mostly its own quantile (12.7 standard errors of two): none is given."""
LIMITS = {"auc_loss": (0.0, 1.0), "log_loss": (0.0, math.inf), "calibration_ratio": (0.0, math.inf)}
COLUMNS = ("unit", "epsilon", "method", "model")  # settings with a column of their own


@dataclass(frozen=True, eq=False)
class Tried:
    """A point with the records of its seeds. `k` is the share of epsilon that the Hybrid gave to labels."""

    point: Point
    records: Sequence[Record]
    k: float | None = None

    @property
    def has_interval(self) -> bool:
        return len(self.records) >= FEWEST_SEEDS

    def figure(self, name: str) -> Measured:
        """The mean over the seeds; with its interval, within what the figure can be, if there are enough."""
        figures = np.array([record[name] for record in self.records], dtype=np.float64)
        if not self.has_interval:
            value = float(figures.mean())
            return Measured(value, value, value, 0.0)
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
        return self.point.config.privacy.method, shown(self.point["model"] or self.point.config.model.name)

    @property
    def other_settings(self) -> str:
        """What else was tried here, in words."""
        rest = {name: shown(value) for name, value in self.point.settings if name not in COLUMNS}
        if self.k is not None:
            chosen = self.point.config.privacy.k == "auto"
            rest["k"] = f"{self.k:.3g}{' (auto)' if chosen else ''}"
        return ", ".join(f"{name} {value}" for name, value in rest.items())


@dataclass(frozen=True, eq=False)
class Best:
    """The settings with the least mean AUC loss among all that promise the same."""

    tried: Tried
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


def _without_interval(found: Measured) -> dict[str, float | None]:
    return {"value": found.value, "low": None, "high": None, "level": None}


def frontier(tried: Iterable[Tried], *, by_line: bool = False) -> list[Best]:
    """The best of each unit and epsilon, in that order; `by_line` keeps methods and models apart."""
    groups: dict[tuple[Any, ...], list[Tried]] = {}
    for each in tried:
        groups.setdefault((*each.place, *(each.line if by_line else ())), []).append(each)
    return [
        Best(min(group, key=lambda each: each.figure("auc_loss").value), len(group))
        for _, group in sorted(groups.items(), key=lambda item: item[0])
    ]


def cost_of(privacy: Privacy) -> Guarantee | None:
    """What one run costs at most: its method solves its noise for this. None where nothing is promised."""
    if not privacy.is_private or privacy.epsilon is None:
        return None
    labels = privacy.method in ("label-dp", "statistic")
    relation = Relation.REPLACE_LABEL if labels else Relation.REPLACE_ONE
    budget = Budget.of(privacy.epsilon, privacy.delta or 0)
    return Guarantee(budget, privacy.unit, relation, sensitive_features=not labels)


def composed(points: Iterable[Point], seeds: int) -> list[Guarantee]:
    """What all runs would cost together on people's data, by unit and relation.

    Guarantee:  the sum of epsilon and the sum of delta over all runs that speak of one unit and relation.
    Neighbours: those of each of the runs.
    Assumes:    every run draws its own noise and flips.
    Source:     basic composition: Dwork, McSherry, Nissim, Smith 2006; Dwork, Kenthapadi, McSherry, Mironov,
                Naor 2006.
    """
    found: dict[tuple[Unit, Relation], Guarantee] = {}
    for point in points:
        cost = cost_of(point.config.privacy)
        if cost is None:
            continue
        key = (cost.unit, cost.relation)
        budget = Budget(seeds * cost.budget.epsilon, seeds * cost.budget.delta)
        if key in found:
            budget = budget + found[key].budget
        found[key] = Guarantee(budget, cost.unit, cost.relation, cost.sensitive_features)
    return list(found.values())
