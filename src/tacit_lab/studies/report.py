"""Writes what a study leaves: lines with their intervals, and the table, figure and settings on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.arrays import Floats
from tacit_lab.studies.logs import is_made_up
from tacit_lab.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit_lab.studies.results import StudySettings, write_result
from tacit_lab.studies.runs import Runs, mean
from tacit_lab.studies.study import StudyOutcome, StudyRequest

ENDINGS = ("csv", "svg", "png", "json")


@dataclass(frozen=True)
class FiledResult:
    """Where the results are, and what they are of, in words."""

    files: tuple[Path, ...]
    words: str


def mean_line(
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
    asked: StudyRequest,
    name: str,
    runs: Runs,
    *,
    data: str,
    unit: str,
    relation: str,
    parameters: Mapping[str, Any],
    began: float,
    draw: Callable[[Path, str], object],
) -> FiledResult:
    """Write NAME.csv, .svg, .png and .json. `draw(path, subtitle)` makes the figure; `began` is monotonic."""
    written = write_outcome(
        name,
        asked,
        unit=unit,
        relation=relation,
        began=began,
        data=data,
        parameters=parameters,
        table=runs.rows,
        columns=(),
        rows=(),
        draw=draw,
        used=runs.files,
    )
    return FiledResult(tuple(written.files), written.note)


ONE_SEED = (1,)
"""What a study used that draws once however many seeds are asked for, or that draws nothing."""


@dataclass(frozen=True)
class Axes:
    """How panels of lines are drawn; ticks make x logarithmic."""

    x_label: str
    y_label: str
    ticks: Sequence[float] | None = None
    share_y: bool = False


def seeds_of(asked: StudyRequest) -> range:
    """1, 2, ..., as many as were asked for."""
    return range(1, asked.seeds + 1)


def write_outcome(
    name: str,
    asked: StudyRequest,
    *,
    unit: str,
    relation: str,
    began: float,
    data: str,
    parameters: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    panels: Sequence[Panel] = (),
    axes: Axes | None = None,
    draw: Callable[[Path, str], object] | None = None,
    used: Sequence[Path] | None = None,
    seeds: Sequence[int] | None = None,
) -> StudyOutcome:
    """Write NAME.csv, .svg, .png and .json; lines in `panels` by `axes`, or `draw(path, subtitle)`.

    `used` are the files and folders of `asked.data` that were read: whether those were made up is said. `seeds`
    are those that were used, where that is not all that were asked for.
    """
    settings = StudySettings(
        name,
        data=f"{asked.city.title()}: {data}" if asked.city else data,
        synthetic=is_made_up(asked, used),
        seeds=tuple(seeds_of(asked) if seeds is None else seeds),
        unit=unit,
        relation=relation,
        command=asked.command(name),
        parameters={**parameters, "scale": str(asked.scale)},
    )

    def lines(path: Path, subtitle: str) -> object:
        assert axes is not None
        return line_figure(
            panels,
            subtitle=subtitle,
            x_label=axes.x_label,
            y_label=axes.y_label,
            path=path,
            log_x_ticks=axes.ticks,
            share_y=axes.share_y,
        )

    chosen = draw or lines
    names = dict.fromkeys(key for row in table for key in row)
    write_result(
        asked.out,
        settings,
        {key: [row.get(key) for row in table] for key in names},
        minutes=(time.monotonic() - began) / 60,
        draw=lambda path: chosen(path, settings.words),
    )
    files = [asked.out / f"{name}.{ending}" for ending in ENDINGS]
    return StudyOutcome(columns, rows, files, settings.words)
