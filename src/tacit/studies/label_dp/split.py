"""epsilon/K against epsilon/K_i, and the first K rows against K random ones: finding L5."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tacit.privacy.units import CapChoice, Split, UnitKind
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.label_dp.report import line, outcome
from tacit.studies.plotting import Panel
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import FEWEST_SEEDS
from tacit.train.evaluation.seeds import paired_seeds

NAME = "label-dp-split"
SHOWN = (1, 4, 16)  # epsilons of random rows, and of the table for people
ALARM = 0.05  # the chance of one false alarm in all comparisons together


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    epsilons = setting.EPSILONS[asked.scale]
    caps = [cap for cap in setting.CAPS[asked.scale] if cap > 1]
    by_cap = {cap: [Arm(UnitKind.USER, epsilon, cap, Split.BY_CAP) for epsilon in epsilons] for cap in caps}
    by_count = {cap: [Arm(UnitKind.USER, epsilon, cap, Split.BY_COUNT) for epsilon in epsilons] for cap in caps}
    random = {
        cap: [Arm(UnitKind.USER, epsilon, cap, Split.BY_COUNT, CapChoice.RANDOM) for epsilon in SHOWN]
        for cap in caps
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
    pairs = [pair for cap in caps for pair in zip(by_count[cap], by_cap[cap], strict=True)]
    return outcome(
        NAME,
        asked,
        measured,
        began=began,
        unit="user",
        panels=panels,
        findings=[_finding(measured, pairs)],
        rows=[arm for arm in every if arm.epsilon in SHOWN],
    )


def _finding(measured: Measurements, pairs: Sequence[tuple[Arm, Arm]]) -> Finding:
    words = "epsilon/K_i is no worse than epsilon/K"
    rule = (
        f"in none of {len(pairs)} pairs (epsilon, K > 1) is epsilon/K_i worse by an interval over paired "
        f"seeds, {1 - ALARM:.0%} for all pairs together"
    )
    if len(measured.seeds) < FEWEST_SEEDS:
        return Finding("L5", words, rule, "too few seeds", None)
    level = 1 - ALARM / len(pairs)
    gaps = [paired_seeds(measured.percent(count), measured.percent(cap), level) for count, cap in pairs]
    worse = [count for (count, _), gap in zip(pairs, gaps, strict=True) if gap.low > 0]
    better = sum(gap.high < 0 for gap in gaps)
    most = max(gaps, key=lambda gap: gap.value)
    least = min(gaps, key=lambda gap: gap.value)
    where = ", ".join(f"epsilon {arm.epsilon:g} K = {arm.cap}" for arm in worse)
    return Finding(
        "L5",
        words,
        rule,
        f"better in {better}, worse in {len(worse)}{f' ({where})' if worse else ''}; "
        f"mean differences from {least.value:.2f} to {most.value:.2f} points",
        not worse,
    )


STUDY = Study(
    NAME, "Sharing a unit's epsilon among its rows", setting.PAPER, "handling multiple impressions per unit",
    ("L5",), {Scale.TOY: 0.2, Scale.SMALL: 15, Scale.FULL: 100}, setting.SEEDS, run,
)  # fmt: skip
