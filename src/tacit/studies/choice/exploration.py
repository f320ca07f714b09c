"""Appendix C: a device that learns what its person likes, and must choose privately in every round for ever."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.deliver.auction.metrics import REACH
from tacit.deliver.exploration import Bandit, Exploring, Regret, regret_curve
from tacit.entropy import Simulation
from tacit.privacy.choice.ranked import TopChoice
from tacit.studies.choice.lifts import around
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.report import seeds_of
from tacit.studies.results import Kept
from tacit.studies.runs import words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every
from tacit.train.evaluation.estimates import LEVEL, Measured

R20 = Claim("R20", "appendix C", "choices that are private themselves have linear regret", "linear")

NAME = "choice-exploration"
BANDIT = Bandit(arms=5, gap=1.0)
EPSILONS = (1, 3, 5)
SIZE = {Scale.TOY: (40, 40), Scale.SMALL: (1_000, 400), Scale.FULL: (10_000, 2_000)}  # rounds, people
LINEAR, NOT_LINEAR, NEAR = 0.9, 0.7, 0.99
MARKS = 20

Curve = Mapping[int, Measured]  # regret by round
Curves = Mapping[tuple[str, float | None], Curve]


def run(asked: Asked) -> Outcome:
    asked.refuse_data("regret needs a world whose best arms are known")
    began = time.monotonic()
    rounds, people = SIZE[asked.scale]
    ways: list[tuple[Exploring, float | None]] = [
        (exploring, epsilon)
        for exploring in (Exploring.THOMPSON, Exploring.UPPER)
        for epsilon in (None, *EPSILONS)
    ]
    found: dict[tuple[Exploring, float | None], Regret] = {}
    for at, (exploring, epsilon) in enumerate(ways):
        asked.track(f"{NAME}: {exploring}", at, len(ways))
        law = None if epsilon is None else TopChoice.for_epsilon(epsilon, BANDIT.arms, BANDIT.arms, 1)
        found[exploring, epsilon] = together(
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
            {Exploring.THOMPSON: "Thompson samples", Exploring.UPPER: "Upper bounds"}[exploring],
            [_line(found[exploring, epsilon], epsilon, shown) for epsilon in (None, *EPSILONS)],
        )
        for exploring in (Exploring.THOMPSON, Exploring.UPPER)
    ]
    return outcome(
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


def together(curves: Sequence[Regret]) -> Regret:
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


def judge(kept: Kept) -> list[Finding]:
    rounds = kept.settings["parameters"]["rounds"]
    curves: dict[tuple[str, float | None], dict[int, Measured]] = {}
    rows: Sequence[Mapping[str, Any]] = kept.rows
    for row in rows:
        regret = around(row["regret"], row["standard_error"])
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
                *(_at_least(each, LINEAR) for each in mine.values()),
                *(_at_most(each, NOT_LINEAR) for each in theirs),
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
        every([min(times) >= NEAR, *(_at_most(each, least) for each in theirs)]),
        where="the slope in the end",
        why="a theorem for private choices: only a bug could fail that half",
    )


def exponent(curve: Curve, rounds: int) -> Measured:
    """As `Regret.exponent`, between the ends of both intervals: a person's regrets at two rounds go together,
    so that the true interval is narrower."""
    before, after = curve[rounds // 2], curve[rounds]
    found = math.log2(after.value / before.value)
    low, high = max(after.low, 0.0) / before.high, after.high / max(before.low, 1e-300)
    return Measured(found, math.log2(max(low, 1e-300)), math.log2(high), LEVEL)


def last_slope(curve: Curve, rounds: int) -> Measured:
    """As `Regret.last_slope`, likewise."""
    quarter = rounds // 4
    before, after = curve[rounds - quarter], curve[rounds]
    ends = (after.value - before.value, after.low - before.high, after.high - before.low)
    value, low, high = (each / quarter for each in ends)
    return Measured(value, low, high, LEVEL)


def _at_least(found: Measured, bar: float) -> bool | None:
    if found.low >= bar:
        return True
    return False if found.high < bar else None


def _at_most(found: Measured, bar: float) -> bool | None:
    if found.high <= bar:
        return True
    return False if found.low > bar else None


def _range(found: Sequence[Measured]) -> str:
    least, most = (end(found, key=lambda each: each.value) for end in (min, max))
    return f"{words(least)} to {words(most)}"


STUDY = Study(
    NAME,
    "Regret of devices that learn",
    PAPER,
    "appendix C",
    (R20,),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 100.0},
    SEEDS,
    run,
    judge,
)
