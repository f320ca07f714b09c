"""Figure 5: how many ads are sent; and the server alone, which sends one, against five to pick from."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import Tally, at_threshold, compared, measured
from tacit.studies.contexts.contest import contest
from tacit.studies.contexts.figures import line, panels, rises, said
from tacit.studies.contexts.serving import PAPER_THRESHOLD, Arm
from tacit.studies.contexts.setting import PAPER, SEEDS, outcome, sources
from tacit.studies.contexts.trial import LAST, Floats
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every
from tacit.train.evaluation.estimates import Measured

NAME = "contexts-ads"
ADS = (1, 2, 3, 5, 10, 20, 50)
FEW, SOME, MANY = 1, 10, 50
STEPS = ((FEW, SOME), (SOME, MANY))
ALONE, TOGETHER = 1, 5
ALWAYS = 0.0  # no threshold: an ad is shown to all
LEAST = (PAPER_THRESHOLD, ALWAYS)
METRICS = ("precision", "coverage")
FIVE_FOR_ONE = f"precision with {TOGETHER} ads over that with {ALONE}, always shown, %"

M2 = Claim("M2", "figure 5", "sending more ads raises precision and coverage, with diminishing returns")
M3 = Claim(
    "M3",
    "section 5.3",
    "five ads to pick from are more precise than the one that the server alone would show",
    "precision +35%; the rule tests the direction",
)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    arms = {ads: Arm(LAST, ads, thresholds=LEAST) for ads in ADS}
    held = contest(asked, NAME, sources(asked), arms)
    tallies = held.found
    table, rows = [], []
    for ads, arm in tallies.items():
        for part, tally in arm.parts().items():
            figures = [(least, metric, _figure(tally, least, metric)) for least in LEAST for metric in METRICS]
            table += [
                tabled.figure(figure, ads=ads, requests=part, threshold=least, metric=metric)
                for least, metric, figure in figures
            ]
            rows.append((f"{ads}", part, *(said(figure) for _, _, figure in figures)))
    every_request = {ads: arm.everything for ads, arm in tallies.items()}
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"ads": list(ADS), "levels": list(LAST), "thresholds": list(LEAST)},
        table=[*table, *_contrasts(every_request)],
        columns=("ads", "requests", *(f"{metric}, CTR >= {least:g}" for least in LEAST for metric in METRICS)),
        rows=rows,
        panels=panels(
            (
                f"{metric.capitalize()}, {'always shown' if least == ALWAYS else f'CTR at least {least:g}'}",
                [
                    line(part, ADS, [_figure(tallies[ads].parts()[part], least, metric) for ads in ADS], _LOOK)
                    for part in tallies[FEW].parts()
                ],
            )
            for least, metric in ((LEAST[0], "precision"), (LEAST[0], "coverage"), (ALWAYS, "precision"))
        ),
        axes=Axes("ads sent", "share", ticks=ADS, share_y=True),
    )


_LOOK = Mechanism.DISCLOSURE


def _figure(tally: Tally, least: float, metric: str) -> Measured:
    return measured(tally, at_threshold(LEAST.index(least), metric))


def more(metric: str, few: int, many: int) -> str:
    return f"{metric} with {many} ads less that with {few}, CTR >= {PAPER_THRESHOLD:g}"


def _contrasts(tallies: dict[int, Tally]) -> Iterator[tabled.Row]:
    for metric in METRICS:
        statistic = at_threshold(LEAST.index(PAPER_THRESHOLD), metric)
        for few, many in STEPS:
            found = compared(tallies[many], tallies[few], statistic)
            yield tabled.contrast(more(metric, few, many), found)
    always = at_threshold(LEAST.index(ALWAYS), "precision")
    yield tabled.contrast(FIVE_FOR_ONE, compared(tallies[TOGETHER], tallies[ALONE], always, by=_percent))


def _percent(one: Floats, other: Floats) -> Floats:
    beyond = np.where(one > 0, np.inf, np.nan)  # all percents, where the other has nothing
    return 100 * (np.divide(one, other, out=beyond, where=other > 0) - 1)


def judge(kept: Kept) -> list[Finding]:
    return [*(_returns(kept, metric) for metric in METRICS), _five_against_one(kept)]


def _returns(kept: Kept, metric: str) -> Finding:
    first, later = (tabled.contrast_of(kept, more(metric, *step)) for step in STEPS)
    return Finding(
        M2,
        f"from {FEW} to {SOME} ads it rises, and by more an ad than from {SOME} to {MANY}, whole intervals "
        "over people",
        f"{said(first)} from {FEW} to {SOME}, {said(later)} from {SOME} to {MANY}",
        every([rises(first), _diminishes(first, later)]),
        where=metric,
    )


def _diminishes(first: Measured, later: Measured) -> bool | None:
    """Whether an ad brings less in the later step than in the first: their whole intervals are apart."""
    if math.isnan(first.value) or math.isnan(later.value):
        return None
    before, after = (many - few for few, many in STEPS)
    if first.low / before > later.high / after:
        return True
    return False if first.high / before < later.low / after else None


def _five_against_one(kept: Kept) -> Finding:
    found = tabled.contrast_of(kept, FIVE_FOR_ONE)
    return Finding(
        M3,
        "with an ad always shown, precision rises (whole interval over people)",
        said(found, 0, unit="%"),
        rises(found),
    )


STUDY = Study(
    NAME,
    "Precision and coverage over the number of ads sent",
    PAPER,
    "figure 5, section 5.3",
    (M2, M3),
    {Scale.TOY: 0.1, Scale.SMALL: 0.3, Scale.FULL: 30.0},
    SEEDS,
    run,
    judge,
)
