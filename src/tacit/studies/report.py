"""What a study leaves behind: table, figure, settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.studies.filing import ENDINGS
from tacit.studies.origins import made_up
from tacit.studies.plotting import Panel, line_figure
from tacit.studies.results import Settings, write
from tacit.studies.study import Asked, Outcome

ONE_SEED = (1,)
"""What a study used that draws once however many seeds are asked for, or that draws nothing."""


@dataclass(frozen=True)
class Axes:
    """How panels of lines are drawn; ticks make x logarithmic."""

    x_label: str
    y_label: str
    ticks: Sequence[float] | None = None
    share_y: bool = False


def seeds_of(asked: Asked) -> range:
    """1, 2, ..., as many as were asked for."""
    return range(1, asked.seeds + 1)


def outcome(
    name: str,
    asked: Asked,
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
) -> Outcome:
    """Write NAME.csv, .svg, .png and .json; lines in `panels` by `axes`, or `draw(path, subtitle)`.

    `used` are the files and folders of `asked.data` that were read: whether those were made up is said. `seeds`
    are those that were used, where that is not all that were asked for.
    """
    settings = Settings(
        name,
        data=data,
        synthetic=made_up(asked, used),
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
    write(
        asked.out,
        settings,
        {key: [row.get(key) for row in table] for key in names},
        minutes=(time.monotonic() - began) / 60,
        draw=lambda path: chosen(path, settings.words),
    )
    files = [asked.out / f"{name}.{ending}" for ending in ENDINGS]
    return Outcome(columns, rows, files, settings.words)
