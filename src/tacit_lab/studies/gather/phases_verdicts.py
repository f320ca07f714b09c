"""What Figure 8's table says of each protocol at each size and churn, and the verdicts on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.deliver.auction.metrics import LEVEL, REACH
from tacit.train.evaluation.intervals import MeasuredValue, symmetric_interval
from tacit_lab.studies.gather.phases import (
    COUNT,
    COUNT_COMMIT,
    PROTOCOLS,
    RIVALS,
    Churn,
    QueryProtocol,
    SimulatedQueries,
    phases_words,
)
from tacit_lab.studies.plotting import short_number
from tacit_lab.studies.results import Cell, ResultFiles
from tacit_lab.studies.runs import words as in_words
from tacit_lab.studies.study import Claim, Finding
from tacit_lab.studies.verdicts import every, interval_within

AWAY = 1e-4  # what the paper fixes where it varies the number of people
CLAIMED_CROWD = 1_000
IMPRACTICAL = 10.0
"""Times the phases without churn. The paper gives no figure; ten is little, so that the claim is easily met."""
STEEP, FLAT = 0.9, 1.01
"""The least slope of log phases over N p that counts as exponential, and the most a flat line may rise by."""
FROM_NP = 1.0  # below that nobody is away in most phases, and all are near their optimum, as the paper says
INDEPENDENT = ("away", "people")  # the panels of the paper's own churn
SLOW_FROM = "people from which all others take ten times their phases"

M10 = Claim("M10", "figure 8", "other protocols' phases grow exponentially in N p, Count's stay flat")
M11 = Claim(
    "M11",
    "section 5.5",
    "the other protocols are impractical from a thousand people on, each away in one phase of 10,000",
    "from N = 1,000 at p = .0001",
)
NAMED = {protocol.name: protocol for protocol in PROTOCOLS}


@dataclass(frozen=True)
class PhasePoint:
    """One protocol at one size and one churn: mean phases by closed form, and of simulated queries."""

    protocol: QueryProtocol
    people: int
    churn: Churn
    closed: float | None  # None: beyond all numbers
    mean: float
    standard_error: float
    unanswered: int
    queries: int

    @classmethod
    def of(
        cls, protocol: QueryProtocol, people: int, churn: Churn, closed: float | None, walked: SimulatedQueries
    ) -> PhasePoint:
        queries = len(walked.phases)
        return cls(
            protocol, people, churn, closed, walked.mean, walked.standard_error, walked.unanswered, queries
        )

    @classmethod
    def of_row(cls, row: Mapping[str, Cell]) -> PhasePoint:
        closed, stay_away = row["phases_closed_form"], row["stay_away"]
        return cls(
            NAMED[str(row["protocol"])],
            int(row["people"] or 0),
            Churn(float(row["away"] or 0), None if stay_away is None else float(stay_away)),
            None if closed is None else float(closed),
            float(row["phases_simulated"] or 0),
            float(row["standard_error"] or 0),
            int(row["unanswered"] or 0),
            int(row["queries"] or 0),
        )

    def row(self, panel: str) -> dict[str, Cell]:
        return {
            "panel": panel,
            "protocol": self.protocol.name,
            "people": self.people,
            "away": self.churn.away,
            "stay_away": self.churn.stay_away,
            "phases_closed_form": self.closed,
            "phases_simulated": self.mean,
            "standard_error": self.standard_error,
            "unanswered": self.unanswered,
            "queries": self.queries,
            "messages_between_servers": self.protocol.between_servers,
        }

    @property
    def phases(self) -> MeasuredValue:
        """The mean with its interval, whose upper end is open where queries were given up."""
        reach = REACH * self.standard_error
        return MeasuredValue(
            self.mean, self.mean - reach, np.inf if self.unanswered else self.mean + reach, LEVEL
        )

    @property
    def words(self) -> str:
        return phases_words(self.mean, self.standard_error, self.unanswered)


def judge(kept: ResultFiles) -> list[Finding]:
    points = [PhasePoint.of_row(row) for row in kept.rows if row["panel"] in INDEPENDENT]
    return [exponential(points), impractical(points, kept.settings["parameters"][SLOW_FROM])]


def exponential(points: Sequence[PhasePoint]) -> Finding:
    """M10: by simulation only, where every query was answered."""
    slopes = {each.name: _slope([point for point in points if point.protocol is each]) for each in RIVALS}
    rises = {each: _most_times(points, each) for each in (COUNT, COUNT_COMMIT)}
    steep = [None if slope is None else interval_within(slope, least=STEEP) for slope in slopes.values()]
    flat = [_is_flat(points, each) for each in rises]
    said = (f"{name} {'none' if slope is None else in_words(slope)}" for name, slope in slopes.items())
    return Finding(
        M10,
        f"over N p >= {FROM_NP:g} the logarithm of simulated phases rises by at least {STEEP:g} for each 1 of "
        f"N p in all three, and Count's are nowhere above {FLAT:g} times their number without churn, 95% over "
        "queries",
        f"slopes {', '.join(said)}; Count at most {_or_none(rises[COUNT], 3)} times, with two-phase commit "
        f"{_or_none(rises[COUNT_COMMIT], 3)}",
        every([*steep, *flat]),
    )


def _most_times(points: Sequence[PhasePoint], protocol: QueryProtocol) -> float | None:
    """The most phases of a protocol, in those that it takes without churn; None where it was not run."""
    means = [point.mean for point in points if point.protocol is protocol]
    return max(means) / protocol.optimum if means else None


def _or_none(figure: float | None, digits: int) -> str:
    return "none" if figure is None else f"{figure:.{digits}f}"


def _is_flat(points: Sequence[PhasePoint], protocol: QueryProtocol) -> bool | None:
    most = FLAT * protocol.optimum
    means = [point.phases for point in points if point.protocol is protocol]
    if any(each.low > most for each in means):
        return False
    return True if means and all(each.high <= most for each in means) else None


def _slope(points: Sequence[PhasePoint]) -> MeasuredValue | None:
    """Of log phases over N p, by least squares; its interval is that of the means it goes through."""
    used = [
        (point.people * point.churn.away, np.log(point.mean), point.standard_error / point.mean)
        for point in points
        if not point.unanswered and point.people * point.churn.away >= FROM_NP - 1e-9
    ]
    if len({x for x, _, _ in used}) < 3:
        return None
    x, y, error = np.array(used).T
    weight = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slope, reach = float(weight @ y), REACH * float(np.sqrt(weight**2 @ error**2))
    return symmetric_interval(slope, reach, LEVEL)


def impractical(points: Sequence[PhasePoint], slow_from: int) -> Finding:
    """M11: where the paper draws the line, and where it is by our figures."""
    here = {
        point.protocol: point
        for point in points
        if point.protocol in RIVALS and (point.people, point.churn.away) == (CLAIMED_CROWD, AWAY)
    }
    said = (
        f"{each.name} {here[each].words if each in here else 'not run'} ({each.optimum})" for each in RIVALS
    )
    return Finding(
        M11,
        f"there each of the three takes at least {IMPRACTICAL:g} times its phases without churn, in "
        "simulation, 95% over queries",
        f"{', '.join(said)} phases (without churn); {IMPRACTICAL:g} times from N = {short_number(slow_from)}",
        every(
            interval_within(here[each].phases, least=IMPRACTICAL * each.optimum) if each in here else None
            for each in RIVALS
        ),
    )
