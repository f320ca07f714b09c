"""Three ways to learn from flipped labels: as they are, by the unbiased target, by the forward-corrected loss.

The paper trains on flipped labels as they are, and names debiased losses as a direction. All three cost the
same epsilon: what differs is AUC, and above all calibration, which bidding needs. All three learn with the
settings that were chosen for the forward loss. The others want smaller steps where labels are noisy: on a log
that was tuned on (user unit, K = 1, epsilon 1) an Adam epsilon of 1e-3 brought the unbiased target to an AUC
loss of .294 and flipped labels as they are to .312, beside .289 for the forward loss.
"""

from __future__ import annotations

import time

from tacit.privacy.units import Split, UnitKind
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.label_dp.report import line, outcome
from tacit.studies.plotting import Panel
from tacit.studies.study import Asked, Outcome, Scale, Study
from tacit.train.labels.mechanism import Correction

NAME = "label-dp-corrections"
WAYS = (Correction.FORWARD, Correction.UNBIASED, Correction.RAW)
EPSILONS = (1, 4, 16)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    cap = min(4, setting.CAPS[asked.scale][-1])
    places = {
        "Impression": (UnitKind.IMPRESSION, 1, Split.BY_CAP),
        "User, K = 1": (UnitKind.USER, 1, Split.BY_CAP),
        f"User, K = {cap}, epsilon/K_i": (UnitKind.USER, cap, Split.BY_COUNT),
    }
    arms = {
        (title, correction): [Arm(unit, epsilon, cap, split, correction=correction) for epsilon in EPSILONS]
        for title, (unit, cap, split) in places.items()
        for correction in WAYS
    }
    measured = Measurements.of(asked, [arm for each in arms.values() for arm in each])
    panels = [Panel(title, [line(str(kind), measured, arms[title, kind]) for kind in WAYS]) for title in places]
    return outcome(NAME, asked, measured, began=began, unit="unit as named", panels=panels)


STUDY = Study(
    NAME, "Learning from flipped labels, corrected or not", setting.PAPER, "limitations and future directions",
    (), {Scale.TOY: 0.2, Scale.SMALL: 0.6, Scale.FULL: 60},
    {Scale.TOY: 2, Scale.SMALL: 3, Scale.FULL: 3}, run,
)  # fmt: skip
