"""Table 2, label DP: flipped labels with and without de-biasing, beside no privacy; findings C3, C4 and C5."""

from __future__ import annotations

import time

from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.report import line, outcome
from tacit.studies.cleanroom.setting import PAPER, SEEDS, Arm
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.report import Axes
from tacit.studies.runs import mean, words
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import FEWEST_SEEDS

NAME = "cleanroom-labels"
EPSILONS = (3.0, 5.0)
RAW, FORWARD = "raw", "forward"
LOST = {RAW: (8.3, 2.1), FORWARD: (0.5, 0.2)}  # published, percent of AUC, by epsilon
CALIBRATION = {RAW: (4.0, 1.4), FORWARD: (1.0, 1.0)}
FACTOR, DRIFT, CALIBRATED = 2.0, 0.15, 0.05
TITLES = {RAW: "not de-biased", FORWARD: "de-biased"}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    arms = {loss: [Arm(epsilon=epsilon, loss=loss) for epsilon in EPSILONS] for loss in TITLES}
    measured = Measurements.of(asked, [Arm(), *(arm for each in arms.values() for arm in each)])
    lost, calibration = [], []
    for loss, title in TITLES.items():
        mechanism = Mechanism.OURS if loss == FORWARD else Mechanism.RR
        lost.append(line(title, [-measured.change(arm, Arm()) for arm in arms[loss]], EPSILONS, mechanism))
        found = [measured.figures(arm, "calibration_ratio") for arm in arms[loss]]
        calibration.append(line(title, found, EPSILONS, mechanism))
        lost.append(Series("published", EPSILONS, LOST[loss], mechanism=mechanism, published=True))
        calibration.append(
            Series("published", EPSILONS, CALIBRATION[loss], mechanism=mechanism, published=True)
        )
    return outcome(
        NAME,
        asked,
        began=began,
        measured=measured,
        findings=[_lost(measured), *(_calibrated(measured, loss) for loss in TITLES)],
        panels=[Panel("AUC lost, %", lost), Panel("Predicted / observed", calibration)],
        axes=Axes("epsilon", ""),
    )


def _said(measured: Measurements, loss: str, figure: str) -> str:
    parts = []
    for epsilon in EPSILONS:
        arm = Arm(epsilon=epsilon, loss=loss)
        found = measured.change(arm, Arm()) if figure == "auc" else measured.figures(arm, figure)
        parts.append(f"{words(mean(found))} at epsilon {epsilon:g}")
    return ", ".join(parts)


def _lost(measured: Measurements) -> Finding:
    found = [-float(measured.change(Arm(epsilon=epsilon), Arm()).mean()) for epsilon in EPSILONS]
    near = [bar / FACTOR <= lost <= bar * FACTOR for lost, bar in zip(found, LOST[RAW], strict=True)]
    return Finding(
        "C3",
        "without de-biasing, flipped labels cost 8.3% and 2.1% of AUC at epsilon 3 and 5",
        f"the mean over seeds is within a factor of {FACTOR:g} of both",
        f"AUC {_said(measured, RAW, 'auc')}",
        all(near) if _enough(measured) else None,
    )


def _calibrated(measured: Measurements, loss: str) -> Finding:
    arms = [Arm(epsilon=epsilon, loss=loss) for epsilon in EPSILONS]
    found = [float(measured.figures(arm, "calibration_ratio").mean()) for arm in arms]
    reach = DRIFT if loss == RAW else CALIBRATED
    near = [abs(ratio / bar - 1) <= reach for ratio, bar in zip(found, CALIBRATION[loss], strict=True)]
    seen = f"predicted / observed {_said(measured, loss, 'calibration_ratio')}"
    if loss == RAW:
        words_, rule = (
            "without de-biasing, predicted / observed is 4.0 and 1.4 at epsilon 3 and 5",
            f"the mean over seeds is within {DRIFT:.0%} of both",
        )
    else:
        lost = [-float(measured.change(arm, Arm()).mean()) for arm in arms]
        near += [each <= bar * FACTOR for each, bar in zip(lost, LOST[FORWARD], strict=True)]
        words_, rule = (
            "with de-biasing, predicted / observed is 1.0, and .5% and .2% of AUC are lost",
            f"the mean over seeds is within {CALIBRATED:.0%} of 1, and at most {FACTOR:g} times that is lost",
        )
        seen += f"; AUC {_said(measured, loss, 'auc')}"
    return Finding("C4" if loss == RAW else "C5", words_, rule, seen, all(near) if _enough(measured) else None)


def _enough(measured: Measurements) -> bool:
    return len(measured.figures(Arm(), "auc")) >= FEWEST_SEEDS


STUDY = Study(
    NAME, "Label DP with and without de-biasing", PAPER, "table 2", ("C3", "C4", "C5"),
    {Scale.TOY: 0.4, Scale.SMALL: 6, Scale.FULL: 60}, SEEDS, run,
)  # fmt: skip
