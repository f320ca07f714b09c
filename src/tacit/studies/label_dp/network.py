"""The paper's network (embeddings of 8, layers of 128 and 64) in place of the factorization machine."""

from __future__ import annotations

import time

from tacit.privacy.units import Split, UnitKind
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.label_dp.epsilons import PLACE, PUBLISHED
from tacit.studies.label_dp.report import line, outcome, published
from tacit.studies.plotting import Panel
from tacit.studies.study import Asked, Outcome, Scale, Study

NAME = "label-dp-network"
EPSILONS = (1, 4, 16)
TITLES = {setting.FM: "Factorization machine", setting.NETWORK: "Network"}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    caps = setting.CAPS[asked.scale][:2]
    arms = {
        (model, cap): [
            Arm(UnitKind.USER, epsilon, cap, Split.BY_COUNT, model=model)
            if cap
            else Arm(epsilon=epsilon, model=model)
            for epsilon in EPSILONS
        ]
        for model in TITLES
        for cap in (0, *caps)  # 0: the impression unit
    }
    measured = Measurements.of(asked, [arm for each in arms.values() for arm in each])
    panels = [
        Panel(
            title,
            [
                line("impression", measured, arms[model, 0]),
                *(line(f"user, K = {cap}", measured, arms[model, cap]) for cap in caps),
                published(4, *PUBLISHED.values()),
            ],
        )
        for model, title in TITLES.items()
    ]
    return outcome(NAME, asked, measured, began=began, unit="unit as named", panels=panels)


STUDY = Study(
    NAME, "The paper's network beside the factorization machine", setting.PAPER,
    PLACE, (), {Scale.TOY: 0.2, Scale.SMALL: 0.6, Scale.FULL: 90},
    {Scale.TOY: 2, Scale.SMALL: 3, Scale.FULL: 2}, run,
)  # fmt: skip
