"""The order of the units at epsilon 3, each with its best cap: finding L4.

The paper's figures are of a log of its own with publishers. Ours is made up: how often users come back to a
publisher (.6) or to an advertiser (.3) is a dial of the world, from which the order of these two follows.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

from tacit.privacy.units import Split, UnitKind
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.label_dp.report import Y_LABEL, outcome
from tacit.studies.plotting import Bars, bar_figure
from tacit.studies.results import Kept
from tacit.studies.runs import mean
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import apart, below, every

NAME = "label-dp-units"
EPSILON = 3
PLACE = "proprietary ads data, evaluation results"
L4 = Claim(
    "L4",
    PLACE,
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


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    kinds = [kind for kind in PUBLISHED if asked.data is None or kind is not UnitKind.USER_PUBLISHER]
    choices = {
        kind: [Arm(kind, EPSILON)]
        if kind is UnitKind.IMPRESSION
        else [Arm(kind, EPSILON, cap, Split.BY_COUNT) for cap in setting.CAPS[asked.scale]]
        for kind in kinds
    }
    measured = Measurements.of(asked, [arm for arms in choices.values() for arm in arms])
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

    return outcome(NAME, asked, measured, began=began, unit="unit as named", draw=draw, shown=best)


def best_arms(measured: Measurements) -> list[Arm]:
    """Each unit with its best cap, in the published order."""
    by_kind = {kind: [arm for arm in measured.arms if arm.unit is kind] for kind in PUBLISHED}
    return [measured.best(arms) for arms in by_kind.values() if arms]


def judge(kept: Kept) -> list[Finding]:
    measured = Measurements.read(kept.rows)
    best = best_arms(measured)
    losses = [measured.percent(arm) for arm in best]
    figures = ", ".join(f"{arm.unit} {mean(loss).value:.2f}%" for arm, loss in zip(best, losses, strict=True))
    steps = ", ".join(apart(wider, narrower) for narrower, wider in pairwise(losses))
    dial = MADE_UP * bool(kept.settings["synthetic"])
    lacking = [str(kind) for kind in PUBLISHED if kind not in {arm.unit for arm in best}]
    return [
        Finding(
            L4,
            "each unit with its best cap: every step to the next has an interval over paired seeds above 0; "
            "fails where one has all of it at 0 or below",
            f"{figures}; steps {steps}",
            None if lacking else every(below(narrower, wider) for narrower, wider in pairwise(losses)),
            why=f"the log has no {', '.join(lacking)}" if lacking else dial,
        )
    ]


STUDY = Study(
    NAME, "The order of the units at epsilon 3", setting.PAPER, PLACE, (L4,),
    {Scale.TOY: 0.1, Scale.SMALL: 0.8, Scale.FULL: 40}, setting.SEEDS, run, judge,
)  # fmt: skip
