"""Figure 4: the least click-through rate at which an ad is shown trades precision for coverage."""

from __future__ import annotations

import time

from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import at_threshold, compared, measured
from tacit.studies.contexts.contest import Found, contest
from tacit.studies.contexts.figures import falls, line, panels, rises, said
from tacit.studies.contexts.serving import PAPER_THRESHOLD, THRESHOLDS, Arm
from tacit.studies.contexts.setting import PAPER, SEEDS, outcome, sources
from tacit.studies.contexts.trial import LAST
from tacit.studies.plotting import Mechanism, Series
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every
from tacit.train.evaluation.estimates import Measured

NAME = "contexts-threshold"
LOW, HIGH = 0.1, 0.9
PUBLISHED = {"precision": 0.48, "coverage": 0.47}  # at the paper's threshold
METRICS = ("precision", "coverage")

M1 = Claim(
    "M1",
    "figure 4",
    "the least click-through rate at which an ad is shown trades precision for coverage",
    "precision .48 with coverage .47; the rule tests the direction",
)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, sources(asked), {LAST: Arm(LAST)})
    arm = held.found[LAST]
    table, rows = [], []
    for threshold in THRESHOLDS:
        row = [f"{threshold:g}"]
        for part, tally in arm.parts().items():
            for metric in METRICS:
                figure = measured(tally, at_threshold(THRESHOLDS.index(threshold), metric))
                table.append(tabled.figure(figure, threshold=threshold, requests=part, metric=metric))
                row.append(said(figure))
        rows.append(row)
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "levels": list(LAST), "ads": Arm(LAST).ads},
        table=[*table, *(tabled.contrast(apart(metric), _moved(arm, metric)) for metric in METRICS)],
        columns=("least CTR", *(f"{metric}, {part}" for part in arm.parts() for metric in METRICS)),
        rows=rows,
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


def apart(metric: str) -> str:
    return f"{metric} at {HIGH:g} less that at {LOW:g}"


def _moved(arm: Found, metric: str) -> Measured:
    low, high = (at_threshold(THRESHOLDS.index(each), metric) for each in (LOW, HIGH))
    return compared(arm.everything, arm.everything, high, other_statistic=low)


def judge(kept: Kept) -> list[Finding]:
    gained, lost = (tabled.contrast_of(kept, apart(metric)) for metric in METRICS)
    here = [
        tabled.figure_of(kept, threshold=PAPER_THRESHOLD, requests="all", metric=metric) for metric in METRICS
    ]
    return [
        Finding(
            M1,
            f"from {LOW:g} to {HIGH:g} precision rises and coverage falls, both whole intervals over people",
            f"precision {said(gained)}, coverage {said(lost)}; at {PAPER_THRESHOLD:g} "
            f"{' and '.join(said(each) for each in here)}",
            every([rises(gained), falls(lost)]),
        )
    ]


STUDY = Study(
    NAME,
    "Precision and coverage over the least click-through rate",
    PAPER,
    "figure 4",
    (M1,),
    {Scale.TOY: 0.1, Scale.SMALL: 0.3, Scale.FULL: 30.0},
    SEEDS,
    run,
    judge,
)
