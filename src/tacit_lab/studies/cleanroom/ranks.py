"""Table 1: adapters of several ranks beside tuning all parameters; findings C1, C2 and C8, T19."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tacit.arrays import Floats
from tacit_lab.studies.cleanroom.setting import ALL, LOWRANK, NONE, PAPER, SEEDS, VALUE, TuningArm
from tacit_lab.studies.cleanroom.tuning import TuningMeasurements, write_outcome
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import below, every, say

NAME = "cleanroom-ranks"
C1 = Claim(
    "C1", "table 1", "rank 32, 1% of all parameters, keeps about 95% of the gain of tuning everything",
    "+3.44 of +3.63% of AUC",
)  # fmt: skip
C2 = Claim("C2", "table 1", "rank 1 keeps most of the gain of tuning everything", "+3.02 of +3.63% of AUC")
C8 = Claim("C8", "appendix A.2", "an adapter leaves other advertisers' predictions as they were", "claim")
T19 = Claim(
    "T19", "tuning everything",
    "where advertisers differ by low-rank changes alone, rank 32 keeps about 95% of the gain",
)  # fmt: skip
RANKS = (1, 32, 64)
# No figure was published for these.
LOWRANK_RANKS = {StudyScale.TOY: (1, 32), StudyScale.SMALL: (1, 32), StudyScale.FULL: RANKS}
PUBLISHED = {1: 3.02, 32: 3.44, 64: 3.48}
PUBLISHED_ALL = 3.63
ABOUT_95, MOST = 0.90, 0.5
TITLES = {VALUE: "Own effects of single values", LOWRANK: "Differences of low rank"}


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    ranks = {VALUE: RANKS, LOWRANK: LOWRANK_RANKS[asked.scale]}
    adapters = [TuningArm(rank, world=world) for world, each in ranks.items() for rank in each]
    measured = TuningMeasurements.of(asked, [*adapters, *(TuningArm(ALL, world=world) for world in ranks)])
    at = [float(rank) for rank in RANKS]
    published = [PUBLISHED[rank] / PUBLISHED_ALL for rank in RANKS]
    panels = [
        Panel(
            TITLES[world],
            [
                mean_line("adapters", each, [gain_share(measured, world, rank) for rank in each]),
                Series("all parameters", at, [1.0] * len(at), mechanism=Mechanism.NON_PRIVATE),
                Series("published", at, published, published=True),
            ],
        )
        for world, each in ranks.items()
    ]
    return write_outcome(
        NAME,
        asked,
        began=began,
        measured=measured,
        panels=panels,
        axes=Axes("rank", "share of the gain that tuning everything brings", ticks=at, share_y=True),
    )


def judge(kept: ResultFiles) -> Sequence[Finding]:
    measured = TuningMeasurements.of_table(kept)
    return [
        _share(C1, measured, VALUE, 32, ABOUT_95),
        _share(T19, measured, LOWRANK, 32, ABOUT_95),
        _share(C2, measured, VALUE, 1, MOST),
        _judge_untouched(measured),
    ]


def gain_share(measured: TuningMeasurements, world: str, rank: int) -> Floats:
    """Of the gain that tuning everything brings, what an adapter of this rank keeps, seed by seed."""
    return measured.gain(TuningArm(rank, world=world)) / measured.gain(TuningArm(ALL, world=world))


def _share(claim: Claim, measured: TuningMeasurements, world: str, rank: int, bar: float) -> Finding:
    kept, gain = gain_share(measured, world, rank), measured.gain(TuningArm(ALL, world=world))
    adapter = TuningArm(rank, world=world)
    of_all = measured.figures(adapter, "trained_parameters") / measured.figures(adapter, "parameters")
    return Finding(
        claim,
        f"the share kept is above {bar:.0%}, whole interval over seeds; fails where none of it is",
        f"{say('share', kept)} {say('of a gain of', gain)}%, by {of_all.mean():.1%} of the parameters",
        below(0 * kept + bar, kept),
        where=TITLES[world].lower(),
    )


def _judge_untouched(measured: TuningMeasurements) -> Finding:
    changed = [
        float(measured.figures(arm, "others_changed").sum())
        for arm in measured.arms
        if arm.tuned not in (ALL, NONE)
    ]
    return Finding(
        C8,
        "in every run, every bit of every prediction for every test click of another advertiser is the same "
        "with the adapter as without",
        f"{sum(changed):.0f} predictions changed, {len(changed)} adapters",
        every(each == 0 for each in changed),
        why="by construction: only a bug could fail it",
    )


STUDY = Study(
    NAME, "Adapters of several ranks beside tuning everything", PAPER, "table 1", (C1, C2, C8, T19),
    {StudyScale.TOY: 0.5, StudyScale.SMALL: 2.3, StudyScale.FULL: 80}, SEEDS, run, judge,
)  # fmt: skip
