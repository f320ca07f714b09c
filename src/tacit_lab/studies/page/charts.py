"""What a chart of the page is made of: lines over epsilon with their intervals, levels, published figures,
and the studies that they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.claims import RECORDED
from tacit_lab.studies.plotting import Mechanism
from tacit_lab.studies.registry import load_study, paper_beside
from tacit_lab.studies.results import ResultFiles

DIGITS = 6  # that are kept of a figure


def read_recorded(name: str) -> ResultFiles:
    """A study as it was recorded; files that were edited are refused."""
    return ResultFiles.of(RECORDED, name)


def describe_source(kept: ResultFiles) -> dict[str, Any]:
    """What a study's figures are of, and how to make them again."""
    told = kept.settings
    study = load_study(told["name"])
    paper = paper_beside(study)
    return {
        "study": told["name"],
        "title": study.title,
        "unit": told["unit"],
        "relation": told["relation"],
        "data": kept.words,
        "command": told["command"],
        "paper": None if paper is None else paper.short,
    }


def round_figure(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def value_json(found: MeasuredValue) -> dict[str, float]:
    ends = {"value": found.value, "low": found.low, "high": found.high}
    return {name: round_figure(each) for name, each in ends.items()}


def plain_number(value: Any) -> float:
    """Whole where it is whole, so that a tick reads as people write it."""
    found = float(value)
    return int(found) if found.is_integer() else found


def epsilons_of(rows: Iterable[Any]) -> list[float]:
    """Those that rows of a table have, from small to large."""
    return sorted({plain_number(row["epsilon"]) for row in rows if row["epsilon"] is not None})


@dataclass
class Chart:
    """Lines over epsilon, levels that have none, and figures that were published."""

    id: str
    title: str
    axis: str
    words: str
    sources: Sequence[ResultFiles]
    ticks: Sequence[float]
    lines: list[dict[str, Any]] = field(default_factory=list)
    levels: list[dict[str, Any]] = field(default_factory=list)
    published: list[dict[str, Any]] = field(default_factory=list)
    least: float | None = None  # what is below is not drawn

    def add_line(
        self, name: str, mechanism: Mechanism, points: Iterable[tuple[float, MeasuredValue]], variant: int = 0
    ) -> None:
        self.lines.append(
            {
                "name": name,
                "mechanism": str(mechanism),
                "variant": variant,
                "points": [{"epsilon": epsilon, **value_json(found)} for epsilon, found in points],
            }
        )

    def add_level(self, name: str, value: float) -> None:
        self.levels.append({"name": name, "value": round_figure(value)})

    def add_published(self, name: str, mechanism: Mechanism, epsilon: float | None, value: float) -> None:
        """A figure without an epsilon is one of a level."""
        self.published.append(
            {"name": name, "mechanism": str(mechanism), "epsilon": epsilon, "value": round_figure(value)}
        )

    def as_json(self) -> dict[str, Any]:
        told = {key: value for key, value in vars(self).items() if key != "sources"}
        return {**told, "ticks": list(self.ticks), "sources": [describe_source(each) for each in self.sources]}
