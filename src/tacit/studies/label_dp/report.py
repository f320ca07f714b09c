"""What every label-DP figure leaves behind: the table, the lines over epsilon, the settings, the verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit.studies.results import Settings, write
from tacit.studies.runs import mean, words
from tacit.studies.study import Asked, Finding, Outcome, judged_at

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
    draw: Callable[[Path], object] | None = None,
    findings: Sequence[Finding] = (),
    rows: Sequence[Arm] | None = None,
    share_y: bool = True,
) -> Outcome:
    """Write the study's files; `rows` are the arms that people are shown, all of them if None."""
    settings = Settings(
        name=name,
        data=setting.data_words(asked),
        synthetic=setting.synthetic(asked),
        seeds=measured.seeds,
        unit=unit,
        relation="replace label",
        command=asked.command(name),
        parameters={
            "rows": setting.ROWS[asked.scale],
            "bins": setting.BINS[asked.scale],
            "learning": {
                model: repr(setting.learning(model))
                for model in dict.fromkeys(arm.model for arm in measured.arms)
            },
            "verdicts": [finding.as_json() for finding in judged_at(asked.scale, findings)],
        },
    )
    ticks = sorted({float(x) for panel in panels for each in panel.series for x in each.columns[0]})

    def lines(path: Path) -> object:
        return line_figure(
            panels,
            subtitle=settings.words,
            x_label="epsilon",
            y_label=Y_LABEL,
            path=path,
            log_x_ticks=ticks,
            share_y=share_y,
        )

    minutes = (time.monotonic() - began) / 60
    write(asked.out, settings, measured.table(), minutes=minutes, draw=draw or lines)
    shown = [_row(measured, arm) for arm in (measured.arms if rows is None else rows)]
    files = [asked.out / f"{name}.{ending}" for ending in ("csv", "svg", "png", "json")]
    return Outcome(HEADER, shown, findings, files, settings.words)


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
