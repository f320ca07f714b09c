"""From runs to what a study leaves: lines with their intervals, and the table, figure and settings on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.studies import results
from tacit.studies.origins import made_up
from tacit.studies.plotting import Mechanism, Series
from tacit.studies.runs import Floats, Runs, mean
from tacit.studies.study import Asked

ENDINGS = ("csv", "svg", "png", "json")


@dataclass(frozen=True)
class Filed:
    """Where the results are, and what they are of, in words."""

    files: tuple[Path, ...]
    words: str


def line(
    name: str, x: Sequence[float], figures: Sequence[Floats], mechanism: Mechanism = Mechanism.OURS
) -> Series:
    """Means over seeds with their intervals: `figures` holds one array of seeds for each x."""
    points = [mean(each) for each in figures]
    return Series(
        name,
        x,
        [point.value for point in points],
        [point.low for point in points],
        [point.high for point in points],
        mechanism=mechanism,
    )


def file_results(
    asked: Asked,
    name: str,
    runs: Runs,
    *,
    data: str,
    unit: str,
    relation: str,
    parameters: Mapping[str, Any],
    began: float,
    draw: Callable[[Path, str], object],
) -> Filed:
    """Write NAME.csv, .svg, .png and .json. `draw(path, subtitle)` makes the figure; `began` is monotonic."""
    settings = results.Settings(
        name,
        data=data,
        synthetic=made_up(asked, runs.files),
        seeds=tuple(range(1, asked.seeds + 1)),
        unit=unit,
        relation=relation,
        command=asked.command(name),
        parameters={**parameters, "scale": str(asked.scale)},
    )
    results.write(
        asked.out,
        settings,
        runs.table(),
        minutes=(time.monotonic() - began) / 60,
        draw=lambda path: draw(path, settings.words),
    )
    return Filed(tuple(asked.out / f"{name}.{ending}" for ending in ENDINGS), settings.words)
