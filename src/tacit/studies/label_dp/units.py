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
from tacit.studies.runs import mean
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import apart, below, every

NAME = "label-dp-units"
EPSILON = 3
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
    best = {kind: measured.best(arms) for kind, arms in choices.items()}
    labels = [f"{kind}\nK = {best[kind].cap}" for kind in kinds]

    def draw(path: Path) -> object:
        heights = [max(0.0, mean(measured.percent(best[kind])).value) for kind in kinds]
        seeds = f"{len(measured.seeds)} seed{'' if len(measured.seeds) == 1 else 's'}"
        made_up = "synthetic, " if setting.synthetic(asked) else ""
        return bar_figure(
            [Bars("", labels, heights, [PUBLISHED[kind] for kind in kinds])],
            subtitle=f"Epsilon {EPSILON}, replace label, best K of each unit, epsilon/K_i; "
            f"{made_up}{setting.data_words(asked)}, {seeds}; published: another log",
            x_label="privacy unit",
            y_label=Y_LABEL,
            path=path,
        )

    finding = _finding(measured, [best[kind] for kind in kinds])
    return outcome(
        NAME,
        asked,
        measured,
        began=began,
        unit="unit as named",
        draw=draw,
        findings=[finding],
        rows=[best[kind] for kind in kinds],
    )


def _finding(measured: Measurements, best: list[Arm]) -> Finding:
    losses = [measured.percent(arm) for arm in best]
    figures = ", ".join(f"{arm.unit} {mean(loss).value:.2f}%" for arm, loss in zip(best, losses, strict=True))
    steps = ", ".join(apart(wider, narrower) for narrower, wider in pairwise(losses))
    return Finding(
        "L4",
        f"at epsilon {EPSILON} impression < user x advertiser < user x publisher < user",
        "each unit with its best cap: every step to the next has an interval over paired seeds above 0",
        f"{figures}; steps {steps}",
        every(below(narrower, wider) for narrower, wider in pairwise(losses))
        if len(best) == len(PUBLISHED)
        else None,
    )


STUDY = Study(
    NAME, "The order of the units at epsilon 3", setting.PAPER, "Proprietary Ads Dataset, evaluation results",
    ("L4",), {Scale.TOY: 0.1, Scale.SMALL: 5, Scale.FULL: 40}, setting.SEEDS, run,
)  # fmt: skip
