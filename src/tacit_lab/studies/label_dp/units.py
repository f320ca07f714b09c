"""Privacy units: their numbers of examples, their order at epsilon 3 (L4), how their epsilon is split (L5).

Three studies. How many examples users have decides what a cap costs. The order of the units is that of
their losses, each with its best cap; the paper's figures are of a log of its own with publishers, and ours
is made up: how often users come back to a publisher (.6) or to an advertiser (.3) is a dial of the world,
from which the order of these two follows. A split is epsilon/K against epsilon/K_i, and the first K rows
against K random ones.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tacit.privacy.units import CapChoice, Split, UnitKind
from tacit.train.evaluation.intervals import mean_difference_over_seeds
from tacit_lab.studies.label_dp import setting
from tacit_lab.studies.label_dp.setting import (
    KINDS,
    MOST,
    Y_LABEL,
    LabelDpArm,
    LabelDpMeasurements,
    UnitSizes,
    loss_line,
    write_outcome,
)
from tacit_lab.studies.plotting import Bars, Panel, bar_figure
from tacit_lab.studies.results import ResultFiles, StudySettings, write_result
from tacit_lab.studies.runs import mean, run_tasks, words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import FEWEST_SEEDS, below, every, signed_gap

SIZES_NAME = "label-dp-users"


def run_sizes(asked: StudyRequest) -> StudyOutcome:
    """How many examples users have: what decides what a cap costs."""
    began = time.monotonic()
    (record,) = run_tasks(
        [UnitSizes(setting.study_log(asked, 1))], asked.cache, progress=asked.progress, label="counting"
    )
    kinds = [kind for kind in KINDS if f"{kind} mean" in record]
    labels = [*(str(count) for count in range(1, MOST)), f"{MOST}+"]
    counts = {kind: [record[f"{kind} {count}"] for count in range(1, MOST + 1)] for kind in kinds}
    settings = StudySettings(
        SIZES_NAME, setting.data_words(asked), setting.is_synthetic(asked), (1,), "unit",
        "counts of public keys",
        asked.command(SIZES_NAME), {"most": MOST, "scale": str(asked.scale)},
    )  # fmt: skip

    def draw(path: Path) -> object:
        return bar_figure(
            [Bars(kind, labels, counts[kind]) for kind in kinds],  # all counts, so that the axis skips none
            subtitle=f"Units of the training part by their number of examples; {_data(settings)}",
            x_label="examples",
            y_label="units",
            path=path,
            log_y=True,
        )

    table = {"examples": labels, **{kind.replace("-", "_"): counts[kind] for kind in kinds}}
    write_result(asked.out, settings, table, minutes=(time.monotonic() - began) / 60, draw=draw)
    rows = []
    for kind in kinds:
        units = sum(counts[kind])
        within = [sum(count * min(size, cap) for size, count in _sizes(counts[kind])) for cap in (1, 2, 4, 8)]
        rows.append(
            (
                kind,
                f"{units:,}",
                f"{record[f'{kind} mean']:.2f}",
                f"{record[f'{kind} largest']}",
                f"{100 * counts[kind][0] / units:.1f}",
                *(f"{100 * rows_kept / record['examples']:.1f}" for rows_kept in within),
            )
        )
    kept = [f"kept at K = {cap}, %" for cap in (1, 2, 4, 8)]
    header = ("unit", "units", "mean", "largest", "with one, %", *kept)
    files = [asked.out / f"{SIZES_NAME}.{ending}" for ending in ("csv", "svg", "png", "json")]
    return StudyOutcome(header, rows, files, _data(settings))


def _sizes(counts: list[int]) -> list[tuple[int, int]]:
    """Sizes up to the largest cap that is asked for are exact."""
    return list(enumerate(counts, start=1))


def _data(settings: StudySettings) -> str:
    return f"{'synthetic, ' if settings.synthetic else ''}{settings.data}"


SIZES_STUDY = Study(
    SIZES_NAME, "Units by their number of examples", setting.PAPER, "Criteo Attribution, statistics", (),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 4}, dict.fromkeys(StudyScale, 1), run_sizes,
    inputs=setting.inputs(0.5, 0.5),
)  # fmt: skip


ORDER_NAME = "label-dp-units"
EPSILON = 3
ORDER_PLACE = "proprietary ads data, evaluation results"
L4 = Claim(
    "L4",
    ORDER_PLACE,
    f"at epsilon {EPSILON} the loss rises from impression to user x advertiser, user x publisher and user",
    ".83/1.56/2.67/4.50%; the rule tests the order",
)
MADE_UP = "synthetic: dials of the generator set the order of advertiser and publisher"
PUBLISHED = {
    UnitKind.IMPRESSION: 0.83,
    UnitKind.USER_ADVERTISER: 1.56,
    UnitKind.USER_PUBLISHER: 2.67,
    UnitKind.USER: 4.50,
}


def run_order(asked: StudyRequest) -> StudyOutcome:
    """The order of the units at epsilon 3, each with its best cap: finding L4."""
    began = time.monotonic()
    kinds = [kind for kind in PUBLISHED if asked.data is None or kind is not UnitKind.USER_PUBLISHER]
    choices = {
        kind: [LabelDpArm(kind, EPSILON)]
        if kind is UnitKind.IMPRESSION
        else [LabelDpArm(kind, EPSILON, cap, Split.BY_COUNT) for cap in setting.CAPS[asked.scale]]
        for kind in kinds
    }
    measured = LabelDpMeasurements.of(asked, [arm for arms in choices.values() for arm in arms])
    best = best_arms(measured)
    labels = [f"{arm.unit}\nK = {arm.cap}" for arm in best]

    def draw(path: Path, subtitle: str) -> object:
        heights = [max(0.0, mean(measured.percent(arm)).value) for arm in best]
        return bar_figure(
            [Bars("", labels, heights, [PUBLISHED[arm.unit] for arm in best])],
            subtitle=f"Epsilon {EPSILON}, best K of each unit, epsilon/K_i. {subtitle}; published: another log",
            x_label="privacy unit",
            y_label=Y_LABEL,
            path=path,
        )

    return write_outcome(ORDER_NAME, asked, measured, began=began, unit="unit as named", draw=draw, shown=best)


def best_arms(measured: LabelDpMeasurements) -> list[LabelDpArm]:
    """Each unit with its best cap, in the published order."""
    by_kind = {kind: [arm for arm in measured.arms if arm.unit is kind] for kind in PUBLISHED}
    return [measured.best(arms) for arms in by_kind.values() if arms]


def judge_order(kept: ResultFiles) -> list[Finding]:
    measured = LabelDpMeasurements.read(kept.rows)
    best = best_arms(measured)
    losses = [measured.percent(arm) for arm in best]
    figures = ", ".join(f"{arm.unit} {mean(loss).value:.2f}%" for arm, loss in zip(best, losses, strict=True))
    steps = ", ".join(signed_gap(wider, narrower) for narrower, wider in pairwise(losses))
    dial = MADE_UP * bool(kept.settings["synthetic"])
    steps_hold = every(below(narrower, wider) for narrower, wider in pairwise(losses))
    lacking = [str(kind) for kind in PUBLISHED if kind not in {arm.unit for arm in best}]
    return [
        Finding(
            L4,
            "each unit with its best cap: every step to the next has an interval over paired seeds above 0; "
            "fails where one has all of it at 0 or below; a log that lacks a unit can fail and cannot hold",
            f"{figures}; steps {steps}",
            None if lacking and steps_hold is not False else steps_hold,
            why=f"the log has no {', '.join(lacking)}" if lacking and steps_hold is not False else dial,
            decider="a log that tells users, advertisers and publishers" if lacking else "",
        )
    ]


ORDER_STUDY = Study(
    ORDER_NAME, "The order of the units at epsilon 3", setting.PAPER, ORDER_PLACE, (L4,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.8, StudyScale.FULL: 40}, setting.SEEDS, run_order, judge_order,
    inputs=setting.inputs(6, 6),
)  # fmt: skip


SPLIT_NAME = "label-dp-split"
SPLIT_PLACE = "handling multiple impressions per unit"
L5 = Claim("L5", SPLIT_PLACE, "sharing epsilon by a unit's own count is no worse than sharing it by the cap")
SHOWN = (1, 4, 16)  # epsilons of random rows, and of the table for people
ALARM = 0.05  # the chance of one false alarm in all comparisons together


def run_split(asked: StudyRequest) -> StudyOutcome:
    """epsilon/K against epsilon/K_i, and the first K rows against K random ones: finding L5."""
    began = time.monotonic()
    epsilons = setting.EPSILONS[asked.scale]
    caps = [cap for cap in setting.CAPS[asked.scale] if cap > 1]
    by_cap = {
        cap: [LabelDpArm(UnitKind.USER, epsilon, cap, Split.BY_CAP) for epsilon in epsilons] for cap in caps
    }
    by_count = {cap: [replace(arm, split=Split.BY_COUNT) for arm in arms] for cap, arms in by_cap.items()}
    random = {
        cap: [replace(arm, choice=CapChoice.RANDOM) for arm in arms if arm.epsilon in SHOWN]
        for cap, arms in by_count.items()
    }
    every = [arm for group in (by_cap, by_count, random) for arms in group.values() for arm in arms]
    measured = LabelDpMeasurements.of(asked, every)
    panels = [
        Panel(
            f"K = {cap}",
            [
                loss_line("epsilon/K", measured, by_cap[cap]),
                loss_line("epsilon/K_i", measured, by_count[cap]),
                loss_line("epsilon/K_i, random rows", measured, random[cap]),
            ],
        )
        for cap in caps
    ]
    shown = [arm for arm in every if arm.epsilon in SHOWN]
    return write_outcome(SPLIT_NAME, asked, measured, began=began, unit="user", panels=panels, shown=shown)


def judge_split(kept: ResultFiles) -> list[Finding]:
    measured = LabelDpMeasurements.read(kept.rows)
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
        arm: mean_difference_over_seeds(
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


SPLIT_STUDY = Study(
    SPLIT_NAME, "Sharing a unit's epsilon among its rows", setting.PAPER, SPLIT_PLACE, (L5,),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 0.5, StudyScale.FULL: 100}, setting.SEEDS, run_split, judge_split,
    inputs=setting.inputs(12, 30),
)  # fmt: skip
