"""Table A1: what de-biasing does to calibration, over epsilon, by loss."""

from __future__ import annotations

import time

from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.report import line, outcome
from tacit.studies.cleanroom.setting import PAPER, SEEDS, Arm
from tacit.studies.plotting import Mechanism, Panel
from tacit.studies.report import Axes
from tacit.studies.runs import mean, words
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import below, every

NAME = "cleanroom-debiasing"
EPSILONS = {Scale.TOY: (3.0, 5.0), Scale.SMALL: (1.0, 3.0, 5.0), Scale.FULL: (1.0, 2.0, 3.0, 5.0, 8.0)}
LOSSES = {"raw": Mechanism.NON_PRIVATE, "forward": Mechanism.OURS, "unbiased": Mechanism.RR}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    epsilons = EPSILONS[asked.scale]
    arms = {loss: [Arm(epsilon=epsilon, loss=loss) for epsilon in epsilons] for loss in LOSSES}
    measured = Measurements.of(asked, [Arm(), *(arm for each in arms.values() for arm in each)])
    ratios, gains = [], []
    for loss, mechanism in LOSSES.items():
        found = [measured.figures(arm, "calibration_ratio") for arm in arms[loss]]
        ratios.append(line(loss, found, epsilons, mechanism))
        gains.append(line(loss, [measured.gain(arm) for arm in arms[loss]], epsilons, mechanism))
    return outcome(
        NAME,
        asked,
        began=began,
        measured=measured,
        findings=[_closer(measured)],
        panels=[Panel("Predicted / observed", ratios), Panel("AUC gain, %", gains)],
        axes=Axes("epsilon", "", ticks=list(epsilons)),
    )


def _closer(measured: Measurements) -> Finding:
    """How far off, in either direction, is compared seed by seed."""
    verdicts, seen = [], []
    for epsilon in (3.0, 5.0):
        off = {}
        for loss in ("raw", "forward"):
            ratio = measured.figures(Arm(epsilon=epsilon, loss=loss), "calibration_ratio")
            off[loss] = abs(ratio - 1)
        verdicts.append(below(off["forward"], off["raw"]))
        seen.append(
            f"off by {words(mean(off['forward']))} instead of {words(mean(off['raw']))} at epsilon {epsilon:g}"
        )
    return Finding(
        "T20",
        "de-biasing brings predictions back to what is observed",
        "at epsilon 3 and 5 |predicted / observed - 1| is below the raw loss's, whole interval over seeds",
        "; ".join(seen),
        every(verdicts),
    )


STUDY = Study(
    NAME, "Calibration under label DP, by loss", PAPER, "table A1", ("T20",),
    {Scale.TOY: 0.5, Scale.SMALL: 8, Scale.FULL: 120}, SEEDS, run,
)  # fmt: skip
