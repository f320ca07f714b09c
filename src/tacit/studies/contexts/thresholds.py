"""Figure 4: the least click-through rate at which an ad is shown trades precision for coverage."""

from __future__ import annotations

import time

from tacit.studies.contexts.clustered import at_threshold, compared, measured
from tacit.studies.contexts.figures import cells, falls, line, panels, rises, said
from tacit.studies.contexts.serving import PAPER_THRESHOLD, Arm
from tacit.studies.contexts.setting import PAPER, SEEDS, THRESHOLDS, Found, contest, outcome
from tacit.studies.contexts.trial import LAST
from tacit.studies.plotting import Mechanism, Series
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

NAME = "contexts-threshold"
LOW, HIGH = 0.1, 0.9
PUBLISHED = {"precision": 0.48, "coverage": 0.47}  # at the paper's threshold
METRICS = ("precision", "coverage")


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, lambda _: {LAST: Arm(LAST)})
    arm = held.found[LAST]
    table, rows = [], []
    for threshold in THRESHOLDS:
        row = [f"{threshold:g}"]
        for part, tally in arm.parts().items():
            for metric in METRICS:
                figure = measured(tally, at_threshold(THRESHOLDS.index(threshold), metric))
                table.append({"threshold": threshold, "requests": part, "metric": metric, **cells(figure)})
                row.append(said(figure))
        rows.append(row)
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "levels": list(LAST), "ads": Arm(LAST).ads},
        table=table,
        columns=("least CTR", *(f"{metric}, {part}" for part in arm.parts() for metric in METRICS)),
        rows=rows,
        findings=[_trades(arm)],
        panels=panels((metric.capitalize(), _lines(arm, metric)) for metric in METRICS),
        axes=Axes("least click-through rate at which an ad is shown", "share", share_y=True),
    )


def _lines(arm: Found, metric: str) -> list[Series | None]:
    lines: list[Series | None] = []
    for part, tally in arm.parts().items():
        points = [measured(tally, at_threshold(at, metric)) for at in range(len(THRESHOLDS))]
        lines.append(line(part, THRESHOLDS, points, Mechanism.DISCLOSURE))
    diamond = Series(
        "published", [PAPER_THRESHOLD], [PUBLISHED[metric]], mechanism=Mechanism.DISCLOSURE, published=True
    )
    return [*lines, diamond]


def _trades(arm: Found) -> Finding:
    low, high = THRESHOLDS.index(LOW), THRESHOLDS.index(HIGH)
    gained, lost = (
        compared(
            arm.everything,
            arm.everything,
            at_threshold(high, metric),
            other_statistic=at_threshold(low, metric),
        )
        for metric in METRICS
    )
    here = [measured(arm.everything, at_threshold(THRESHOLDS.index(PAPER_THRESHOLD), each)) for each in METRICS]
    return Finding(
        "M1",
        "the least click-through rate trades precision for coverage",
        f"from {LOW:g} to {HIGH:g} precision rises and coverage falls, both whole intervals over people",
        f"precision {said(gained)}, coverage {said(lost)}; at {PAPER_THRESHOLD:g} "
        f"{' and '.join(said(each) for each in here)} (published .48 and .47)",
        every([rises(gained), falls(lost)]),
    )


STUDY = Study(
    NAME,
    "Precision and coverage over the least click-through rate",
    PAPER,
    "figure 4",
    ("M1",),
    {Scale.TOY: 0.1, Scale.SMALL: 1.0, Scale.FULL: 30.0},
    SEEDS,
    run,
)
