"""Figure 8 drawn: lines by closed form, marks by simulation, phases on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.studies.arranging import Size, arrange, put_heading
from tacit.studies.gather.phases import ACS, COUNT, COUNT_COMMIT, RASTOGI, SECAGG, SHI
from tacit.studies.look import DASH_DOT, DOTTED, LONG, PAPER, SMALL_SIZE, SOLID, Style, drawing, save
from tacit.studies.plotting import short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

SIZE, COLUMNS = Size(250, 176), 2
LEAST, MOST = 0.8, 3e6  # phases that are drawn; lines that go further leave the panel
STYLES = {
    SHI.name: Style("#0072B2", SOLID, "o"),
    RASTOGI.name: Style("#E69F00", LONG, "s"),
    ACS.name: Style("#009E73", DASH_DOT, "^"),
    SECAGG.name: Style("#CC79A7", DOTTED, "v"),
    COUNT_COMMIT.name: Style("#ea9f6c", LONG, "X"),
    COUNT.name: Style("#D55E00", SOLID, "P", 2.4),
}
LEGEND = {COUNT.name: "Count, one upload (as DAP)"}  # the two lines lie on each other


@dataclass(frozen=True)
class Line:
    """Phases by closed form at each of the plot's `x`, and simulated ones as (x, phases)."""

    closed: Sequence[float]  # infinite beyond all numbers
    simulated: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    title: str
    x_label: str
    x: Sequence[float]
    lines: Mapping[str, Line]  # by protocol


def phases_figure(plots: Sequence[Plot], *, subtitle: str, path: Path) -> tuple[Path, Path]:
    """Write `path`.svg and `path`.png: panels in rows of two."""
    with drawing() as figure:
        from matplotlib.lines import Line2D

        made = [figure.add_axes((0.2, 0.2, 0.6, 0.6), label=str(at)) for at in range(len(plots))]
        for axes, plot in zip(made, plots, strict=True):
            _draw(axes, plot)
            put_heading(axes, plot.title, "phases a query (marks: simulated)")
        drawn = [name for name in STYLES if any(name in plot.lines for plot in plots)]
        key: list[tuple[Artist, str]] = [
            (Line2D([], [], **_look(name)), LEGEND.get(name, name)) for name in drawn
        ]
        arrange(figure, made, SIZE, columns=COLUMNS, title=path.name, subtitle=subtitle, legend=key)
        return save(figure, path, f"{path.name}: {subtitle}")


def _draw(axes: Axes, plot: Plot) -> None:
    x = np.asarray(plot.x, np.float64)
    for name in STYLES:
        if name not in plot.lines:
            continue
        line, look = plot.lines[name], _look(name)
        axes.plot(x, np.minimum(line.closed, 10 * MOST), **{**look, "marker": None}, zorder=2)
        axes.plot(*zip(*line.simulated, strict=True), **{**look, "linestyle": "none"}, zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    first, last = math.ceil(math.log10(x.min()) - 1e-9), math.floor(math.log10(x.max()) + 1e-9)
    decades = [10.0**at for at in range(first, last + 1)]
    axes.set_xticks(decades, [f"{tick:g}" if tick < 1 else short(tick) for tick in decades])
    ticks = [10.0**at for at in range(7)]
    axes.set_yticks(ticks, [short(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks([], minor=True)
    axes.set_xlim(x.min() / 1.15, x.max() * 1.15)
    axes.set_ylim(LEAST, MOST)
    axes.set_xlabel(plot.x_label, fontsize=SMALL_SIZE, labelpad=6)


def _look(name: str) -> dict[str, Any]:
    style = STYLES[name]
    return {
        "color": style.colour,
        "linewidth": style.width,
        "linestyle": (0, style.dashes) if style.dashes else "solid",
        "marker": style.marker,
        "markersize": 6.0,
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.8,
    }
