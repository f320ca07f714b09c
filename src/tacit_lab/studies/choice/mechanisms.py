"""Figures 3, 5 and 7: CTR, surplus and revenue over epsilon, by mechanism and by clipping bound.

Two studies: all mechanisms (figures 3a-c, 7a-c), and noisy max on clipped scores by its bound (figures
3d-f, 5, 7d-f).
"""

from __future__ import annotations

import time

from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.deliver.auction.market import Arm
from tacit.deliver.protocol.factor_laws import Spread
from tacit.privacy.choice.noise import Noise
from tacit_lab.studies.choice.contestants import (
    CLIPPED,
    EPSILONS,
    RR,
    SCALED,
    WIDE,
    clipped_snm,
    planned_trunc,
    run_contest,
    scaled_snm,
)
from tacit_lab.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    SHOWN,
    LiftRow,
    Lifts,
    Pair,
    Part,
    arms_over,
    panels_over,
    records,
    share_words,
    write_outcome,
)
from tacit_lab.studies.choice.markets import OF_REQUESTS, PAPER, SEEDS, data_words, study_markets
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

R3 = Claim("R3", "figures 3a-c, 7a-c", "at low epsilon clipped SNM beats RR")
R4 = Claim("R4", "figure 3, section 4.3", "at low epsilon neither RR nor SNM beats the non-personalised choice")
R5 = Claim("R5", "figures 3a-c, 7a-c", "at higher epsilon RR beats both variants of SNM")
R8 = Claim("R8", "figure 3", "scaled SNM converges to the choice without privacy")
R9 = Claim("R9", "section 4.3", "RR at epsilon 5 clearly beats non-personalised, and nears non-private")
R16 = Claim("R16", "section 2.2", "exponential noise beats Gumbel noise at equal epsilon")

EPSILON_NAME = "choice-epsilon"
LOW, MIDDLE, HIGHER, FAR = 1, 5, 6, 100
NEAR = 0.75  # of the greedy gain: "approaches"
REACHED = 0.95  # of it: "converges"
GUMBEL = scaled_snm(Noise.GUMBEL, "SNM scaled, Gumbel")
EPSILON_PAIRS: tuple[Pair, ...] = (
    (CLIPPED.at(LOW), RR.at(LOW)),
    *((RR.at(HIGHER), other.at(HIGHER)) for other in (SCALED, CLIPPED)),
    *((SCALED.at(epsilon), GUMBEL.at(epsilon)) for epsilon in EPSILONS),
)
EPSILON_PARTS: tuple[Part, ...] = ((SCALED.at(FAR), REACHED), (RR.at(MIDDLE), NEAR))


def run_epsilon(asked: StudyRequest) -> StudyOutcome:
    """Figures 3a-c and 7a-c: CTR, surplus and revenue over epsilon, by mechanism."""
    began = time.monotonic()
    found = study_markets(asked)
    default = planned_trunc(EPSILONS, "trunc, default prior", Spread())
    drawn = (RR, SCALED, CLIPPED, default, planned_trunc(EPSILONS))
    panels, table, rows = [], [], []
    for at, market in enumerate(found):
        asked.progress(f"{EPSILON_NAME}: {market.name}", at, len(found))
        limits = {each.at(FAR): each for each in (SCALED, CLIPPED)}
        more = {name: Arm(each.make(market, FAR)) for name, each in limits.items()}
        results = run_contest(market, (*drawn, GUMBEL), EPSILONS, more=more)
        far: list[tuple[str, LiftRow]] = [
            (name, {"mechanism": each.name, "epsilon": FAR}) for name, each in limits.items()
        ]
        arms = [*arms_over((*drawn, GUMBEL), EPSILONS), *far]
        measured = records(results, {"market": market.name}, arms, EPSILON_PAIRS, parts=EPSILON_PARTS)
        table += measured
        lifts = Lifts.of(measured)
        panels += panels_over(lifts, drawn, EPSILONS, SHOWN, market.name)
        shown = [GREEDY, *(each.at(epsilon) for epsilon in (LOW, MIDDLE) for each in drawn)]
        rows += [(market.name, arm, *lifts.cells(arm)) for arm in shown]
    return write_outcome(
        EPSILON_NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"epsilons": list(EPSILONS), "clipping_bound": WIDE, "spread": [m.spread for m in found]},
        table=table,
        columns=("market", "choice", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        panels=panels,
        axes=Axes("epsilon", LIFT_LABEL, EPSILONS),
    )


