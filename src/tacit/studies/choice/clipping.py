"""Figures 3d-f, 5 and 7d-f: noisy max on clipped scores, over epsilon, by clipping bound."""

from __future__ import annotations

import time

from tacit.deliver.auction.choices import GREEDY
from tacit.studies.choice.contestants import EPSILONS, clipped, contest
from tacit.studies.choice.epsilons import R4
from tacit.studies.choice.lifts import METRICS, SHOWN, Lifts, Pair, Part, records, share_words
from tacit.studies.choice.lines import LIFT_LABEL, arms_over, panels_over
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, data_words, markets
from tacit.studies.results import Kept
from tacit.studies.runs import words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

R6 = Claim("R6", "figures 3, 5", "clipped SNM stays below the limit without privacy")
R7 = Claim("R7", "figures 3d-f, 5", "a larger clipping bound helps at high epsilon and hurts at low epsilon")

NAME = "choice-clipping"
BOUNDS = (0.03, 0.1, 0.3, 1.0, 3.0)
ALL_EPSILONS = (*EPSILONS, 20, 50, 100, 1000)
LOW, HIGH, LIMIT = 1, 100, 1000
TIGHT = tuple(clipped(bound) for bound in BOUNDS[:3])
SMALLER, LARGER = clipped(BOUNDS[0]), clipped(BOUNDS[3])
PLATEAU = 0.95  # of the greedy gain in surplus
PAIRS: tuple[Pair, ...] = (
    *((GREEDY, each.at(LIMIT)) for each in TIGHT),
    (SMALLER.at(LOW), LARGER.at(LOW)),
    (LARGER.at(HIGH), SMALLER.at(HIGH)),
)
PARTS: tuple[Part, ...] = tuple((each.at(LIMIT), PLATEAU) for each in TIGHT)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    contestants = [clipped(bound) for bound in BOUNDS]
    panels, table, rows = [], [], []
    for at, market in enumerate(found):
        asked.track(f"{NAME}: {market.name}", at, len(found))
        results = contest(market, contestants, ALL_EPSILONS)
        arms = arms_over(contestants, ALL_EPSILONS)
        measured = records(results, {"market": market.name}, arms, PAIRS, parts=PARTS)
        table += measured
        lifts = Lifts.of(measured)
        panels += panels_over(lifts, contestants, ALL_EPSILONS, SHOWN, market.name)
        shown = [GREEDY, *(each.at(epsilon) for each in contestants for epsilon in (LOW, HIGH))]
        rows += [(market.name, arm, *lifts.cells(arm)) for arm in shown]
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"epsilons": list(ALL_EPSILONS), "bounds_in_median_best_public_scores": list(BOUNDS)},
        table=table,
        columns=("market", "choice", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        panels=panels,
        axes=Axes("epsilon", LIFT_LABEL, (0.5, 1, 2, 5, 10, 100, 1000)),
    )


def judge(kept: Kept) -> list[Finding]:
    return [each for (market,), lifts in Lifts.by(kept, "market").items() for each in judged(lifts, market)]


def judged(lifts: Lifts, market: str) -> list[Finding]:
    shares = {each.name: lifts.share(each.at(LIMIT), "surplus") for each in TIGHT}
    reached = [lifts.reaches(each.at(LIMIT), PLATEAU, "surplus") for each in TIGHT]
    hurts = lifts.lift(SMALLER.at(LOW), "surplus", over=LARGER.at(LOW))
    helps = lifts.lift(LARGER.at(HIGH), "surplus", over=SMALLER.at(HIGH))
    return [
        Finding(
            R6,
            f"for bounds up to {BOUNDS[2]:g} surplus at epsilon {LIMIT} has less than {PLATEAU:.0%} of the "
            "greedy gain, and is below greedy, both 95% over auctions",
            ", ".join(f"{name}: {share_words(part)}" for name, part in shares.items())
            + f"; greedy over the last {words(lifts.lift(GREEDY, 'surplus', over=TIGHT[-1].at(LIMIT)))}%",
            every(
                [
                    *(None if each is None else not each for each in reached),
                    *(lifts.above(GREEDY, each.at(LIMIT), "surplus") for each in TIGHT),
                ]
            ),
            where=market,
        ),
        Finding(
            R7,
            f"surplus at a bound of {BOUNDS[3]:g} against {BOUNDS[0]:g}: above at epsilon {HIGH}, below at "
            f"{LOW}, 95% over auctions",
            f"at {LOW} the smaller over the larger {words(hurts)}%; at {HIGH} the larger over the smaller "
            f"{words(helps)}%",
            every(
                [
                    lifts.above(SMALLER.at(LOW), LARGER.at(LOW), "surplus"),
                    lifts.above(LARGER.at(HIGH), SMALLER.at(HIGH), "surplus"),
                ]
            ),
            where=market,
        ),
        *(_low_epsilon(lifts, market, bound) for bound in BOUNDS),
    ]


def _low_epsilon(lifts: Lifts, market: str, bound: float) -> Finding:
    arm = clipped(bound).at(LOW)
    return Finding(
        R4,
        f"at epsilon {LOW} the lift of surplus of SNM clipped at this bound, in median scores, is below 0, 95% "
        "over auctions; added when tight bounds were known to be above 0",
        f"surplus {words(lifts.lift(arm, 'surplus'))}%",
        lifts.none_above([arm], "surplus"),
        where=f"{market}, bound {bound:g}",
    )


STUDY = Study(
    NAME,
    "Clipped noisy max over epsilon by clipping bound",
    PAPER,
    "figures 3d-f, 5, 7d-f",
    (R4, R6, R7),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 10.0},
    SEEDS,
    run,
    judge,
)
