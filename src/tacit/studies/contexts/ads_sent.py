"""Figure 5: how many ads are sent; and the server alone, which sends one, against five to pick from."""

from __future__ import annotations

import math
import time

import numpy as np

from tacit.studies.contexts.clustered import Tally, at_threshold, compared, measured
from tacit.studies.contexts.figures import cells, line, panels, rises, said
from tacit.studies.contexts.serving import PAPER_THRESHOLD, Arm
from tacit.studies.contexts.setting import PAPER, SEEDS, contest, outcome
from tacit.studies.contexts.trial import LAST, Floats
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every
from tacit.train.evaluation.estimates import Measured

NAME = "contexts-ads"
ADS = (1, 2, 3, 5, 10, 20, 50)
FEW, SOME, MANY = 1, 10, 50
ALONE, TOGETHER = 1, 5
ALWAYS = 0.0  # no threshold: an ad is shown to all
LEAST = (PAPER_THRESHOLD, ALWAYS)
METRICS = ("precision", "coverage")


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    held = contest(asked, NAME, lambda _: {ads: Arm(LAST, ads) for ads in ADS}, LEAST)
    tallies = held.found
    table, rows = [], []
    for ads, arm in tallies.items():
        for part, tally in arm.parts().items():
            figures = [(least, metric, _figure(tally, least, metric)) for least in LEAST for metric in METRICS]
            table += [
                {"ads": ads, "requests": part, "threshold": least, "metric": metric, **cells(figure)}
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
        table=table,
        columns=("ads", "requests", *(f"{metric}, CTR >= {least:g}" for least in LEAST for metric in METRICS)),
        rows=rows,
        findings=[*(_returns(every_request, metric) for metric in METRICS), _five_against_one(every_request)],
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


def _returns(tallies: dict[int, Tally], metric: str) -> Finding:
    statistic = at_threshold(LEAST.index(PAPER_THRESHOLD), metric)
    first = compared(tallies[SOME], tallies[FEW], statistic)
    later = compared(tallies[MANY], tallies[SOME], statistic)
    an_ad = [first.value / (SOME - FEW), later.value / (MANY - SOME)]
    diminishing = None if any(map(math.isnan, an_ad)) else an_ad[1] < an_ad[0]
    return Finding(
        "M2",
        f"more ads raise {metric}, with diminishing returns",
        f"from {FEW} to {SOME} ads {metric} rises (whole interval over people), and by more an ad than from "
        f"{SOME} to {MANY}",
        f"{said(first)} from {FEW} to {SOME}, {said(later)} from {SOME} to {MANY}",
        every([rises(first), diminishing]),
    )


def _five_against_one(tallies: dict[int, Tally]) -> Finding:
    def percent(one: Floats, other: Floats) -> Floats:
        beyond = np.where(one > 0, np.inf, np.nan)  # all percents, where the other has nothing
        return 100 * (np.divide(one, other, out=beyond, where=other > 0) - 1)

    found = compared(
        tallies[TOGETHER], tallies[ALONE], at_threshold(LEAST.index(ALWAYS), "precision"), by=percent
    )
    return Finding(
        "M3",
        "five ads to pick from beat the one that the server alone would show: precision +35%",
        "with an ad always shown, precision rises (whole interval over people)",
        said(found, 0, unit="%"),
        rises(found),
    )


STUDY = Study(
    NAME,
    "Precision and coverage over the number of ads sent",
    PAPER,
    "figure 5, section 5.3",
    ("M2", "M3"),
    {Scale.TOY: 0.1, Scale.SMALL: 1.0, Scale.FULL: 30.0},
    SEEDS,
    run,
)
