"""Figure 8: phases a query when people come and go, for Count and for the protocols it was compared with.

Beside the paper's independent absences, longer ones: the same share of phases, ten at a time. People who are
away when a set forms are not of it, so that only leaving hurts, and people leave less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tacit.data.generators.generated import generator
from tacit.studies.contexts.setting import PAPER
from tacit.studies.gather.phases import (
    DAP,
    PROTOCOLS,
    RIVALS,
    TOLERATED,
    Churn,
    expected_phases,
    people_until,
)
from tacit.studies.gather.phases_figure import Line, Plot, phases_figure
from tacit.studies.gather.phases_verdicts import AWAY, IMPRACTICAL, M10, M11, SLOW_FROM, Point, judge
from tacit.studies.gather.phases_walks import walk
from tacit.studies.plotting import short
from tacit.studies.report import ONE_SEED, outcome
from tacit.studies.study import Asked, Outcome, Scale, Study

NAME = "gather-phases"
PEOPLE = 10_000  # what the paper fixes where it varies the share of time away
AWAYS = (1e-6, 1e-5, 3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
CROWDS = (100, 1_000, 3_000, 10_000, 20_000, 30_000, 50_000, 100_000, 1_000_000)
STAY_AWAY = 10.0  # phases at a time, where absences are long
QUERIES = {Scale.TOY: 60, Scale.SMALL: 1_000, Scale.FULL: 1_000}  # a thousand are the paper's
LIMIT = {Scale.TOY: 200, Scale.SMALL: 10_000, Scale.FULL: 100_000}  # phases after which a query is given up
HOPELESS = {Scale.TOY: 100, Scale.SMALL: 1_000, Scale.FULL: 100_000}  # where the closed form expects more
SEEDS = {Scale.TOY: 1, Scale.SMALL: 1, Scale.FULL: 1}
_STREAM = 81


@dataclass(frozen=True)
class Sweep:
    """A panel: points over the share of time away, or over the number of people."""

    name: str
    title: str
    x_label: str
    x: Sequence[float]
    at: Callable[[float], tuple[int, Churn]]  # people and churn at an x

    @property
    def settings(self) -> list[tuple[float, int, Churn]]:
        return [(x, *self.at(x)) for x in self.x]


def run(asked: Asked) -> Outcome:
    asked.refuse_data("people who come and go are simulated")
    began = time.monotonic()
    points = {sweep.name: list(_points(asked, at, sweep)) for at, sweep in enumerate(SWEEPS)}
    slow_from = max(people_until(each, Churn(AWAY), IMPRACTICAL) or 0 for each in RIVALS)
    return outcome(
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


def _points(asked: Asked, at: int, sweep: Sweep) -> Iterator[Point]:
    queries = QUERIES[asked.scale]
    for number, (_, people, churn) in enumerate(sweep.settings):
        asked.track(f"{NAME}: {sweep.title.lower()}", number, len(sweep.settings))
        for which, protocol in enumerate(PROTOCOLS):
            expected = expected_phases(protocol, people, churn)
            limit = (LIMIT if expected <= LIMIT[asked.scale] else HOPELESS)[asked.scale]
            draws = generator(1, _STREAM, at, number, which)
            walked = walk(protocol, people, churn, queries=queries, limit=limit, draws=draws)
            yield Point.of(protocol, people, churn, expected if np.isfinite(expected) else None, walked)


def _rows(sweep: Sweep, points: Sequence[Point]) -> Iterator[list[str]]:
    absences = "long" if sweep.settings[0][2].stay_away else "independent"
    for at, (_, people, churn) in enumerate(sweep.settings):
        here = points[at * len(PROTOCOLS) : (at + 1) * len(PROTOCOLS)]
        yield [f"{short(people)}, {churn.away:g}, {absences}", *(_cell(point) for point in here)]


def _cell(point: Point) -> str:
    closed = "none" if point.closed is None else f"{point.closed:.3g}"
    return f"{closed} ({point.words})" if point.protocol in RIVALS else closed


def _plot(sweep: Sweep, points: Sequence[Point]) -> Plot:
    where = [x for x, _, _ in sweep.settings]
    x = np.geomspace(min(where), max(where), 200).tolist()
    settings = [sweep.at(each) for each in x]
    lines = {
        protocol.name: Line(
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
    return Plot(sweep.title, sweep.x_label, x, lines)


def _sweeps() -> Iterator[Sweep]:
    for suffix, words, stay_away in (
        ("", "independent absences", None),
        ("-sticky", f"{STAY_AWAY:g} phases at a time", STAY_AWAY),
    ):
        yield Sweep(
            f"away{suffix}",
            f"N = {PEOPLE:,}, {words}",
            "share of phases in which a person is away, p",
            AWAYS,
            partial(_of_away, stay_away),
        )
        yield Sweep(
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
    {Scale.TOY: 0.1, Scale.SMALL: 0.2, Scale.FULL: 7.0},
    SEEDS,
    run,
    judge,
)
