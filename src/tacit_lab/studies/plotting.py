"""Figures in one look: lines over epsilon with bands for intervals, and bars for histograms.

    line_figure(
        [Panel("Display ads", [Series("RR", epsilons, losses, low, high, Mechanism.RR)])],
        subtitle="Per impression, replace label; synthetic, 400k rows, 10 seeds",
        x_label="epsilon", y_label="AUC loss against non-private, %", log_x_ticks=(1, 4, 8), path=out / "units",
    )

writes `units.svg` for pages, and `units.png`, at twice a page's resolution, for documents. What is shown
(`Series`, `Bars`) is checked before anything is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit_lab.studies.figure_style import (
    ACCENT,
    BACKGROUND,
    INK,
    MUTED,
    SMALL_SIZE,
    LineLabel,
    LineStyle,
    Mechanism,
    PanelSize,
    arrange_panels,
    has_room,
    new_figure,
    put_heading,
    put_labels,
    save_figure,
    style_of,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Bars", "Mechanism", "Panel", "Series", "bar_figure", "line_figure", "short_number"]


ALONE, BESIDE = PanelSize(330, 210), PanelSize(232, 176)
MOST_COLUMNS = 3
MOST_LABELLED = 2  # more panels than this share one legend
MOST_TICKS = 8  # values of x that are all written out
BARS_WITH_FIGURES = 12  # more bars than this have an axis only
HOLLOW: dict[str, Any] = {"marker": "D", "s": 32, "facecolors": BACKGROUND, "linewidths": 1.4, "zorder": 5}


@dataclass(frozen=True, eq=False)
class Series:
    """A line of one mechanism; `published` figures are hollow diamonds without a line, in its colour. `steps`
    stay at a value up to the next, as counts do.

    Lines of one mechanism under several names share its colour, from full to pale in the order of their names.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    mechanism: Mechanism = Mechanism.OURS
    published: bool = False
    steps: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", Mechanism(self.mechanism))
        if (self.low is None) != (self.high is None):
            raise BadInput(f"series {self.name}: expected low and high together, got one of them")
        rows = np.size(np.asarray(self.x))
        for part in ("x", "y", "low", "high"):
            if getattr(self, part) is None:
                continue
            column = np.asarray(getattr(self, part), dtype=np.float64)
            if column.shape != (rows,) or not rows:
                raise BadInput(f"series {self.name}: expected {part} as long as x ({rows}), got {column.shape}")
            if not np.isfinite(column).all():
                raise BadInput(f"series {self.name}: expected {part} to be finite, got NaN or infinity")
        _, y, low, high = self.columns
        if np.any(low > y) or np.any(y > high):
            raise BadInput(f"series {self.name}: expected low <= y <= high, got a value outside its interval")

    @property
    def columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """x, y, low and high by rising x; without an interval, y in place of its ends."""
        x, y = np.asarray(self.x, np.float64), np.asarray(self.y, np.float64)
        low = y if self.low is None else np.asarray(self.low, np.float64)
        high = y if self.high is None else np.asarray(self.high, np.float64)
        order = np.argsort(x, kind="stable")
        return x[order], y[order], low[order], high[order]


@dataclass(frozen=True)
class Panel:
    title: str
    series: Sequence[Series]


@dataclass(frozen=True)
class Bars:
    """A histogram: a height for each label; `published` heights are hollow diamonds over the bars."""

    title: str
    labels: Sequence[str]
    heights: Sequence[float]
    published: Sequence[float] | None = None

    def __post_init__(self) -> None:
        for name, column in (("heights", self.heights), ("published heights", self.published)):
            if column is None:
                continue
            if len(column) != len(self.labels) or not len(column):
                raise BadInput(f"expected {len(self.labels)} {name} for as many labels, got {len(column)}")
            if not np.isfinite(column).all() or min(column) < 0:
                raise BadInput(f"expected {name} that are finite and >= 0, got another")


Styles = Mapping[tuple[Mechanism, str], LineStyle]


