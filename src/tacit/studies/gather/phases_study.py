"""Figure 8: phases a query when people come and go, for Count and for the protocols it was compared with.

Beside the paper's independent absences, longer ones: the same share of phases, ten at a time. People who are
away when a set forms are not of it, so that only leaving hurts, and people leave less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tacit.data.generators.generated import generator
from tacit.studies.contexts.setting import PAPER
from tacit.studies.gather.phases import (
    COUNT,
    COUNT_COMMIT,
    DAP,
    PROTOCOLS,
    RIVALS,
    TOLERATED,
    Churn,
    Protocol,
    expected_phases,
    people_until,
)
from tacit.studies.gather.phases_figure import Line, Plot, phases_figure
from tacit.studies.gather.phases_walks import Walked, walk
from tacit.studies.plotting import short
from tacit.studies.report import outcome
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

NAME = "gather-phases"
PEOPLE, AWAY = 10_000, 1e-4  # what the paper fixes in its two panels
AWAYS = (1e-6, 1e-5, 3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
CROWDS = (100, 1_000, 3_000, 10_000, 20_000, 30_000, 50_000, 100_000, 1_000_000)
STAY_AWAY = 10.0  # phases at a time, where absences are long
QUERIES = {Scale.TOY: 60, Scale.SMALL: 1_000, Scale.FULL: 1_000}  # a thousand are the paper's
LIMIT = {Scale.TOY: 200, Scale.SMALL: 10_000, Scale.FULL: 100_000}  # phases after which a query is given up
SEEDS = {Scale.TOY: 1, Scale.SMALL: 1, Scale.FULL: 1}
_STREAM = 81

CLAIMED_CROWD = 1_000
IMPRACTICAL = 10.0
"""Times the phases without churn. The paper gives no figure; ten is little, so that the claim is easily met."""
STEEP, FLAT = 0.9, 1.01
"""The least slope of log phases over N p that counts as exponential, and the most a flat line may rise by."""
FROM_NP = 1.0  # below that nobody is away in most phases, and all are near their optimum, as the paper says


@dataclass(frozen=True)
class Point:
    """One protocol at one size and one churn."""

    protocol: Protocol
    people: int
    churn: Churn
    closed: float | None  # None: beyond all numbers
    walked: Walked

    def row(self, panel: str) -> dict[str, Any]:
        return {
            "panel": panel,
            "protocol": self.protocol.name,
            "people": self.people,
            "away": self.churn.away,
            "stay_away": self.churn.stay_away,
            "phases_closed_form": self.closed,
            "phases_simulated": self.walked.mean,
            "standard_error": self.walked.standard_error,
            "unanswered": self.walked.unanswered,
            "queries": len(self.walked.phases),
            "messages_between_servers": self.protocol.between_servers,
        }


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
    independent = [*points["away"], *points["people"]]
    return outcome(
        NAME,
        asked,
        unit="query",
        relation=f"a share of {TOLERATED:g} may be missing where any may",
        began=began,
        data=f"{QUERIES[asked.scale]:,} queries a point, given up after {LIMIT[asked.scale]:,} phases",
        parameters={"tolerated": TOLERATED, "stay_away": STAY_AWAY, "impractical": IMPRACTICAL},
        table=[point.row(name) for name, each in points.items() for point in each],
        columns=("people, away, absences", *(protocol.name for protocol in PROTOCOLS)),
        rows=[row for sweep in SWEEPS for row in _rows(sweep, points[sweep.name])],
        findings=[exponential(independent), impractical(independent)],
        draw=lambda path, subtitle: phases_figure(
            [_plot(sweep, points[sweep.name]) for sweep in SWEEPS], subtitle=subtitle, path=path
        ),
    )


def _points(asked: Asked, at: int, sweep: Sweep) -> Iterator[Point]:
    limit, queries = LIMIT[asked.scale], QUERIES[asked.scale]
    for number, (_, people, churn) in enumerate(sweep.settings):
        asked.track(f"{NAME}: {sweep.title.lower()}", number, len(sweep.settings))
        for which, protocol in enumerate(PROTOCOLS):
            expected = expected_phases(protocol, people, churn)
            draws = generator(1, _STREAM, at, number, which)
            walked = walk(protocol, people, churn, queries=queries, limit=limit, draws=draws)
            yield Point(protocol, people, churn, expected if np.isfinite(expected) else None, walked)


def exponential(points: Sequence[Point]) -> Finding:
    """M10: by simulation only, where every query was answered."""
    slopes = {each.name: _slope([point for point in points if point.protocol is each]) for each in RIVALS}
    rises = {
        each.name: max(point.walked.mean for point in points if point.protocol is each) / each.optimum
        for each in (COUNT, COUNT_COMMIT)
    }
    steep = [None if slope is None else slope >= STEEP for slope in slopes.values()]
    return Finding(
        "M10",
        "other protocols' phases grow exponentially in N p, Count's stay flat",
        f"over N p >= {FROM_NP:g} the logarithm of simulated phases rises by at least {STEEP:g} for each 1 of "
        f"N p in all three, and Count's are nowhere above {FLAT:g} times their number without churn",
        "slopes "
        + ", ".join(f"{name} {'none' if slope is None else f'{slope:.2f}'}" for name, slope in slopes.items())
        + "; "
        + ", ".join(f"{name} at most {rise:.3f} times" for name, rise in rises.items()),
        every([*steep, *(rise <= FLAT for rise in rises.values())]),
    )


def _slope(points: Sequence[Point]) -> float | None:
    """Of log phases over N p, by least squares."""
    used = [
        (point.people * point.churn.away, np.log(point.walked.mean))
        for point in points
        if not point.walked.unanswered and point.people * point.churn.away >= FROM_NP - 1e-9
    ]
    if len({x for x, _ in used}) < 3:
        return None
    x, y = np.array(used).T
    return float(np.polyfit(x, y, 1)[0])


def impractical(points: Sequence[Point]) -> Finding:
    """M11: where the paper draws the line, and where it is by our figures."""
    here = [
        point
        for protocol in RIVALS
        for point in points
        if point.protocol is protocol and (point.people, point.churn.away) == (CLAIMED_CROWD, AWAY)
    ]
    from_crowd = {
        factor: max(people_until(protocol, Churn(AWAY), factor) or 0 for protocol in RIVALS)
        for factor in (IMPRACTICAL, 10 * IMPRACTICAL)
    }
    return Finding(
        "M11",
        f"the other protocols are impractical from N = {CLAIMED_CROWD:,} at p = {AWAY:g}",
        f"there each of the three takes at least {IMPRACTICAL:g} times its phases without churn, in simulation",
        ", ".join(
            f"{point.protocol.name} {point.walked.words} (without churn {point.protocol.optimum})"
            for point in here
        )
        + "; all three take "
        + ", ".join(f"{factor:g} times from N = {short(people)}" for factor, people in from_crowd.items()),
        every(point.walked.mean >= IMPRACTICAL * point.protocol.optimum for point in here),
    )


def _rows(sweep: Sweep, points: Sequence[Point]) -> Iterator[list[str]]:
    absences = "long" if sweep.settings[0][2].stay_away else "independent"
    for at, (_, people, churn) in enumerate(sweep.settings):
        here = points[at * len(PROTOCOLS) : (at + 1) * len(PROTOCOLS)]
        yield [f"{short(people)}, {churn.away:g}, {absences}", *(_cell(point) for point in here)]


def _cell(point: Point) -> str:
    closed = "none" if point.closed is None else f"{point.closed:.3g}"
    return f"{closed} ({point.walked.words})" if point.protocol in RIVALS else closed


def _plot(sweep: Sweep, points: Sequence[Point]) -> Plot:
    where = [x for x, _, _ in sweep.settings]
    x = np.geomspace(min(where), max(where), 200).tolist()
    settings = [sweep.at(each) for each in x]
    lines = {
        protocol.name: Line(
            [expected_phases(protocol, people, churn) for people, churn in settings],
            [
                (at, point.walked.mean)
                for at, point in zip(where, (each for each in points if each.protocol is protocol), strict=True)
                if not point.walked.unanswered
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
    ("M10", "M11"),
    {Scale.TOY: 0.1, Scale.SMALL: 0.7, Scale.FULL: 7.0},
    SEEDS,
    run,
)
