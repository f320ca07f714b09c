"""Table 1: adapters of several ranks beside tuning all parameters; findings C1, C2 and C8."""

from __future__ import annotations

import time

from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.report import line, outcome
from tacit.studies.cleanroom.setting import ALL, LOWRANK, NONE, PAPER, SEEDS, VALUE, Arm
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.report import Axes
from tacit.studies.runs import Floats
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import below, said

NAME = "cleanroom-ranks"
RANKS = (1, 32, 64)
PUBLISHED = {1: 3.02, 32: 3.44, 64: 3.48}
PUBLISHED_ALL = 3.63
ABOUT_95, MOST = 0.90, 0.5
TITLES = {VALUE: "Own effects of single values", LOWRANK: "Differences of low rank"}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    arms = {world: [Arm(rank, world=world) for rank in RANKS] for world in TITLES}
    every = [arm for world, each in arms.items() for arm in (*each, Arm(ALL, world=world))]
    measured = Measurements.of(asked, every)
    at = [float(rank) for rank in RANKS]
    panels = [
        Panel(
            title,
            [
                line("adapters", [share(measured, world, rank) for rank in RANKS], at),
                Series("all parameters", at, [1.0] * len(at), mechanism=Mechanism.NON_PRIVATE),
                Series(
                    "published",
                    at,
                    [PUBLISHED[rank] / PUBLISHED_ALL for rank in RANKS],
                    published=True,
                ),
            ],
        )
        for world, title in TITLES.items()
    ]
    return outcome(
        NAME,
        asked,
        began=began,
        measured=measured,
        findings=[
            *(_share(measured, world, 32, ABOUT_95, id) for world, id in ((VALUE, "C1"), (LOWRANK, "T19"))),
            _share(measured, VALUE, 1, MOST, "C2"),
            _untouched(measured),
        ],
        panels=panels,
        axes=Axes("rank", "share of the gain that tuning everything brings", ticks=at, share_y=True),
    )


def share(measured: Measurements, world: str, rank: int) -> Floats:
    """Of the gain that tuning everything brings, what an adapter of this rank keeps, seed by seed."""
    return measured.gain(Arm(rank, world=world)) / measured.gain(Arm(ALL, world=world))


def _share(measured: Measurements, world: str, rank: int, bar: float, id: str) -> Finding:
    kept, gain = share(measured, world, rank), measured.gain(Arm(ALL, world=world))
    published = PUBLISHED[rank] / PUBLISHED_ALL
    where = "" if world == VALUE else ", where advertisers differ by low-rank changes alone"
    words = f"rank {rank} keeps {'about 95%' if rank == 32 else 'most'} of the gain of tuning everything{where}"
    return Finding(
        id,
        words,
        f"the share kept is above {bar:.0%}, whole interval over seeds; fails where its mean is not",
        f"{said('share', kept)} (published {published:.2f}){said(' of a gain of', gain)}%",
        below(0 * kept + bar, kept),
    )


def _untouched(measured: Measurements) -> Finding:
    changed = sum(
        float(measured.figures(arm, "others_changed").sum())
        for arm in measured.arms
        if arm.tuned not in (ALL, NONE)
    )
    return Finding(
        "C8",
        "other advertisers' predictions are untouched by an adapter",
        "in every run, every bit of every prediction for every test click of another advertiser is the same "
        "with the adapter as without",
        f"{changed:.0f} predictions changed",
        changed == 0,
    )


STUDY = Study(
    NAME, "Adapters of several ranks beside tuning everything", PAPER, "table 1", ("C1", "C2", "C8", "T19"),
    {Scale.TOY: 0.5, Scale.SMALL: 8, Scale.FULL: 80}, SEEDS, run,
)  # fmt: skip
