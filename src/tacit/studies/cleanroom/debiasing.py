"""Table A1: what de-biasing does to calibration, over epsilon, by loss."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.labels import CALIBRATED
from tacit.studies.cleanroom.report import line, outcome
from tacit.studies.cleanroom.setting import PAPER, SEEDS, Arm
from tacit.studies.plotting import Mechanism, Panel
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.runs import mean, words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import below, between, every

NAME = "cleanroom-debiasing"
T20 = Claim("T20", "the raw loss", "de-biasing brings predictions back to what is observed")
EPSILONS = {Scale.TOY: (3.0, 5.0), Scale.SMALL: (3.0, 5.0), Scale.FULL: (1.0, 2.0, 3.0, 5.0, 8.0)}
LOSSES = {"raw": Mechanism.NON_PRIVATE, "forward": Mechanism.OURS, "unbiased": Mechanism.RR}
LEFT_OUT = {Scale.SMALL: ("unbiased",)}  # ours, and no verdict is about it


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    epsilons = EPSILONS[asked.scale]
    losses = [loss for loss in LOSSES if loss not in LEFT_OUT.get(asked.scale, ())]
    arms = {loss: [Arm(epsilon=epsilon, loss=loss) for epsilon in epsilons] for loss in losses}
    measured = Measurements.of(asked, [Arm(), *(arm for each in arms.values() for arm in each)])
    ratios, gains = [], []
    for loss in losses:
        mechanism = LOSSES[loss]
        found = [measured.figures(arm, "calibration_ratio") for arm in arms[loss]]
        ratios.append(line(loss, found, epsilons, mechanism))
        gains.append(line(loss, [measured.gain(arm) for arm in arms[loss]], epsilons, mechanism))
    return outcome(
        NAME,
        asked,
        began=began,
        measured=measured,
        panels=[Panel("Predicted / observed", ratios), Panel("AUC gain, %", gains)],
        axes=Axes("epsilon", "", ticks=list(epsilons)),
    )


def judge(kept: Kept) -> Sequence[Finding]:
    return [_closer(Measurements.kept(kept))]


def _closer(measured: Measurements) -> Finding:
    """How far off, in either direction, is compared seed by seed."""
    verdicts, seen = [], []
    for epsilon in (3.0, 5.0):
        off = {}
        for loss in ("raw", "forward"):
            ratio = measured.figures(Arm(epsilon=epsilon, loss=loss), "calibration_ratio")
            off[loss] = abs(ratio - 1)
        ratio = measured.figures(Arm(epsilon=epsilon, loss="forward"), "calibration_ratio")
        verdicts += [between(ratio - 1, -CALIBRATED, CALIBRATED), below(off["forward"], off["raw"])]
        seen.append(
            f"{words(mean(ratio))} at epsilon {epsilon:g}, off by {words(mean(off['forward']))} instead of "
            f"{words(mean(off['raw']))}"
        )
    return Finding(
        T20,
        f"at epsilon 3 and 5 predicted / observed is within {CALIBRATED:.0%} of 1, and nearer to it than the "
        "raw loss's, whole intervals over seeds",
        "; ".join(seen),
        every(verdicts),
    )


STUDY = Study(
    NAME, "Calibration under label DP, by loss", PAPER, "table A1", (T20,),
    {Scale.TOY: 0.5, Scale.SMALL: 0.1, Scale.FULL: 120}, SEEDS, run, judge,
)  # fmt: skip