def judge_epsilon(kept: ResultFiles) -> list[Finding]:
    return [
        each
        for (market,), lifts in Lifts.by(kept, "market").items()
        for each in judge_mechanisms(lifts, market)
    ]


def judge_mechanisms(lifts: Lifts, market: str) -> list[Finding]:
    low = [CLIPPED.at(LOW), RR.at(LOW), SCALED.at(LOW)]
    high, others = RR.at(HIGHER), [SCALED.at(HIGHER), CLIPPED.at(HIGHER)]
    middle = RR.at(MIDDLE)
    reached, stuck = (lifts.share(each.at(FAR), "clicks") for each in (SCALED, CLIPPED))
    near = lifts.share(middle, "clicks")
    return [
        Finding(
            R3,
            f"at epsilon {LOW} and a bound of {WIDE:g} median scores surplus is above RR's, 95% over auctions",
            f"surplus {words(lifts.lift(low[0], 'surplus', over=low[1]))}% over RR's",
            lifts.above(low[0], low[1], "surplus"),
            where=market,
        ),
        Finding(
            R4,
            f"at epsilon {LOW} the lifts of surplus of RR, of SNM clipped at {WIDE:g} median score and of "
            "scaled SNM are below 0, 95% over auctions",
            f"surplus: {lifts.say(low, 'surplus')}",
            lifts.none_above(low, "surplus"),
            where=f"{market}, RR, scaled SNM and bound {WIDE:g}",
        ),
        Finding(
            R5,
            f"at epsilon {HIGHER} CTR, surplus and revenue are above those of both, 95% over auctions",
            f"RR's surplus over theirs: {_over(lifts, high, others, 'surplus')}; "
            f"CTR: {_over(lifts, high, others, 'clicks')}",
            every(lifts.above(high, other, metric) for other in others for metric in SHOWN),
            where=market,
        ),
        Finding(
            R8,
            f"at epsilon {FAR} it has at least {REACHED:.0%} of the greedy gain in CTR, 95% over auctions",
            f"scaled {share_words(reached, 1)}, clipped {share_words(stuck, 1)}",
            lifts.reaches(SCALED.at(FAR), REACHED, "clicks"),
            where=market,
        ),
        Finding(
            R9,
            f"CTR, surplus and revenue lifts above 0, and at least {NEAR:.0%} of the greedy gain in CTR, 95% "
            "over auctions",
            ", ".join(f"{METRICS[metric]} {words(lifts.lift(middle, metric))}%" for metric in SHOWN)
            + f"; {share_words(near)} of the gain in CTR",
            every(
                [
                    lifts.reaches(middle, NEAR, "clicks"),
                    *(lifts.above(middle, NON_PERSONALISED, metric) for metric in SHOWN),
                ]
            ),
            where=market,
        ),
        Finding(
            R16,
            "scaled scores: CTR and surplus are higher at every epsilon, 95% over auctions",
            f"over Gumbel at {MIDDLE}: "
            + ", ".join(
                f"{METRICS[metric]} {words(lifts.lift(SCALED.at(MIDDLE), metric, over=GUMBEL.at(MIDDLE)))}%"
                for metric in ("clicks", "surplus")
            ),
            every(
                lifts.above(SCALED.at(e), GUMBEL.at(e), metric)
                for e in EPSILONS
                for metric in ("clicks", "surplus")
            ),
            where=market,
        ),
    ]


def _over(lifts: Lifts, arm: str, others: list[str], metric: str) -> str:
    return ", ".join(f"{words(lifts.lift(arm, metric, over=other))}%" for other in others)


EPSILON_STUDY = Study(
    EPSILON_NAME,
    "CTR, surplus and revenue over epsilon by mechanism",
    PAPER,
    "figures 3a-c, 7a-c",
    (R3, R4, R5, R8, R9, R16),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 20.0},
    SEEDS,
    run_epsilon,
    judge_epsilon,
    inputs=OF_REQUESTS,
)


R6 = Claim("R6", "figures 3, 5", "clipped SNM stays below the limit without privacy")
R7 = Claim("R7", "figures 3d-f, 5", "a larger clipping bound helps at high epsilon and hurts at low epsilon")

