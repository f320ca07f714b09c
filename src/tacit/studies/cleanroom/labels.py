"""Table 2, label DP: flipped labels with and without de-biasing, beside no privacy; findings C3, C4 and C5."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.report import line, outcome
from tacit.studies.cleanroom.setting import PAPER, SEEDS, Arm
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.runs import Floats, mean, words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import at_most, between, every

NAME = "cleanroom-labels"
C3 = Claim("C3", "table 2", "without de-biasing, flipped labels cost much AUC", "-8.3 / -2.1% at epsilon 3 / 5")
C4 = Claim(
    "C4", "table 2", "without de-biasing, a model of flipped labels predicts far too much",
    "predicted / observed 4.0 / 1.4 at epsilon 3 / 5",
)  # fmt: skip
C5 = Claim(
    "C5", "table 2", "with de-biasing, predictions are calibrated and little AUC is lost",
    "1.0, and -.5 / -.2% of AUC at epsilon 3 / 5",
)  # fmt: skip
EPSILONS = (3.0, 5.0)
RAW, FORWARD = "raw", "forward"
LOST = {RAW: (8.3, 2.1), FORWARD: (0.5, 0.2)}  # published, percent of AUC, by epsilon
CALIBRATION = {RAW: (4.0, 1.4), FORWARD: (1.0, 1.0)}
FACTOR, DRIFT, CALIBRATED = 2.0, 0.15, 0.05
WHOLE = "by the whole interval; fails where none of it is"
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
        panels=[Panel("AUC lost, %", lost), Panel("Predicted / observed", calibration)],
        axes=Axes("epsilon", ""),
    )


def judge(kept: Kept) -> Sequence[Finding]:
    measured = Measurements.kept(kept)
    return [_lost(measured), _overpredicts(measured), _calibrated(measured)]


def _arms(loss: str) -> list[Arm]:
    return [Arm(epsilon=epsilon, loss=loss) for epsilon in EPSILONS]


def _losses(measured: Measurements, loss: str) -> list[Floats]:
    return [-measured.change(arm, Arm()) for arm in _arms(loss)]


def _ratios(measured: Measurements, loss: str) -> list[Floats]:
    return [measured.figures(arm, "calibration_ratio") for arm in _arms(loss)]


def _said(measured: Measurements, loss: str, figure: str) -> str:
    parts = [
        measured.change(arm, Arm()) if figure == "auc" else measured.figures(arm, figure) for arm in _arms(loss)
    ]
    text = " / ".join(words(mean(each)) for each in parts)
    return f"AUC {text}%" if figure == "auc" else f"predicted / observed {text}"


def _lost(measured: Measurements) -> Finding:
    found = zip(_losses(measured, RAW), LOST[RAW], strict=True)
    return Finding(
        C3,
        f"the mean over seeds is within a factor of {FACTOR:g} of both, {WHOLE}",
        f"{_said(measured, RAW, 'auc')} at epsilon 3 / 5",
        every(between(lost, bar / FACTOR, bar * FACTOR) for lost, bar in found),
    )


def _overpredicts(measured: Measurements) -> Finding:
    found = zip(_ratios(measured, RAW), CALIBRATION[RAW], strict=True)
    return Finding(
        C4,
        f"the mean over seeds is within {DRIFT:.0%} of both, {WHOLE}",
        f"{_said(measured, RAW, 'calibration_ratio')} at epsilon 3 / 5",
        every(between(ratio / bar - 1, -DRIFT, DRIFT) for ratio, bar in found),
    )


def _calibrated(measured: Measurements) -> Finding:
    near = [between(ratio - 1, -CALIBRATED, CALIBRATED) for ratio in _ratios(measured, FORWARD)]
    lost = zip(_losses(measured, FORWARD), LOST[FORWARD], strict=True)
    near += [at_most(each, bar * FACTOR) for each, bar in lost]
    return Finding(
        C5,
        f"the mean over seeds is within {CALIBRATED:.0%} of 1, and at most {FACTOR:g} times that is lost, "
        f"{WHOLE}",
        f"{_said(measured, FORWARD, 'calibration_ratio')}; {_said(measured, FORWARD, 'auc')} at epsilon 3 / 5",
        every(near),
    )


STUDY = Study(
    NAME, "Label DP with and without de-biasing", PAPER, "table 2", (C3, C4, C5),
    {Scale.TOY: 0.4, Scale.SMALL: 1.1, Scale.FULL: 60}, SEEDS, run, judge,
)  # fmt: skip
