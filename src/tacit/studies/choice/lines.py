"""Lines and panels of lifts, under the end without privacy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tacit.deliver.auction.choices import GREEDY
from tacit.studies.choice.contestants import Contestant
from tacit.studies.choice.lifts import METRICS, Lifts, Record
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.train.evaluation.estimates import Measured

TITLES = {metric: name if name.isupper() else name.capitalize() for metric, name in METRICS.items()}
LIFT_LABEL = "over the non-personalised choice, %"


def series(name: str, xs: Sequence[float], found: Sequence[Measured], look: Mechanism) -> Series:
    values, lows, highs = ([getattr(each, part) for each in found] for part in ("value", "low", "high"))
    return Series(name, xs, values, lows, highs, mechanism=look)


def line(lifts: Lifts, contestant: Contestant, epsilons: Sequence[float], metric: str) -> Series:
    found = [lifts.lift(contestant.at(epsilon), metric) for epsilon in epsilons]
    return series(contestant.name, epsilons, found, contestant.look)


def greedy_line(lifts: Lifts, xs: Sequence[float], metric: str) -> Series:
    """The end without privacy."""
    found = lifts.lift(GREEDY, metric).value
    return Series("greedy, no privacy", [min(xs), max(xs)], [found] * 2, mechanism=Mechanism.NON_PRIVATE)


def panels_over(
    lifts: Lifts,
    contestants: Sequence[Contestant],
    epsilons: Sequence[float],
    metrics: Iterable[str],
    market: str,
) -> list[Panel]:
    """One panel a metric: every contestant over epsilon, under the end without privacy."""
    return [
        Panel(
            f"{TITLES[metric]}, {market}",
            [
                *(line(lifts, each, epsilons, metric) for each in contestants),
                greedy_line(lifts, epsilons, metric),
            ],
        )
        for metric in metrics
    ]


def arms_over(contestants: Iterable[Contestant], epsilons: Sequence[float]) -> list[tuple[str, Record]]:
    """The greedy choice and every contestant at every epsilon, with what a table says of each."""
    return [
        (GREEDY, {"mechanism": GREEDY}),
        *(
            (each.at(epsilon), {"mechanism": each.name, "epsilon": epsilon})
            for each in contestants
            for epsilon in epsilons
        ),
    ]
