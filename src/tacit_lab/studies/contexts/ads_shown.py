"""Figures 4 and 5: the least click-through rate at which an ad is shown, and how many ads are sent.

Two studies. A threshold trades precision for coverage. More ads to pick from raise both; the server alone,
which sends one, is compared with five to pick from.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from tacit.arrays import Floats
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import (
    PeopleTally,
    at_threshold,
    compare,
    falls,
    interval_line,
    make_panels,
    measure,
    rises,
    say,
)
from tacit_lab.studies.contexts.contest import PAPER_THRESHOLD, THRESHOLDS, ArmTallies, ServingArm, run_contest
from tacit_lab.studies.contexts.setting import OF_VISITS, PAPER, SEEDS, trial_sources, write_outcome
from tacit_lab.studies.contexts.trial import LAST
from tacit_lab.studies.plotting import Mechanism, Series
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

THRESHOLD_NAME = "contexts-threshold"
LOW, HIGH = 0.1, 0.9
PUBLISHED = {"precision": 0.48, "coverage": 0.47}  # at the paper's threshold
METRICS = ("precision", "coverage")

M1 = Claim(
    "M1",
    "figure 4",
    "the least click-through rate at which an ad is shown trades precision for coverage",
    "precision .48 with coverage .47; the rule tests the direction",
)


def run_threshold(asked: StudyRequest) -> StudyOutcome:
    """Figure 4: the least click-through rate at which an ad is shown trades precision for coverage."""
    began = time.monotonic()
    held = run_contest(asked, THRESHOLD_NAME, trial_sources(asked), {LAST: ServingArm(LAST)})
    arm = held.found[LAST]
    table, rows = [], []
    for threshold in THRESHOLDS:
        row = [f"{threshold:g}"]
        for part, tally in arm.parts().items():
            for metric in METRICS:
                figure = measure(tally, at_threshold(THRESHOLDS.index(threshold), metric))
                table.append(bootstrap.figure_row(figure, threshold=threshold, requests=part, metric=metric))
                row.append(say(figure))
        rows.append(row)
    return write_outcome(
        THRESHOLD_NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "levels": list(LAST), "ads": ServingArm(LAST).ads},
        table=[
            *table,
            *(
                bootstrap.contrast_row(threshold_contrast(metric), _measure_change(arm, metric))
                for metric in METRICS
            ),
        ],
        columns=("least CTR", *(f"{metric}, {part}" for part in arm.parts() for metric in METRICS)),
        rows=rows,
        panels=make_panels((metric.capitalize(), _lines(arm, metric)) for metric in METRICS),
        axes=Axes("least click-through rate at which an ad is shown", "share", share_y=True),
    )


def _lines(arm: ArmTallies, metric: str) -> list[Series | None]:
    lines: list[Series | None] = []
    for part, tally in arm.parts().items():
        points = [measure(tally, at_threshold(at, metric)) for at in range(len(THRESHOLDS))]
        lines.append(interval_line(part, THRESHOLDS, points, Mechanism.DISCLOSURE))
    diamond = Series(
        "published", [PAPER_THRESHOLD], [PUBLISHED[metric]], mechanism=Mechanism.DISCLOSURE, published=True
    )
    return [*lines, diamond]


def threshold_contrast(metric: str) -> str:
    return f"{metric} at {HIGH:g} less that at {LOW:g}"


def _measure_change(arm: ArmTallies, metric: str) -> MeasuredValue:
    low, high = (at_threshold(THRESHOLDS.index(each), metric) for each in (LOW, HIGH))
    return compare(arm.everything, arm.everything, high, other_statistic=low)


def judge_threshold(kept: ResultFiles) -> list[Finding]:
    gained, lost = (bootstrap.read_contrast(kept, threshold_contrast(metric)) for metric in METRICS)
    here = [
        bootstrap.read_figure(kept, threshold=PAPER_THRESHOLD, requests="all", metric=metric)
        for metric in METRICS
    ]
    return [
        Finding(
            M1,
            f"from {LOW:g} to {HIGH:g} precision rises and coverage falls, both whole intervals over people",
            f"precision {say(gained)}, coverage {say(lost)}; at {PAPER_THRESHOLD:g} "
            f"{' and '.join(say(each) for each in here)}",
            every([rises(gained), falls(lost)]),
        )
    ]


THRESHOLD_STUDY = Study(
    THRESHOLD_NAME,
    "Precision and coverage over the least click-through rate",
    PAPER,
    "figure 4",
    (M1,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.3, StudyScale.FULL: 30.0},
    SEEDS,
    run_threshold,
    judge_threshold,
    OF_VISITS,
)


ADS_NAME = "contexts-ads"
ADS = (1, 2, 3, 5, 10, 20, 50)
FEW, SOME, MANY = 1, 10, 50
STEPS = ((FEW, SOME), (SOME, MANY))
ALONE, TOGETHER = 1, 5
ALWAYS = 0.0  # no threshold: an ad is shown to all
LEAST = (PAPER_THRESHOLD, ALWAYS)
FIVE_FOR_ONE = f"precision with {TOGETHER} ads over that with {ALONE}, always shown, %"

M2 = Claim("M2", "figure 5", "sending more ads raises precision and coverage, with diminishing returns")
M3 = Claim(
    "M3",
    "section 5.3",
    "five ads to pick from are more precise than the one that the server alone would show",
    "precision +35%; the rule tests the direction",
)


def run_ads(asked: StudyRequest) -> StudyOutcome:
    """Figure 5: how many ads are sent; and the server alone, which sends one, against five to pick from."""
    began = time.monotonic()
    arms = {ads: ServingArm(LAST, ads, thresholds=LEAST) for ads in ADS}
    held = run_contest(asked, ADS_NAME, trial_sources(asked), arms)
    tallies = held.found
    table, rows = [], []
    for ads, arm in tallies.items():
        for part, tally in arm.parts().items():
            figures = [(least, metric, _figure(tally, least, metric)) for least in LEAST for metric in METRICS]
            table += [
                bootstrap.figure_row(figure, ads=ads, requests=part, threshold=least, metric=metric)
                for least, metric, figure in figures
            ]
            rows.append((f"{ads}", part, *(say(figure) for _, _, figure in figures)))
    every_request = {ads: arm.everything for ads, arm in tallies.items()}
    return write_outcome(
        ADS_NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"ads": list(ADS), "levels": list(LAST), "thresholds": list(LEAST)},
        table=[*table, *_contrasts(every_request)],
        columns=("ads", "requests", *(f"{metric}, CTR >= {least:g}" for least in LEAST for metric in METRICS)),
        rows=rows,
        panels=make_panels(
            (
                f"{metric.capitalize()}, {'always shown' if least == ALWAYS else f'CTR at least {least:g}'}",
                [
                    interval_line(
                        part, ADS, [_figure(tallies[ads].parts()[part], least, metric) for ads in ADS], _LOOK
                    )
                    for part in tallies[FEW].parts()
                ],
            )
            for least, metric in ((LEAST[0], "precision"), (LEAST[0], "coverage"), (ALWAYS, "precision"))
        ),
        axes=Axes("ads sent", "share", ticks=ADS, share_y=True),
    )


_LOOK = Mechanism.DISCLOSURE


def _figure(tally: PeopleTally, least: float, metric: str) -> MeasuredValue:
    return measure(tally, at_threshold(LEAST.index(least), metric))


def ads_contrast(metric: str, few: int, many: int) -> str:
    return f"{metric} with {many} ads less that with {few}, CTR >= {PAPER_THRESHOLD:g}"


def _contrasts(tallies: dict[int, PeopleTally]) -> Iterator[bootstrap.Row]:
    for metric in METRICS:
        statistic = at_threshold(LEAST.index(PAPER_THRESHOLD), metric)
        for few, many in STEPS:
            found = compare(tallies[many], tallies[few], statistic)
            yield bootstrap.contrast_row(ads_contrast(metric, few, many), found)
    always = at_threshold(LEAST.index(ALWAYS), "precision")
    yield bootstrap.contrast_row(FIVE_FOR_ONE, compare(tallies[TOGETHER], tallies[ALONE], always, by=_percent))


def _percent(one: Floats, other: Floats) -> Floats:
    beyond = np.where(one > 0, np.inf, np.nan)  # all percents, where the other has nothing
    return 100 * (np.divide(one, other, out=beyond, where=other > 0) - 1)


def judge_ads(kept: ResultFiles) -> list[Finding]:
    return [*(_returns(kept, metric) for metric in METRICS), _five_against_one(kept)]


def _returns(kept: ResultFiles, metric: str) -> Finding:
    first, later = (bootstrap.read_contrast(kept, ads_contrast(metric, *step)) for step in STEPS)
    return Finding(
        M2,
        f"from {FEW} to {SOME} ads it rises, and by more an ad than from {SOME} to {MANY}, whole intervals "
        "over people",
        f"{say(first)} from {FEW} to {SOME}, {say(later)} from {SOME} to {MANY}",
        every([rises(first), _diminishes(first, later)]),
        where=metric,
    )


def _diminishes(first: MeasuredValue, later: MeasuredValue) -> bool | None:
    """Whether an ad brings less in the later step than in the first: their whole intervals are apart."""
    if math.isnan(first.value) or math.isnan(later.value):
        return None
    before, after = (many - few for few, many in STEPS)
    if first.low / before > later.high / after:
        return True
    return False if first.high / before < later.low / after else None


def _five_against_one(kept: ResultFiles) -> Finding:
    found = bootstrap.read_contrast(kept, FIVE_FOR_ONE)
    return Finding(
        M3,
        "with an ad always shown, precision rises (whole interval over people)",
        say(found, 0, unit="%"),
        rises(found),
    )


ADS_STUDY = Study(
    ADS_NAME,
    "Precision and coverage over the number of ads sent",
    PAPER,
    "figure 5, section 5.3",
    (M2, M3),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.3, StudyScale.FULL: 30.0},
    SEEDS,
    run_ads,
    judge_ads,
    OF_VISITS,
)