def line_figure(
    panels: Sequence[Panel],
    *,
    subtitle: str,
    x_label: str,
    y_label: str,
    path: Path,
    log_x_ticks: Sequence[float] | None = None,
    share_y: bool = True,
) -> tuple[Path, Path]:
    """Write `path`.svg and `path`.png, titled by the path's name. The subtitle names unit, relation, data."""
    if not panels or not all(panel.series for panel in panels):
        raise BadInput("expected panels with at least one series each, got an empty one or none")
    every = [each for panel in panels for each in panel.series]
    if log_x_ticks is not None and min(each.columns[0][0] for each in every) <= 0:
        raise BadInput("expected x > 0 on a logarithmic axis, got a series with 0 or less")
    styles = _styles(every)
    with new_figure() as figure:
        columns, size, made = _axes(figure, len(panels), share_y)
        for axes, panel in zip(made, panels, strict=True):
            for each in panel.series:
                _draw(axes, each, styles[each.mechanism, each.name])
            _set_x(axes, panel.series, log_x_ticks)
        for axes, panel in zip(made, panels, strict=True):
            _set_y(axes, every if share_y else panel.series)
        ends = [_ends(panel.series, styles) for panel in panels]
        direct = len(panels) <= MOST_LABELLED and all(
            has_room(axes, size, labels) for axes, labels in zip(made, ends, strict=True)
        )
        for at, (axes, panel) in enumerate(zip(made, panels, strict=True)):
            own_scale = at % columns == 0 or not share_y
            put_heading(axes, panel.title, y_label if own_scale else "")
            axes.tick_params(labelleft=own_scale)
            if at + columns >= len(panels):
                axes.set_xlabel(x_label, fontsize=SMALL_SIZE, labelpad=6)
            if direct:
                put_labels(axes, size, ends[at])
        key = _legend_entries([each for each in every if each.published or not direct], styles)
        arrange_panels(figure, made, size, columns=columns, title=path.name, subtitle=subtitle, legend=key)
        return save_figure(figure, path, f"{path.name}: {subtitle}")


def bar_figure(
    panels: Sequence[Bars],
    *,
    subtitle: str,
    x_label: str,
    y_label: str,
    path: Path,
    log_y: bool = False,
    share_y: bool = False,
) -> tuple[Path, Path]:
    """Write `path`.svg and `path`.png: histograms side by side, heights written out where they fit.

    On a logarithmic axis a height of 0 has its place and no bar. With `share_y` equal heights look equal in all
    panels, for figures that people compare across them.
    """
    if not panels:
        raise BadInput("expected at least one histogram, got none")
    if log_y and not all(any(panel.heights) for panel in panels):
        raise BadInput("expected some height > 0 on a logarithmic axis, got none")
    with new_figure() as figure:
        from matplotlib.lines import Line2D

        columns, size, made = _axes(figure, len(panels), share_y)
        every = [height for panel in panels for height in _heights(panel)]
        key: list[tuple[Artist, str]] = []
        for axes, panel in zip(made, panels, strict=True):
            places = np.arange(len(panel.labels))
            bars = axes.bar(places, panel.heights, width=0.76, color=ACCENT, zorder=2)
            _set_bar_heights(axes, every if share_y else _heights(panel), log_y)
            if panel.published is not None:
                axes.scatter(places, panel.published, edgecolors=INK, **HOLLOW)
                key = [(bars.patches[0], "measured"), (Line2D([], [], **_diamond(INK)), "published")]
            elif len(panel.labels) <= BARS_WITH_FIGURES:
                words = [short_number(height) if height or not log_y else "" for height in panel.heights]
                axes.bar_label(bars, words, padding=3, fontsize=SMALL_SIZE - 1.5, color=MUTED)
            axes.set_xticks(places, list(panel.labels))
            axes.tick_params(axis="x", length=0)
            axes.set_xlabel(x_label, fontsize=SMALL_SIZE, labelpad=6)
            put_heading(axes, panel.title, y_label)
        arrange_panels(figure, made, size, columns=columns, title=path.name, subtitle=subtitle, legend=key)
        return save_figure(figure, path, f"{path.name}: {subtitle}")


