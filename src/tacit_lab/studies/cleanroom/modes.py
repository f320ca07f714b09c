"""The four modes side by side over epsilon: ours, beside the paper's one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from tacit_lab.studies.cleanroom.setting import OURS, SEEDS, TuningArm
from tacit_lab.studies.cleanroom.tuning import TuningMeasurements, gain_line, write_outcome
from tacit_lab.studies.plotting import Mechanism, Panel
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import below, every, signed_gap

NAME = "cleanroom-modes"
T22 = Claim(
    "T22", "sums over flipped labels, de-biased",
    "one noisy statistic gains more than sums over flipped labels up to epsilon 3",
)  # fmt: skip
T23 = Claim(
    "T23", "noised sums as they are", "projecting a noised sum onto the span of its own derivatives helps"
)
EPSILONS = {
    StudyScale.TOY: (3.0,),
    StudyScale.SMALL: (1.0, 3.0),
    StudyScale.FULL: (0.5, 1.0, 2.0, 3.0, 5.0, 8.0),
}
PROJECTING = {StudyScale.SMALL: (3.0,)}  # noised sums at fewer: projecting them is most of the work
LINES = {
    "aggregate": (TuningArm(loss="forward", codec="int8"), Mechanism.RR),
    "noised": (TuningArm(tuned=1, mode="noised", codec="int8"), Mechanism.DP_SGD),
    "noised, projected": (TuningArm(tuned=1, mode="noised", codec="int8", project=True), Mechanism.HYBRID),
    "one noisy statistic": (TuningArm(mode="statistic"), Mechanism.OURS),
}


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    epsilons = EPSILONS[asked.scale]
    arms = {
        name: [replace(arm, epsilon=each) for each in _epsilons(asked.scale, arm)]
        for name, (arm, _) in LINES.items()
    }
    measured = TuningMeasurements.of(asked, [TuningArm(), *(arm for each in arms.values() for arm in each)])
    lines = [
        gain_line(name, measured, arms[name], _epsilons(asked.scale, arm), mechanism)
        for name, (arm, mechanism) in LINES.items()
    ]
    return write_outcome(
        NAME,
        asked,
        began=began,
        measured=measured,
        panels=[Panel("AUC gain over the pre-trained model, %", lines)],
        axes=Axes("epsilon", "", ticks=list(epsilons)),
    )


def _epsilons(scale: StudyScale, arm: TuningArm) -> Sequence[float]:
    every = EPSILONS[scale]
    return PROJECTING.get(scale, every) if arm.mode == "noised" else every


def judge(kept: ResultFiles) -> Sequence[Finding]:
    measured = TuningMeasurements.of_table(kept)
    return [_statistic(measured), _projection(measured)]


def _compare_modes(
    measured: TuningMeasurements, one: str, other: str, most: float = math.inf
) -> tuple[str, bool | None]:
    """At every epsilon of the table up to the most."""
    line = LINES[one][0]
    epsilons = sorted(arm.epsilon for arm in measured.arms if replace(arm, epsilon=line.epsilon) == line)
    seen, verdicts = [], []
    for epsilon in (each for each in epsilons if each <= most):
        a, b = (measured.gain(replace(LINES[name][0], epsilon=epsilon)) for name in (one, other))
        seen.append(f"{signed_gap(a, b)} at epsilon {epsilon:g}")
        verdicts.append(below(b, a))
    return "; ".join(seen) or "no epsilon was run", every(verdicts)


def _statistic(measured: TuningMeasurements) -> Finding:
    seen, verdict = _compare_modes(measured, "one noisy statistic", "aggregate", most=3)
    return Finding(
        T22,
        "its AUC gain is above that of the aggregate mode with de-biasing at each epsilon up to 3, whole "
        "interval over seeds (delta 1e-6 against pure epsilon)",
        seen,
        verdict,
    )


def _projection(measured: TuningMeasurements) -> Finding:
    seen, verdict = _compare_modes(measured, "noised, projected", "noised")
    return Finding(
        T23,
        "the AUC gain is above that without projection at each epsilon, whole interval over seeds",
        seen,
        verdict,
    )


STUDY = Study(
    NAME, "The four modes side by side", OURS, "beside table 2", (T22, T23),
    {StudyScale.TOY: 0.5, StudyScale.SMALL: 2.0, StudyScale.FULL: 120}, SEEDS, run, judge,
)  # fmt: skip
