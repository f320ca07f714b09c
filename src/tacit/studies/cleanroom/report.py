"""What every clean-room table leaves behind: figures by arm, the picture, the settings."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.studies import report
from tacit.studies.cleanroom import setting
from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.setting import NO_PRIVACY, NONE, Arm
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.report import Axes
from tacit.studies.runs import Floats, mean, words
from tacit.studies.study import Asked, Outcome

COLUMNS = (
    "tuned", "world", "epsilon", "loss", "codec", "mode", "AUC gain, %", "predicted / observed",
    "bytes an example", "trained parameters", "of all",
)  # fmt: skip


def _row(measured: Measurements, arm: Arm) -> tuple[str, ...]:
    """For people: an arm, with intervals over seeds."""

    def average(figure: str) -> float:
        return float(measured.figures(arm, figure).mean())

    return (
        str(arm.tuned),
        "low rank" if arm.world == setting.LOWRANK else "value",
        "none" if arm.epsilon == NO_PRIVACY else f"{arm.epsilon:g}",
        "" if arm.tuned == NONE else arm.loss,
        arm.codec if isinstance(arm.tuned, int) and arm.mode in ("aggregate", "noised") else "",
        "" if arm.tuned == NONE else f"{arm.mode}{', projected' * arm.project}",
        words(mean(measured.gain(arm))),
        words(mean(measured.figures(arm, "calibration_ratio"))),
        f"{average('bytes_an_example'):,.0f}",
        f"{average('trained_parameters'):,.0f}",
        f"{average('trained_parameters') / average('parameters'):.1%}",
    )


def gain_line(
    name: str,
    measured: Measurements,
    arms: Sequence[Arm],
    at: Sequence[float],
    mechanism: Mechanism = Mechanism.OURS,
) -> Series:
    return line(name, [measured.gain(arm) for arm in arms], at, mechanism)


def line(
    name: str, figures: Sequence[Floats], at: Sequence[float], mechanism: Mechanism = Mechanism.OURS
) -> Series:
    """Means over seeds with their intervals."""
    found = [mean(each) for each in figures]
    return Series(
        name,
        list(at),
        [each.value for each in found],
        [each.low for each in found],
        [each.high for each in found],
        mechanism,
    )


def outcome(
    name: str,
    asked: Asked,
    *,
    began: float,
    measured: Measurements,
    panels: Sequence[Panel],
    axes: Axes,
) -> Outcome:
    work = setting.WORK[asked.scale]
    worlds = dict.fromkeys(arm.world for arm in measured.arms)
    return report.outcome(
        name,
        asked,
        unit="click",
        relation="replace label",
        began=began,
        data="; ".join(setting.data_words(asked, world) for world in worlds),
        parameters={
            "rows": work.rows,
            "pre-training": repr(setting.pretraining(work, seed=1)),
            "tuning everything": repr(setting.tuning_all(work, seed=1)),
            "tuning adapters": repr(setting.plan(Arm(), work, seed=1)),
        },
        table=measured.table(),
        columns=COLUMNS,
        rows=[_row(measured, arm) for arm in measured.arms],
        panels=panels,
        axes=axes,
    )
