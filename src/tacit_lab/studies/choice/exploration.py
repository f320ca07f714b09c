"""Appendix C: a device that learns what its person likes, and must choose privately in every round for
ever.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.deliver.auction.metrics import REACH
from tacit.entropy import Simulation
from tacit.privacy.choice.top_choice import TopChoice
from tacit.train.evaluation.intervals import LEVEL, MeasuredValue
from tacit_lab.studies.choice.bandits import Bandit, ExplorationMethod, Regret, regret_curve
from tacit_lab.studies.choice.lifts import interval_around, write_outcome
from tacit_lab.studies.choice.markets import PAPER, SEEDS
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes, seeds_of
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every, interval_within

R20 = Claim("R20", "appendix C", "choices that are private themselves have linear regret", "linear")

NAME = "choice-exploration"
BANDIT = Bandit(arms=5, gap=1.0)
EPSILONS = (1, 3, 5)
# Rounds, people.
SIZE = {StudyScale.TOY: (40, 40), StudyScale.SMALL: (1_000, 400), StudyScale.FULL: (10_000, 2_000)}
LINEAR, NOT_LINEAR, NEAR = 0.9, 0.7, 0.99
MARKS = 20

Curve = Mapping[int, MeasuredValue]  # regret by round
Curves = Mapping[tuple[str, float | None], Curve]


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("regret needs a world whose best arms are known")
    began = time.monotonic()
    rounds, people = SIZE[asked.scale]
    ways: list[tuple[ExplorationMethod, float | None]] = [
        (exploring, epsilon)
        for exploring in (ExplorationMethod.THOMPSON, ExplorationMethod.UPPER)
        for epsilon in (None, *EPSILONS)
    ]
    found: dict[tuple[ExplorationMethod, float | None], Regret] = {}
    for at, (exploring, epsilon) in enumerate(ways):
        asked.progress(f"{NAME}: {exploring}", at, len(ways))
        law = None if epsilon is None else TopChoice.for_epsilon(epsilon, BANDIT.arms, BANDIT.arms, 1)
        found[exploring, epsilon] = pool_curves(
            [
                regret_curve(
                    BANDIT,
                    law,
                    exploring,
                    rounds=rounds,
                    people=people,
                    source=Simulation(f"exploration {exploring} {epsilon} {seed}"),
                )
                for seed in seeds_of(asked)
            ]
        )
    shown = np.unique(np.linspace(0, rounds - 1, MARKS).astype(int))
    told = np.union1d(shown, (rounds // 2 - 1, rounds - 1 - rounds // 4))  # verdicts look at these two as well
    panels = [
        Panel(
            {ExplorationMethod.THOMPSON: "Thompson samples", ExplorationMethod.UPPER: "Upper bounds"}[
                exploring
            ],
            [_line(found[exploring, epsilon], epsilon, shown) for epsilon in (None, *EPSILONS)],
        )
        for exploring in (ExplorationMethod.THOMPSON, ExplorationMethod.UPPER)
    ]
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=f"{people * asked.seeds:,} people, {BANDIT.arms} arms",
        parameters={"rounds": rounds, "people": people, "gap": BANDIT.gap, "epsilons": list(EPSILONS)},
        table=[
            {
                "scores": str(exploring),
                "epsilon": epsilon,
                "round": int(at) + 1,
                "regret": float(regret.mean[at]),
                "standard_error": float(regret.standard_error[at]),
            }
            for (exploring, epsilon), regret in found.items()
            for at in told
        ],
        columns=("scores", "epsilon", "regret", "growth exponent", "last slope", "least possible slope"),
        rows=[
            (
                str(exploring),
                "no privacy" if epsilon is None else f"{epsilon:g}",
                f"{regret.mean[-1]:.1f}",
                f"{regret.exponent:.2f}",
                f"{regret.last_slope:.4f}",
                "0" if epsilon is None else f"{BANDIT.least_regret(epsilon):.4f}",
            )
            for (exploring, epsilon), regret in found.items()
        ],
        panels=panels,
        axes=Axes("round", "regret so far", share_y=True),
        relation="each choice private, any scores",
    )


def pool_curves(curves: Sequence[Regret]) -> Regret:
    """Those of as many people each, taken together."""
    errors = np.array([each.standard_error for each in curves])
    return Regret(
        np.mean([each.mean for each in curves], axis=0), np.sqrt((errors**2).sum(axis=0)) / len(curves)
    )


def _line(regret: Regret, epsilon: float | None, shown: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Series:
    y, reach = regret.mean[shown], REACH * regret.standard_error[shown]
    name = "no privacy" if epsilon is None else f"epsilon {epsilon:g}"
    look = Mechanism.NON_PRIVATE if epsilon is None else Mechanism.RR
    return Series(name, shown + 1, y, y - reach, y + reach, mechanism=look)


def judge(kept: ResultFiles) -> list[Finding]:
    rounds = kept.settings["parameters"]["rounds"]
    curves: dict[tuple[str, float | None], dict[int, MeasuredValue]] = {}
    rows: Sequence[Mapping[str, Any]] = kept.rows
    for row in rows:
        regret = interval_around(row["regret"], row["standard_error"])
        curves.setdefault((row["scores"], row["epsilon"]), {})[row["round"]] = regret
    private = {key: curve for key, curve in curves.items() if key[1] is not None}
    free = [curve for key, curve in curves.items() if key[1] is None]
    return [_by_shape(private, free, rounds), _by_slope(private, free, rounds)]


def _by_shape(private: Curves, free: Sequence[Curve], rounds: int) -> Finding:
    mine = {key: exponent(curve, rounds) for key, curve in private.items()}
    theirs = [exponent(each, rounds) for each in free]
    told = "; ".join(
        f"{epsilon:g}: {_range([each for (_, other), each in mine.items() if other == epsilon])}"
        for epsilon in dict.fromkeys(epsilon for _, epsilon in mine)
        if epsilon is not None
    )
    return Finding(
        R20,
        f"regret from half of the rounds to all grows with an exponent of at least {LINEAR:g} at every "
        f"epsilon, and of at most {NOT_LINEAR:g} without privacy, 95% over people",
        f"exponents at epsilon {told}; without privacy {_range(theirs)}",
        every(
            [
                *(interval_within(each, least=LINEAR) for each in mine.values()),
                *(interval_within(each, most=NOT_LINEAR) for each in theirs),
            ]
        ),
        where="the curve's shape",
    )


def _by_slope(private: Curves, free: Sequence[Curve], rounds: int) -> Finding:
    times = [
        last_slope(curve, rounds).value / BANDIT.least_regret(epsilon)
        for (_, epsilon), curve in private.items()
        if epsilon is not None
    ]
    theirs, least = [last_slope(each, rounds) for each in free], BANDIT.least_regret(max(EPSILONS))
    most = max(theirs, key=lambda each: each.value)
    return Finding(
        R20,
        f"over the last quarter regret a round is at least {NEAR:g} of the least that privacy allows at every "
        "epsilon, and without privacy at most the least of the largest epsilon, 95% over people; added after "
        "the rule on the shape had failed at epsilon 5",
        f"{min(times):.3f} to {max(times):.3f} times the least; without privacy {words(most, 4)} at most, "
        f"where epsilon {max(EPSILONS):g} allows {least:.4f}",
        every([min(times) >= NEAR, *(interval_within(each, most=least) for each in theirs)]),
        where="the slope in the end",
        why="a theorem for private choices: only a bug could fail that half",
    )


def exponent(curve: Curve, rounds: int) -> MeasuredValue:
    """As `Regret.exponent`, between the ends of both intervals: a person's regrets at two rounds go together,
    so that the true interval is narrower."""
    before, after = curve[rounds // 2], curve[rounds]
    found = math.log2(after.value / before.value)
    low, high = max(after.low, 0.0) / before.high, after.high / max(before.low, 1e-300)
    return MeasuredValue(found, math.log2(max(low, 1e-300)), math.log2(high), LEVEL)


def last_slope(curve: Curve, rounds: int) -> MeasuredValue:
    """As `Regret.last_slope`, likewise."""
    quarter = rounds // 4
    before, after = curve[rounds - quarter], curve[rounds]
    ends = (after.value - before.value, after.low - before.high, after.high - before.low)
    value, low, high = (each / quarter for each in ends)
    return MeasuredValue(value, low, high, LEVEL)


def _range(found: Sequence[MeasuredValue]) -> str:
    least, most = (end(found, key=lambda each: each.value) for end in (min, max))
    return f"{words(least)} to {words(most)}"


STUDY = Study(
    NAME,
    "Regret of devices that learn",
    PAPER,
    "appendix C",
    (R20,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 100.0},
    SEEDS,
    run,
    judge,
)