CLIPPING_NAME = "choice-clipping"
BOUNDS = (0.03, 0.1, 0.3, 1.0, 3.0)
ALL_EPSILONS = (*EPSILONS, 20, 50, 100, 1000)
LOWEST, HIGH, LIMIT = 1, 100, 1000
TIGHT = tuple(clipped_snm(bound) for bound in BOUNDS[:3])
SMALLER, LARGER = clipped_snm(BOUNDS[0]), clipped_snm(BOUNDS[3])
PLATEAU = 0.95  # of the greedy gain in surplus
CLIPPING_PAIRS: tuple[Pair, ...] = (
    *((GREEDY, each.at(LIMIT)) for each in TIGHT),
    (SMALLER.at(LOWEST), LARGER.at(LOWEST)),
    (LARGER.at(HIGH), SMALLER.at(HIGH)),
)
CLIPPING_PARTS: tuple[Part, ...] = tuple((each.at(LIMIT), PLATEAU) for each in TIGHT)


def run_clipping(asked: StudyRequest) -> StudyOutcome:
    """Figures 3d-f, 5 and 7d-f: noisy max on clipped scores, over epsilon, by clipping bound."""
    began = time.monotonic()
    found = study_markets(asked)
    contestants = [clipped_snm(bound) for bound in BOUNDS]
    panels, table, rows = [], [], []
    for at, market in enumerate(found):
        asked.progress(f"{CLIPPING_NAME}: {market.name}", at, len(found))
        results = run_contest(market, contestants, ALL_EPSILONS)
        arms = arms_over(contestants, ALL_EPSILONS)
        measured = records(results, {"market": market.name}, arms, CLIPPING_PAIRS, parts=CLIPPING_PARTS)
        table += measured
        lifts = Lifts.of(measured)
        panels += panels_over(lifts, contestants, ALL_EPSILONS, SHOWN, market.name)
        shown = [GREEDY, *(each.at(epsilon) for each in contestants for epsilon in (LOWEST, HIGH))]
        rows += [(market.name, arm, *lifts.cells(arm)) for arm in shown]
    return write_outcome(
        CLIPPING_NAME,
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


def judge_clipping(kept: ResultFiles) -> list[Finding]:
    return [
        each for (market,), lifts in Lifts.by(kept, "market").items() for each in judge_bounds(lifts, market)
    ]


def judge_bounds(lifts: Lifts, market: str) -> list[Finding]:
    shares = {each.name: lifts.share(each.at(LIMIT), "surplus") for each in TIGHT}
    reached = [lifts.reaches(each.at(LIMIT), PLATEAU, "surplus") for each in TIGHT]
    hurts = lifts.lift(SMALLER.at(LOWEST), "surplus", over=LARGER.at(LOWEST))
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
            f"{LOWEST}, 95% over auctions",
            f"at {LOWEST} the smaller over the larger {words(hurts)}%; at {HIGH} the larger over the smaller "
            f"{words(helps)}%",
            every(
                [
                    lifts.above(SMALLER.at(LOWEST), LARGER.at(LOWEST), "surplus"),
                    lifts.above(LARGER.at(HIGH), SMALLER.at(HIGH), "surplus"),
                ]
            ),
            where=market,
        ),
        *(_low_epsilon(lifts, market, bound) for bound in BOUNDS),
    ]


def _low_epsilon(lifts: Lifts, market: str, bound: float) -> Finding:
    arm = clipped_snm(bound).at(LOWEST)
    return Finding(
        R4,
        f"at epsilon {LOWEST} the lift of surplus of SNM clipped at this bound, in median scores, is below 0, "
        "95% over auctions; added when tight bounds were known to be above 0",
        f"surplus {words(lifts.lift(arm, 'surplus'))}%",
        lifts.none_above([arm], "surplus"),
        where=f"{market}, bound {bound:g}",
    )


CLIPPING_STUDY = Study(
    CLIPPING_NAME,
    "Clipped noisy max over epsilon by clipping bound",
    PAPER,
    "figures 3d-f, 5, 7d-f",
    (R4, R6, R7),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 10.0},
    SEEDS,
    run_clipping,
    judge_clipping,
    inputs=OF_REQUESTS,
)
