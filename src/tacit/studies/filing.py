"""Puts a study's results in their folder: the table, the figure, the settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.studies import results
from tacit.studies.runs import Runs
from tacit.studies.study import Asked

ENDINGS = ("csv", "svg", "png", "json")


@dataclass(frozen=True)
class Filed:
    """Where the results are, and what they are of, in words."""

    files: tuple[Path, ...]
    words: str


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
        synthetic=asked.data is None,
        seeds=tuple(range(1, asked.seeds + 1)),
        unit=unit,
        relation=relation,
        command=f"tacit reproduce {name} --scale {asked.scale} --seeds {asked.seeds}",
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