def short_number(number: float) -> str:
    """A number as people say it.

    >>> [short_number(number) for number in (0, 0.25, 950, 1234, 25_300, 4_100_000)]
    ['0', '0.25', '950', '1.2k', '25k', '4.1M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.{0 if abs(number) >= 10 * size else 1}f}".removesuffix(".0") + letter
    return f"{number:.3g}"


def _axes(figure: Figure, count: int, share_y: bool) -> tuple[int, PanelSize, list[Axes]]:
    """Blank panels, and in how many columns of which size they will stand."""
    columns = min(count, 2 if count == 4 else MOST_COLUMNS)
    size = ALONE if count == 1 else BESIDE
    made: list[Axes] = []
    for _ in range(count):
        made.append(
            figure.add_axes(
                (0.2, 0.2, 0.6, 0.6), label=str(len(made)), sharey=made[0] if share_y and made else None
            )
        )
    return columns, size, made


def _styles(series: Iterable[Series]) -> Styles:
    """A style for every name, the same in all panels; published figures take that of their mechanism."""
    names: dict[Mechanism, list[str]] = {}
    for each in series:
        known = names.setdefault(each.mechanism, [])
        if not each.published and each.name not in known:
            known.append(each.name)
    styles = {(each.mechanism, each.name): style_of(each.mechanism) for each in series}
    for mechanism, known in names.items():
        for at, name in enumerate(known):
            styles[mechanism, name] = style_of(mechanism, at, len(known))
    return styles


def _draw(axes: Axes, series: Series, style: LineStyle) -> None:
    x, y, low, high = series.columns
    if series.published:
        if series.low is not None:
            axes.vlines(x, low, high, colors=style.colour, linewidth=1.2, zorder=4)
        axes.scatter(x, y, edgecolors=style.colour, **HOLLOW)
        return
    if series.low is not None and len(x) == 1:
        axes.vlines(x, low, high, colors=style.colour, linewidth=1.2, zorder=2)
    elif series.low is not None:
        axes.fill_between(x, low, high, color=style.colour, alpha=0.16, linewidth=0, zorder=2)
    axes.plot(x, y, **_line(style), zorder=3, drawstyle="steps-post" if series.steps else "default")


def _line(style: LineStyle) -> dict[str, Any]:
    return {
        "color": style.colour,
        "linewidth": style.width,
        "linestyle": (0, style.dashes) if style.dashes else "solid",
        "marker": style.marker or None,
        "markersize": 6.0,
        "markeredgecolor": BACKGROUND,
        "markeredgewidth": 0.8,
    }


def _set_x(axes: Axes, series: Sequence[Series], log_ticks: Sequence[float] | None) -> None:
    start = min(float(each.columns[0][0]) for each in series)
    end = max(float(each.columns[0][-1]) for each in series)
    if log_ticks is None:
        margin = 0.04 * (end - start) or 1.0
        axes.set_xlim(start - margin, end + margin)
        used = sorted({float(x) for each in series for x in each.columns[0]})
        if len(used) <= MOST_TICKS:
            axes.set_xticks(used)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        return
    start, end = min(start, *log_ticks), max(end, *log_ticks)
    margin = (end / start) ** 0.04 if end > start else 2.0
    axes.set_xscale("log")
    axes.set_xlim(start / margin, end * margin)
    axes.set_xticks(list(log_ticks), [f"{tick:g}" for tick in log_ticks])
    axes.set_xticks([], minor=True)


def _set_y(axes: Axes, series: Sequence[Series]) -> None:
    """From zero where zero is near, so that heights compare; else around the data."""
    lowest = min(float(each.columns[2].min()) for each in series)
    highest = max(float(each.columns[3].max()) for each in series)
    if -0.05 * highest <= lowest < 0.4 * highest:
        bottom = min(0.0, lowest) - 0.02 * highest
    else:
        bottom = lowest - (0.06 * (highest - lowest) or 0.05 * abs(highest) or 0.5)
    _set_heights(axes, bottom, highest, room=0.06)
    axes.yaxis.set_major_formatter(lambda height, _: f"{height:g}")


def _set_heights(axes: Axes, bottom: float, highest: float, room: float) -> None:
    """Round ticks, up to the one above the data if that is near, else with a little room."""
    from matplotlib.ticker import MaxNLocator

    top = highest + room * (highest - bottom)
    ticks = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(bottom, top)
    near = ticks[-1] - highest <= 0.6 * (ticks[1] - ticks[0])
    top = max(float(ticks[-1]), top) if near else top
    axes.set_ylim(bottom, top + 0.004 * (top - bottom))  # the last rule in its full width
    axes.set_yticks([round(float(tick), 12) for tick in ticks if bottom <= tick <= top])


def _heights(panel: Bars) -> list[float]:
    return [*panel.heights, *(panel.published or ())]


def _set_bar_heights(axes: Axes, every: Sequence[float], log_y: bool) -> None:
    """From zero, or from the power of ten below the least bar; with room for the figures above the bars."""
    if log_y:
        axes.set_yscale("log")
        least = min(height for height in every if height > 0)
        axes.set_ylim(10.0 ** math.floor(math.log10(least) - 0.1), 1.8 * max(every))
    else:
        _set_heights(axes, 0, max(every) or 1.0, room=0.1)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda height, _: short_number(height))


def _ends(series: Sequence[Series], styles: Styles) -> list[LineLabel]:
    """Where each line ends, for its direct label."""
    return [
        LineLabel(
            each.name,
            float(each.columns[0][-1]),
            float(each.columns[1][-1]),
            styles[each.mechanism, each.name].colour,
        )
        for each in series
        if not each.published
    ]


def _legend_entries(series: Iterable[Series], styles: Styles) -> list[tuple[Artist, str]]:
    """One entry for each line or published figure, in the order of first appearance."""
    from matplotlib.lines import Line2D

    entries: dict[tuple[str, bool], Artist] = {}
    for each in series:
        style = styles[each.mechanism, each.name]
        look = _diamond(style.colour) if each.published else _line(style)
        entries.setdefault((each.name, each.published), Line2D([], [], **look))
    return [(artist, name) for (name, _), artist in entries.items()]


def _diamond(colour: str) -> dict[str, Any]:
    hollow = {"marker": "D", "markersize": 5.6, "markerfacecolor": BACKGROUND, "markeredgewidth": 1.4}
    return {"linestyle": "none", "markeredgecolor": colour, **hollow}
