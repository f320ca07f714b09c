"""epsilon/K against epsilon/K_i, and the first K rows against K random ones: finding L5."""

from __future__ import annotations

import time
from dataclasses import replace

from tacit.privacy.units import CapChoice, Split, UnitKind
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.label_dp.report import line, outcome
from tacit.studies.plotting import Panel
from tacit.studies.results import Kept
from tacit.studies.runs import words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import FEWEST_SEEDS
from tacit.train.evaluation.seeds import paired_seeds

NAME = "label-dp-split"
PLACE = "handling multiple impressions per unit"
L5 = Claim("L5", PLACE, "sharing epsilon by a unit's own count is no worse than sharing it by the cap")
SHOWN = (1, 4, 16)  # epsilons of random rows, and of the table for people
ALARM = 0.05  # the chance of one false alarm in all comparisons together


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    epsilons = setting.EPSILONS[asked.scale]
    caps = [cap for cap in setting.CAPS[asked.scale] if cap > 1]
    by_cap = {cap: [Arm(UnitKind.USER, epsilon, cap, Split.BY_CAP) for epsilon in epsilons] for cap in caps}
    by_count = {cap: [replace(arm, split=Split.BY_COUNT) for arm in arms] for cap, arms in by_cap.items()}
    random = {
        cap: [replace(arm, choice=CapChoice.RANDOM) for arm in arms if arm.epsilon in SHOWN]
        for cap, arms in by_count.items()
    }
    every = [arm for group in (by_cap, by_count, random) for arms in group.values() for arm in arms]
    measured = Measurements.of(asked, every)
    panels = [
        Panel(
            f"K = {cap}",
            [
                line("epsilon/K", measured, by_cap[cap]),
                line("epsilon/K_i", measured, by_count[cap]),
                line("epsilon/K_i, random rows", measured, random[cap]),
            ],
        )
        for cap in caps
    ]
    shown = [arm for arm in every if arm.epsilon in SHOWN]
    return outcome(NAME, asked, measured, began=began, unit="user", panels=panels, shown=shown)


def judge(kept: Kept) -> list[Finding]:
    measured = Measurements.read(kept.rows)
    by_cap = [arm for arm in measured.arms if arm.split is Split.BY_CAP]
    rule = (
        f"in none of {len(by_cap)} pairs (epsilon, K > 1) is epsilon/K_i worse by an interval over paired "
        f"seeds, {1 - ALARM:.0%} for all pairs together; fails where it is in one"
    )
    if len(measured.seeds) < FEWEST_SEEDS:
        return [Finding(L5, rule, "too few seeds", None)]
    if not by_cap:
        return [Finding(L5, rule, "no cap above 1 was tried", None)]
    gaps = {
        arm: paired_seeds(
            measured.percent(replace(arm, split=Split.BY_COUNT)),
            measured.percent(arm),
            1 - ALARM / len(by_cap),
        )
        for arm in by_cap
    }
    worse = [arm for arm, gap in gaps.items() if gap.low > 0]
    better = sum(gap.high < 0 for gap in gaps.values())
    least, most = (end(gaps.values(), key=lambda gap: gap.value) for end in (min, max))
    where = ", ".join(f"epsilon {arm.epsilon:g} K = {arm.cap}" for arm in worse)
    return [
        Finding(
            L5,
            rule,
            f"better in {better}, worse in {len(worse)}{f' ({where})' if worse else ''}; "
            f"mean differences from {words(least)} to {words(most)} points",
            not worse,
            why="" if worse else "not shown to be worse",
        )
    ]


STUDY = Study(
    NAME, "Sharing a unit's epsilon among its rows", setting.PAPER, PLACE, (L5,),
    {Scale.TOY: 0.2, Scale.SMALL: 0.5, Scale.FULL: 100}, setting.SEEDS, run, judge,
)  # fmt: skip
