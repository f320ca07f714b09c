"""Figure 8: phases per query when people come and go, for Count and for the protocols it was compared with.

Beside the paper's independent absences, longer ones: the same share of phases, ten at a time. People who
are away when a set forms are not of it, so that only leaving hurts, and people leave less often. In the
figure lines are by closed form and marks by simulation, with phases on a logarithmic scale.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.generators.worlds import seeded_generator
from tacit_lab.studies.contexts.setting import PAPER
from tacit_lab.studies.figure_style import (
    BACKGROUND,
    DASH_DOT,
    DOTTED,
    LONG,
    SMALL_SIZE,
    SOLID,
    LineStyle,
    PanelSize,
    arrange_panels,
    new_figure,
    put_heading,
    save_figure,
)
from tacit_lab.studies.gather.phases import (
    ACS,
    COUNT,
    COUNT_COMMIT,
    DAP,
    PROTOCOLS,
    RASTOGI,
    RIVALS,
    SECAGG,
    SHI,
    TOLERATED,
    Churn,
    expected_phases,
    people_until,
    simulate_queries,
)
from tacit_lab.studies.gather.phases_verdicts import AWAY, IMPRACTICAL, M10, M11, SLOW_FROM, PhasePoint, judge
from tacit_lab.studies.plotting import short_number
from tacit_lab.studies.report import ONE_SEED, write_outcome
from tacit_lab.studies.study import Study, StudyOutcome, StudyRequest, StudyScale

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

SIZE, COLUMNS = PanelSize(250, 176), 2
LEAST, MOST = 0.8, 3e6  # phases that are drawn; lines that go further leave the panel
STYLES = {
    SHI.name: LineStyle("#0072B2", SOLID, "o"),
    RASTOGI.name: LineStyle("#E69F00", LONG, "s"),
    ACS.name: LineStyle("#009E73", DASH_DOT, "^"),
    SECAGG.name: LineStyle("#CC79A7", DOTTED, "v"),
    COUNT_COMMIT.name: LineStyle("#ea9f6c", LONG, "X"),
    COUNT.name: LineStyle("#D55E00", SOLID, "P", 2.4),
}
LEGEND = {COUNT.name: "Count, one upload (as DAP)"}  # the two lines lie on each other


@dataclass(frozen=True)
class PhaseLine:
    """Phases by closed form at each of the plot's `x`, and simulated ones as (x, phases)."""

    closed: Sequence[float]  # infinite beyond all numbers
    simulated: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class PhasePlot:
    title: str
    x_label: str
    x: Sequence[float]
    lines: Mapping[str, PhaseLine]  # by protocol


def phases_figure(plots: Sequence[PhasePlot], *, subtitle: str, path: Path) -> tuple[Path, Path]:
    """Write `path`.svg and `path`.png: panels in rows of two."""
    with new_figure() as figure:
        from matplotlib.lines import Line2D

        made = [figure.add_axes((0.2, 0.2, 0.6, 0.6), label=str(at)) for at in range(len(plots))]
        for axes, plot in zip(made, plots, strict=True):
            _draw(axes, plot)
            put_heading(axes, plot.title, "phases a query (marks: simulated)")
        drawn = [name for name in STYLES if any(name in plot.lines for plot in plots)]
        key: list[tuple[Artist, str]] = [
            (Line2D([], [], **_look(name)), LEGEND.get(name, name)) for name in drawn
        ]
        arrange_panels(figure, made, SIZE, columns=COLUMNS, title=path.name, subtitle=subtitle, legend=key)
        return save_figure(figure, path, f"{path.name}: {subtitle}")


def _draw(axes: Axes, plot: PhasePlot) -> None:
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
    axes.set_xticks(decades, [f"{tick:g}" if tick < 1 else short_number(tick) for tick in decades])
    ticks = [10.0**at for at in range(7)]
    axes.set_yticks(ticks, [short_number(tick) for tick in ticks])
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
        "markeredgecolor": BACKGROUND,
        "markeredgewidth": 0.8,
    }


