"""The four modes side by side over epsilon: ours, beside the paper's one."""

from __future__ import annotations

import time
from dataclasses import replace

from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.report import gain_line, outcome
from tacit.studies.cleanroom.setting import OURS, SEEDS, Arm
from tacit.studies.plotting import Mechanism, Panel
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import apart, below, every

NAME = "cleanroom-modes"
EPSILONS = {Scale.TOY: (3.0,), Scale.SMALL: (1.0, 3.0), Scale.FULL: (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)}
LINES = {
    "aggregate": (Arm(loss="forward", codec="int8"), Mechanism.RR),
    "noised": (Arm(tuned=1, mode="noised", codec="int8"), Mechanism.DP_SGD),
    "noised, projected": (Arm(tuned=1, mode="noised", codec="int8", project=True), Mechanism.HYBRID),
    "one noisy statistic": (Arm(mode="statistic"), Mechanism.OURS),
}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    epsilons = EPSILONS[asked.scale]
    arms = {name: [replace(arm, epsilon=each) for each in epsilons] for name, (arm, _) in LINES.items()}
    measured = Measurements.of(asked, [Arm(), *(arm for each in arms.values() for arm in each)])
    lines = [gain_line(name, measured, arms[name], epsilons, LINES[name][1]) for name in LINES]
    return outcome(
        NAME,
        asked,
        began=began,
        measured=measured,
        findings=[_statistic(measured, epsilons), _projection(measured, epsilons)],
        panels=[Panel("AUC gain over the pre-trained model, %", lines)],
        axes=Axes("epsilon", "", ticks=list(epsilons)),
    )


def _compared(
    measured: Measurements, epsilons: tuple[float, ...], one: str, other: str
) -> tuple[str, bool | None]:
    seen, verdicts = [], []
    for epsilon in epsilons:
        a, b = (measured.gain(replace(LINES[name][0], epsilon=epsilon)) for name in (one, other))
        seen.append(f"{apart(a, b)} at epsilon {epsilon:g}")
        verdicts.append(below(b, a))
    return "; ".join(seen), every(verdicts)


def _statistic(measured: Measurements, epsilons: tuple[float, ...]) -> Finding:
    small = tuple(each for each in epsilons if each <= 3)
    seen, verdict = _compared(measured, small, "one noisy statistic", "aggregate")
    return Finding(
        "T22",
        "one noisy statistic gains more than aggregates of flipped labels up to epsilon 3",
        "its AUC gain is above that of the aggregate mode with de-biasing at each epsilon up to 3, whole "
        "interval over seeds (delta 1e-6 against pure epsilon)",
        seen,
        verdict,
    )


def _projection(measured: Measurements, epsilons: tuple[float, ...]) -> Finding:
    seen, verdict = _compared(measured, epsilons, "noised, projected", "noised")
    return Finding(
        "T23",
        "projecting a noised sum onto the span of its own derivatives helps",
        "the AUC gain is above that without projection at each epsilon, whole interval over seeds",
        seen,
        verdict,
    )


STUDY = Study(
    NAME, "The four modes side by side", OURS, "beside table 2", ("T22", "T23"),
    {Scale.TOY: 0.5, Scale.SMALL: 8, Scale.FULL: 120}, SEEDS, run,
)  # fmt: skip
