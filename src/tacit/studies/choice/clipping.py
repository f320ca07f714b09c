"""Figures 3d-f, 5 and 7d-f: noisy max on clipped scores, over epsilon, by clipping bound."""

from __future__ import annotations

import time

from tacit.deliver.auction.choices import GREEDY
from tacit.deliver.auction.market import Results
from tacit.studies.choice.contestants import EPSILONS, clipped, contest
from tacit.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    SHOWN,
    above,
    arms_over,
    cells,
    panels_over,
    records,
    said,
    share,
    share_words,
)
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, data_words, markets
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

NAME = "choice-clipping"
BOUNDS = (0.03, 0.1, 0.3, 1.0, 3.0)
ALL_EPSILONS = (*EPSILONS, 20, 50, 100, 1000)
LOW, HIGH, LIMIT = 1, 100, 1000
SMALLER, LARGER = clipped(BOUNDS[0]), clipped(BOUNDS[3])
PLATEAU = 0.95  # of the greedy gain in surplus


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    contestants = [clipped(bound) for bound in BOUNDS]
    panels, table, rows, findings = [], [], [], []
    for at, market in enumerate(found):
        asked.track(f"{NAME}: {market.name}", at, len(found))
        results = contest(market, contestants, ALL_EPSILONS)
        panels += panels_over(results, contestants, ALL_EPSILONS, SHOWN, market.name)
        arms = arms_over(contestants, ALL_EPSILONS)
        table += records(results, {"market": market.name}, [(GREEDY, {"mechanism": GREEDY}), *arms])
        rows.append((market.name, GREEDY, *cells(results, GREEDY)))
        rows += [
            (market.name, each.at(e), *cells(results, each.at(e))) for each in contestants for e in (LOW, HIGH)
        ]
        findings += judged(results, market.name)
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"epsilons": list(ALL_EPSILONS), "bounds_in_median_best_public_scores": list(BOUNDS)},
        table=table,
        columns=("market", "choice", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        findings=findings,
        panels=panels,
        axes=Axes("epsilon", LIFT_LABEL, (0.5, 1, 2, 5, 10, 100, 1000)),
    )


def judged(results: Results, market: str) -> list[Finding]:
    tight = [clipped(bound) for bound in BOUNDS[:3]]
    kept = {each.name: share(results, each.at(LIMIT), "surplus") for each in tight}
    low, high = ([each.at(epsilon) for each in (SMALLER, LARGER)] for epsilon in (LOW, HIGH))
    return [
        Finding(
            "R6",
            f"clipped SNM stays below the limit without privacy ({market})",
            f"for bounds up to {BOUNDS[2]:g} surplus at epsilon {LIMIT} has less than {PLATEAU:.0%} of the "
            "greedy gain, and is below greedy, 95% over auctions",
            ", ".join(f"{name}: {share_words(part)}" for name, part in kept.items()),
            every(
                [
                    *(None if part is None else part < PLATEAU for part in kept.values()),
                    *(above(results, GREEDY, each.at(LIMIT), "surplus") for each in tight),
                ]
            ),
        ),
        Finding(
            "R7",
            f"a larger clipping bound helps at high epsilon and hurts at low epsilon ({market})",
            f"surplus at a bound of {BOUNDS[3]:g} against {BOUNDS[0]:g}: above at epsilon {HIGH}, below at "
            f"{LOW}, 95% over auctions",
            f"at {LOW}: {said(results, low, 'surplus')}; at {HIGH}: {said(results, high, 'surplus')}",
            every([above(results, low[0], low[1], "surplus"), above(results, high[1], high[0], "surplus")]),
        ),
    ]


STUDY = Study(
    NAME,
    "Clipped noisy max over epsilon by clipping bound",
    PAPER,
    "figures 3d-f, 5, 7d-f",
    ("R6", "R7"),
    {Scale.TOY: 0.1, Scale.SMALL: 0.5, Scale.FULL: 10.0},
    SEEDS,
    run,
)
