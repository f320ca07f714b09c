"""What every label-DP figure leaves behind: the table, the lines over epsilon, the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tacit.studies import report
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.runs import mean, words
from tacit.studies.study import Asked, Outcome

RELATION = "replace label"
Y_LABEL = "AUC loss against non-private, %"
HEADER = (
    "model", "unit", "epsilon", "cap", "split", "choice", "correction", "AUC loss against non-private, %",
    "predicted / observed", "log loss",
)  # fmt: skip


def line(name: str, measured: Measurements, arms: Sequence[Arm]) -> Series:
    """One line over epsilon; the band is the interval over seeds."""
    found = [mean(measured.percent(arm)) for arm in arms]
    return Series(
        name,
        [float(arm.epsilon or 0) for arm in arms],
        [each.value for each in found],
        [each.low for each in found],
        [each.high for each in found],
        Mechanism.RR,
    )


def published(epsilon: float, *percents: float) -> Series:
    """Figures that the paper prints."""
    at = [epsilon] * len(percents)
    return Series("published", at, percents, mechanism=Mechanism.RR, published=True)


def outcome(
    name: str,
    asked: Asked,
    measured: Measurements,
    *,
    began: float,
    unit: str,
    panels: Sequence[Panel] = (),
    draw: Callable[[Path, str], object] | None = None,
    shown: Sequence[Arm] | None = None,
    share_y: bool = True,
) -> Outcome:
    """Write the study's files; `shown` are the arms that people see in a table, all of them if None."""
    ticks = sorted({float(x) for panel in panels for each in panel.series for x in each.columns[0]})
    models = dict.fromkeys(arm.model for arm in measured.arms)
    return report.outcome(
        name,
        asked,
        unit=unit,
        relation=RELATION,
        began=began,
        data=setting.data_words(asked),
        parameters={
            "rows": setting.ROWS[asked.scale],
            "bins": setting.BINS[asked.scale],
            "learning": {model: repr(setting.learning(model)) for model in models},
        },
        table=measured.rows(),
        columns=HEADER,
        rows=[_row(measured, arm) for arm in (measured.arms if shown is None else shown)],
        panels=panels,
        axes=report.Axes("epsilon", Y_LABEL, ticks, share_y),
        draw=draw,
        used=setting.files(asked),
    )


def _row(measured: Measurements, arm: Arm) -> tuple[str, ...]:
    return (
        arm.model,
        str(arm.unit),
        "none" if arm.epsilon is None else f"{arm.epsilon:g}",
        str(arm.cap),
        str(arm.split),
        str(arm.choice),
        str(arm.correction),
        words(mean(measured.percent(arm))),
        f"{measured.mean(arm, 'calibration_ratio'):.3f}",
        f"{measured.mean(arm, 'log_loss'):.4f}",
    )