NAME = "gather-phases"
PEOPLE = 10_000  # what the paper fixes where it varies the share of time away
AWAYS = (1e-6, 1e-5, 3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
CROWDS = (100, 1_000, 3_000, 10_000, 20_000, 30_000, 50_000, 100_000, 1_000_000)
STAY_AWAY = 10.0  # phases at a time, where absences are long
QUERIES = {StudyScale.TOY: 60, StudyScale.SMALL: 1_000, StudyScale.FULL: 1_000}  # a thousand are the paper's
# Phases after which a query is given up; HOPELESS where the closed form expects more than LIMIT.
LIMIT = {StudyScale.TOY: 200, StudyScale.SMALL: 10_000, StudyScale.FULL: 100_000}
HOPELESS = {StudyScale.TOY: 100, StudyScale.SMALL: 1_000, StudyScale.FULL: 100_000}
SEEDS = {StudyScale.TOY: 1, StudyScale.SMALL: 1, StudyScale.FULL: 1}
_STREAM = 81


@dataclass(frozen=True)
class PhaseSweep:
    """A panel: points over the share of time away, or over the number of people."""

    name: str
    title: str
    x_label: str
    x: Sequence[float]
    at: Callable[[float], tuple[int, Churn]]  # people and churn at an x

    @property
    def settings(self) -> list[tuple[float, int, Churn]]:
        return [(x, *self.at(x)) for x in self.x]


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("people who come and go are simulated")
    began = time.monotonic()
    points = {sweep.name: list(_points(asked, at, sweep)) for at, sweep in enumerate(SWEEPS)}
    slow_from = max(people_until(each, Churn(AWAY), IMPRACTICAL) or 0 for each in RIVALS)
    return write_outcome(
        NAME,
        asked,
        unit="query",
        relation=f"a share of {TOLERATED:g} may be missing where any may",
        began=began,
        seeds=ONE_SEED,
        data=f"{QUERIES[asked.scale]:,} queries a point, given up after at most {LIMIT[asked.scale]:,} phases",
        parameters={
            "tolerated": TOLERATED,
            "stay_away": STAY_AWAY,
            "impractical": IMPRACTICAL,
            SLOW_FROM: slow_from,
        },
        table=[point.row(name) for name, each in points.items() for point in each],
        columns=("people, away, absences", *(protocol.name for protocol in PROTOCOLS)),
        rows=[row for sweep in SWEEPS for row in _rows(sweep, points[sweep.name])],
        draw=lambda path, subtitle: phases_figure(
            [_plot(sweep, points[sweep.name]) for sweep in SWEEPS], subtitle=subtitle, path=path
        ),
    )


def _points(asked: StudyRequest, at: int, sweep: PhaseSweep) -> Iterator[PhasePoint]:
    queries = QUERIES[asked.scale]
    for number, (_, people, churn) in enumerate(sweep.settings):
        asked.progress(f"{NAME}: {sweep.title.lower()}", number, len(sweep.settings))
        for which, protocol in enumerate(PROTOCOLS):
            expected = expected_phases(protocol, people, churn)
            limit = (LIMIT if expected <= LIMIT[asked.scale] else HOPELESS)[asked.scale]
            draws = seeded_generator(1, _STREAM, at, number, which)
            walked = simulate_queries(protocol, people, churn, queries=queries, limit=limit, draws=draws)
            yield PhasePoint.of(protocol, people, churn, expected if np.isfinite(expected) else None, walked)


def _rows(sweep: PhaseSweep, points: Sequence[PhasePoint]) -> Iterator[list[str]]:
    absences = "long" if sweep.settings[0][2].stay_away else "independent"
    for at, (_, people, churn) in enumerate(sweep.settings):
        here = points[at * len(PROTOCOLS) : (at + 1) * len(PROTOCOLS)]
        yield [f"{short_number(people)}, {churn.away:g}, {absences}", *(_cell(point) for point in here)]


def _cell(point: PhasePoint) -> str:
    closed = "none" if point.closed is None else f"{point.closed:.3g}"
    return f"{closed} ({point.words})" if point.protocol in RIVALS else closed


def _plot(sweep: PhaseSweep, points: Sequence[PhasePoint]) -> PhasePlot:
    where = [x for x, _, _ in sweep.settings]
    x = np.geomspace(min(where), max(where), 200).tolist()
    settings = [sweep.at(each) for each in x]
    lines = {
        protocol.name: PhaseLine(
            [expected_phases(protocol, people, churn) for people, churn in settings],
            [
                (at, point.mean)
                for at, point in zip(where, (each for each in points if each.protocol is protocol), strict=True)
                if not point.unanswered
            ],
        )
        for protocol in PROTOCOLS
        if protocol is not DAP  # drawn with Count: one upload each
    }
    return PhasePlot(sweep.title, sweep.x_label, x, lines)


def _sweeps() -> Iterator[PhaseSweep]:
    for suffix, words, stay_away in (
        ("", "independent absences", None),
        ("-sticky", f"{STAY_AWAY:g} phases at a time", STAY_AWAY),
    ):
        yield PhaseSweep(
            f"away{suffix}",
            f"N = {PEOPLE:,}, {words}",
            "share of phases in which a person is away, p",
            AWAYS,
            partial(_of_away, stay_away),
        )
        yield PhaseSweep(
            f"people{suffix}", f"p = {AWAY:g}, {words}", "people, N", CROWDS, partial(_of_people, stay_away)
        )


def _of_away(stay_away: float | None, away: float) -> tuple[int, Churn]:
    return PEOPLE, Churn(away, stay_away)


def _of_people(stay_away: float | None, people: float) -> tuple[int, Churn]:
    return round(people), Churn(AWAY, stay_away)


SWEEPS = tuple(_sweeps())
STUDY = Study(
    NAME,
    "Phases a query when people come and go",
    PAPER,
    "figure 8",
    (M10, M11),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.2, StudyScale.FULL: 7.0},
    SEEDS,
    run,
    judge,
)
