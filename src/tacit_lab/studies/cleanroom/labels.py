"""Tables 2 and A1: what label DP costs over epsilon, by loss and by mode.

Three studies: flipped labels with and without de-biasing beside no privacy, at epsilon 3 and 5 (C3, C4, C5);
what de-biasing does to calibration (T20); and the four modes side by side, ours beside the paper's one (T22,
T23).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from tacit.arrays import Floats
from tacit_lab.studies.cleanroom.setting import OURS, PAPER, SEEDS, TuningArm
from tacit_lab.studies.cleanroom.tuning import TuningMeasurements, gain_line, write_outcome
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import mean, words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import at_most, below, between, every, signed_gap

LABELS_NAME = "cleanroom-labels"
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


def run_labels(asked: StudyRequest) -> StudyOutcome:
    """Table 2, label DP: flipped labels with and without de-biasing, beside no privacy; findings C3, C4 and
    C5."""
    began = time.monotonic()
    arms = {loss: [TuningArm(epsilon=epsilon, loss=loss) for epsilon in EPSILONS] for loss in TITLES}
    measured = TuningMeasurements.of(asked, [TuningArm(), *(arm for each in arms.values() for arm in each)])
    lost, calibration = [], []
    for loss, title in TITLES.items():
        mechanism = Mechanism.OURS if loss == FORWARD else Mechanism.RR
        lost.append(
            mean_line(title, EPSILONS, [-measured.change(arm, TuningArm()) for arm in arms[loss]], mechanism)
        )
        found = [measured.figures(arm, "calibration_ratio") for arm in arms[loss]]
        calibration.append(mean_line(title, EPSILONS, found, mechanism))
        lost.append(Series("published", EPSILONS, LOST[loss], mechanism=mechanism, published=True))
        calibration.append(
            Series("published", EPSILONS, CALIBRATION[loss], mechanism=mechanism, published=True)
        )
    return write_outcome(
        LABELS_NAME,
        asked,
        began=began,
        measured=measured,
        panels=[Panel("AUC lost, %", lost), Panel("Predicted / observed", calibration)],
        axes=Axes("epsilon", ""),
    )


def judge_labels(kept: ResultFiles) -> Sequence[Finding]:
    measured = TuningMeasurements.of_table(kept)
    return [_judge_loss(measured), _overpredicts(measured), _judge_calibration(measured)]


def _arms(loss: str) -> list[TuningArm]:
    return [TuningArm(epsilon=epsilon, loss=loss) for epsilon in EPSILONS]


def _losses(measured: TuningMeasurements, loss: str) -> list[Floats]:
    return [-measured.change(arm, TuningArm()) for arm in _arms(loss)]


def _ratios(measured: TuningMeasurements, loss: str) -> list[Floats]:
    return [measured.figures(arm, "calibration_ratio") for arm in _arms(loss)]


def _figure_words(measured: TuningMeasurements, loss: str, figure: str) -> str:
    parts = [
        measured.change(arm, TuningArm()) if figure == "auc" else measured.figures(arm, figure)
        for arm in _arms(loss)
    ]
    text = " / ".join(words(mean(each)) for each in parts)
    return f"AUC {text}%" if figure == "auc" else f"predicted / observed {text}"


def _judge_loss(measured: TuningMeasurements) -> Finding:
    found = zip(_losses(measured, RAW), LOST[RAW], strict=True)
    return Finding(
        C3,
        f"the mean over seeds is within a factor of {FACTOR:g} of both, {WHOLE}",
        f"{_figure_words(measured, RAW, 'auc')} at epsilon 3 / 5",
        every(between(lost, bar / FACTOR, bar * FACTOR) for lost, bar in found),
    )


def _overpredicts(measured: TuningMeasurements) -> Finding:
    found = zip(_ratios(measured, RAW), CALIBRATION[RAW], strict=True)
    return Finding(
        C4,
        f"the mean over seeds is within {DRIFT:.0%} of both, {WHOLE}",
        f"{_figure_words(measured, RAW, 'calibration_ratio')} at epsilon 3 / 5",
        every(between(ratio / bar - 1, -DRIFT, DRIFT) for ratio, bar in found),
    )


def _judge_calibration(measured: TuningMeasurements) -> Finding:
    near = [between(ratio - 1, -CALIBRATED, CALIBRATED) for ratio in _ratios(measured, FORWARD)]
    lost = zip(_losses(measured, FORWARD), LOST[FORWARD], strict=True)
    near += [at_most(each, bar * FACTOR) for each, bar in lost]
    return Finding(
        C5,
        f"the mean over seeds is within {CALIBRATED:.0%} of 1, and at most {FACTOR:g} times that is lost, "
        f"{WHOLE}",
        f"{_figure_words(measured, FORWARD, 'calibration_ratio')}; {_figure_words(measured, FORWARD, 'auc')} "
        "at epsilon 3 / 5",
        every(near),
    )


LABELS_STUDY = Study(
    LABELS_NAME, "Label DP with and without de-biasing", PAPER, "table 2", (C3, C4, C5),
    {StudyScale.TOY: 0.4, StudyScale.SMALL: 1.1, StudyScale.FULL: 60}, SEEDS, run_labels, judge_labels,
)  # fmt: skip


DEBIASING_NAME = "cleanroom-debiasing"
T20 = Claim("T20", "the raw loss", "de-biasing brings predictions back to what is observed")
DEBIASING_EPSILONS = {
    StudyScale.TOY: (3.0, 5.0),
    StudyScale.SMALL: (3.0, 5.0),
    StudyScale.FULL: (1.0, 2.0, 3.0, 5.0, 8.0),
}
LOSSES = {"raw": Mechanism.NON_PRIVATE, "forward": Mechanism.OURS, "unbiased": Mechanism.RR}
LEFT_OUT = {StudyScale.SMALL: ("unbiased",)}  # ours, and no verdict is about it


def run_debiasing(asked: StudyRequest) -> StudyOutcome:
    """Table A1: what de-biasing does to calibration, over epsilon, by loss."""
    began = time.monotonic()
    epsilons = DEBIASING_EPSILONS[asked.scale]
    losses = [loss for loss in LOSSES if loss not in LEFT_OUT.get(asked.scale, ())]
    arms = {loss: [TuningArm(epsilon=epsilon, loss=loss) for epsilon in epsilons] for loss in losses}
    measured = TuningMeasurements.of(asked, [TuningArm(), *(arm for each in arms.values() for arm in each)])
    ratios, gains = [], []
    for loss in losses:
        mechanism = LOSSES[loss]
        found = [measured.figures(arm, "calibration_ratio") for arm in arms[loss]]
        ratios.append(mean_line(loss, epsilons, found, mechanism))
        gains.append(mean_line(loss, epsilons, [measured.gain(arm) for arm in arms[loss]], mechanism))
    return write_outcome(
        DEBIASING_NAME,
        asked,
        began=began,
        measured=measured,
        panels=[Panel("Predicted / observed", ratios), Panel("AUC gain, %", gains)],
        axes=Axes("epsilon", "", ticks=list(epsilons)),
    )


def judge_debiasing(kept: ResultFiles) -> Sequence[Finding]:
    return [_closer(TuningMeasurements.of_table(kept))]


def _closer(measured: TuningMeasurements) -> Finding:
    """How far off, in either direction, is compared seed by seed."""
    verdicts, seen = [], []
    for epsilon in (3.0, 5.0):
        off = {}
        for loss in ("raw", "forward"):
            ratio = measured.figures(TuningArm(epsilon=epsilon, loss=loss), "calibration_ratio")
            off[loss] = abs(ratio - 1)
        ratio = measured.figures(TuningArm(epsilon=epsilon, loss="forward"), "calibration_ratio")
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


DEBIASING_STUDY = Study(
    DEBIASING_NAME, "Calibration under label DP, by loss", PAPER, "table A1", (T20,),
    {StudyScale.TOY: 0.5, StudyScale.SMALL: 0.1, StudyScale.FULL: 120}, SEEDS, run_debiasing, judge_debiasing,
)  # fmt: skip


MODES_NAME = "cleanroom-modes"
T22 = Claim(
    "T22", "sums over flipped labels, de-biased",
    "one noisy statistic gains more than sums over flipped labels up to epsilon 3",
)  # fmt: skip
T23 = Claim(
    "T23", "noised sums as they are", "projecting a noised sum onto the span of its own derivatives helps"
)
MODE_EPSILONS = {
    StudyScale.TOY: (3.0,),
    StudyScale.SMALL: (1.0, 3.0),
    StudyScale.FULL: (0.5, 1.0, 2.0, 3.0, 5.0, 8.0),
}
PROJECTING = {StudyScale.SMALL: (3.0,)}  # noised sums at fewer: projecting them is most of the work
MODE_LINES = {
    "aggregate": (TuningArm(loss="forward", codec="int8"), Mechanism.RR),
    "noised": (TuningArm(tuned=1, mode="noised", codec="int8"), Mechanism.DP_SGD),
    "noised, projected": (TuningArm(tuned=1, mode="noised", codec="int8", project=True), Mechanism.HYBRID),
    "one noisy statistic": (TuningArm(mode="statistic"), Mechanism.OURS),
}


def run_modes(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    epsilons = MODE_EPSILONS[asked.scale]
    arms = {
        name: [replace(arm, epsilon=each) for each in _mode_epsilons(asked.scale, arm)]
        for name, (arm, _) in MODE_LINES.items()
    }
    measured = TuningMeasurements.of(asked, [TuningArm(), *(arm for each in arms.values() for arm in each)])
    lines = [
        gain_line(name, measured, arms[name], _mode_epsilons(asked.scale, arm), mechanism)
        for name, (arm, mechanism) in MODE_LINES.items()
    ]
    return write_outcome(
        MODES_NAME,
        asked,
        began=began,
        measured=measured,
        panels=[Panel("AUC gain over the pre-trained model, %", lines)],
        axes=Axes("epsilon", "", ticks=list(epsilons)),
    )


def _mode_epsilons(scale: StudyScale, arm: TuningArm) -> Sequence[float]:
    every = MODE_EPSILONS[scale]
    return PROJECTING.get(scale, every) if arm.mode == "noised" else every


def judge_modes(kept: ResultFiles) -> Sequence[Finding]:
    measured = TuningMeasurements.of_table(kept)
    return [_statistic(measured), _projection(measured)]


def _compare_modes(
    measured: TuningMeasurements, one: str, other: str, most: float = math.inf
) -> tuple[str, bool | None]:
    """At every epsilon of the table up to the most."""
    line = MODE_LINES[one][0]
    epsilons = sorted(arm.epsilon for arm in measured.arms if replace(arm, epsilon=line.epsilon) == line)
    seen, verdicts = [], []
    for epsilon in (each for each in epsilons if each <= most):
        a, b = (measured.gain(replace(MODE_LINES[name][0], epsilon=epsilon)) for name in (one, other))
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


MODES_STUDY = Study(
    MODES_NAME, "The four modes side by side", OURS, "beside table 2", (T22, T23),
    {StudyScale.TOY: 0.5, StudyScale.SMALL: 2.0, StudyScale.FULL: 120}, SEEDS, run_modes, judge_modes,
)  # fmt: skip
