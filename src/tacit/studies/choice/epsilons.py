"""Figures 3a-c and 7a-c: CTR, surplus and revenue over epsilon, by mechanism."""

from __future__ import annotations

import time

from tacit.deliver.auction.choices import GREEDY
from tacit.deliver.auction.market import Arm, Results
from tacit.privacy.choice.noise import Noise
from tacit.studies.choice.contestants import (
    CLIPPED,
    EPSILONS,
    RR,
    SCALED,
    WIDE,
    contest,
    planned,
    scaled,
)
from tacit.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    SHOWN,
    Record,
    above,
    arms_over,
    at_least,
    cells,
    lift,
    none_above,
    panels_over,
    records,
    said,
    share,
    share_words,
)
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, data_words, markets
from tacit.studies.runs import words
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

NAME = "choice-epsilon"
LOW, MIDDLE, HIGH, LIMIT = 1, 5, 6, 100
NEAR = 0.75  # of the greedy gain: "approaches"
REACHED = 0.95  # of it: "converges"
GUMBEL = scaled(Noise.GUMBEL, "SNM scaled, Gumbel")


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    ours = planned(EPSILONS)
    drawn = (RR, SCALED, CLIPPED, ours)
    panels, table, rows, findings = [], [], [], []
    for at, market in enumerate(found, start=1):
        asked.track(f"{NAME}: {market.name}", at - 1, len(found))
        limits = {each.at(LIMIT): each for each in (SCALED, CLIPPED)}
        more = {name: Arm(each.make(market, LIMIT)) for name, each in limits.items()}
        results = contest(market, (*drawn, GUMBEL), EPSILONS, more=more)
        panels += panels_over(results, drawn, EPSILONS, SHOWN, market.name)
        arms = arms_over((*drawn, GUMBEL), EPSILONS)
        others: list[tuple[str, Record]] = [
            (GREEDY, {"mechanism": GREEDY}),
            *((name, {"epsilon": LIMIT}) for name in limits),
        ]
        table += records(results, {"market": market.name}, [*others, *arms])
        rows.append((market.name, GREEDY, *cells(results, GREEDY)))
        rows += [
            (market.name, each.at(e), *cells(results, each.at(e))) for e in (LOW, MIDDLE) for each in drawn
        ]
        findings += judged(results, market.name)
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"epsilons": list(EPSILONS), "clipping_bound": WIDE, "spread": [m.spread for m in found]},
        table=table,
        columns=("market", "choice", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        findings=findings,
        panels=panels,
        axes=Axes("epsilon", LIFT_LABEL, EPSILONS),
    )


def judged(results: Results, market: str) -> list[Finding]:
    low = [CLIPPED.at(LOW), RR.at(LOW)]
    high = [RR.at(HIGH), SCALED.at(HIGH), CLIPPED.at(HIGH)]
    middle = RR.at(MIDDLE)
    reached, stuck = (share(results, each.at(LIMIT), "clicks") for each in (SCALED, CLIPPED))
    near = share(results, middle, "clicks")
    return [
        Finding(
            "R3",
            f"at low epsilon clipped SNM beats RR ({market})",
            f"at epsilon {LOW} and a bound of {WIDE:g} median scores surplus is above RR's, 95% over auctions",
            f"surplus: {said(results, low, 'surplus')}; the first over the second "
            f"{words(lift(results, low[0], 'surplus', over=low[1]))}%",
            above(results, low[0], low[1], "surplus"),
        ),
        Finding(
            "R4",
            f"at low epsilon neither beats the non-personalised choice ({market})",
            f"at epsilon {LOW} the lifts of surplus of RR and of clipped SNM are below 0, 95% over auctions",
            f"surplus: {said(results, low, 'surplus')}",
            none_above(results, low, "surplus"),
        ),
        Finding(
            "R5",
            f"at higher epsilon RR beats both variants of SNM ({market})",
            f"at epsilon {HIGH} CTR, surplus and revenue are above those of both, 95% over auctions",
            f"CTR: {said(results, high, 'clicks')}; surplus: {said(results, high, 'surplus')}",
            every(above(results, high[0], other, metric) for other in high[1:] for metric in SHOWN),
        ),
        Finding(
            "R8",
            f"scaled SNM converges to the choice without privacy ({market})",
            f"at epsilon {LIMIT} it has at least {REACHED:.0%} of the greedy gain in CTR",
            f"scaled {share_words(reached, 1)}, clipped {share_words(stuck, 1)}",
            at_least(reached, REACHED),
        ),
        Finding(
            "R9",
            f"RR at epsilon {MIDDLE} clearly beats non-personalised, near non-private ({market})",
            f"CTR, surplus and revenue lifts above 0, 95% over auctions; {NEAR:.0%} of the gain in CTR",
            f"CTR {said(results, [middle], 'clicks')}, {share_words(near)} of the gain; surplus "
            f"{said(results, [middle], 'surplus')}; revenue {said(results, [middle], 'revenue')}",
            every(
                [
                    at_least(near, NEAR),
                    *(above(results, middle, "non-personalised", metric) for metric in SHOWN),
                ]
            ),
        ),
        Finding(
            "R16",
            f"exponential noise beats Gumbel noise at equal epsilon ({market})",
            "scaled scores: CTR and surplus are higher at every epsilon, 95% over auctions",
            f"at {MIDDLE}: CTR {said(results, [SCALED.at(MIDDLE), GUMBEL.at(MIDDLE)], 'clicks')}",
            every(
                above(results, SCALED.at(e), GUMBEL.at(e), metric)
                for e in EPSILONS
                for metric in ("clicks", "surplus")
            ),
        ),
    ]


STUDY = Study(
    NAME,
    "CTR, surplus and revenue over epsilon by mechanism",
    PAPER,
    "figures 3a-c, 7a-c",
    ("R3", "R4", "R5", "R8", "R9", "R16"),
    {Scale.TOY: 0.1, Scale.SMALL: 0.5, Scale.FULL: 20.0},
    SEEDS,
    run,
)
