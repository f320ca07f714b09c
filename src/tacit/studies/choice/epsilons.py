"""Figures 3a-c and 7a-c: CTR, surplus and revenue over epsilon, by mechanism."""

from __future__ import annotations

import time

from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.deliver.auction.market import Arm
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
from tacit.studies.choice.lifts import METRICS, SHOWN, Lifts, Pair, Part, Record, records, share_words
from tacit.studies.choice.lines import LIFT_LABEL, arms_over, panels_over
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, data_words, markets
from tacit.studies.results import Kept
from tacit.studies.runs import words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

R3 = Claim("R3", "figures 3a-c, 7a-c", "at low epsilon clipped SNM beats RR")
R4 = Claim("R4", "figure 3, section 4.3", "at low epsilon neither RR nor SNM beats the non-personalised choice")
R5 = Claim("R5", "figures 3a-c, 7a-c", "at higher epsilon RR beats both variants of SNM")
R8 = Claim("R8", "figure 3", "scaled SNM converges to the choice without privacy")
R9 = Claim("R9", "section 4.3", "RR at epsilon 5 clearly beats non-personalised, and nears non-private")
R16 = Claim("R16", "section 2.2", "exponential noise beats Gumbel noise at equal epsilon")

NAME = "choice-epsilon"
LOW, MIDDLE, HIGH, LIMIT = 1, 5, 6, 100
NEAR = 0.75  # of the greedy gain: "approaches"
REACHED = 0.95  # of it: "converges"
GUMBEL = scaled(Noise.GUMBEL, "SNM scaled, Gumbel")
PAIRS: tuple[Pair, ...] = (
    (CLIPPED.at(LOW), RR.at(LOW)),
    *((RR.at(HIGH), other.at(HIGH)) for other in (SCALED, CLIPPED)),
    *((SCALED.at(epsilon), GUMBEL.at(epsilon)) for epsilon in EPSILONS),
)
PARTS: tuple[Part, ...] = ((SCALED.at(LIMIT), REACHED), (RR.at(MIDDLE), NEAR))


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    ours = planned(EPSILONS)
    drawn = (RR, SCALED, CLIPPED, ours)
    panels, table, rows = [], [], []
    for at, market in enumerate(found):
        asked.track(f"{NAME}: {market.name}", at, len(found))
        limits = {each.at(LIMIT): each for each in (SCALED, CLIPPED)}
        more = {name: Arm(each.make(market, LIMIT)) for name, each in limits.items()}
        results = contest(market, (*drawn, GUMBEL), EPSILONS, more=more)
        far: list[tuple[str, Record]] = [
            (name, {"mechanism": each.name, "epsilon": LIMIT}) for name, each in limits.items()
        ]
        arms = [*arms_over((*drawn, GUMBEL), EPSILONS), *far]
        measured = records(results, {"market": market.name}, arms, PAIRS, parts=PARTS)
        table += measured
        lifts = Lifts.of(measured)
        panels += panels_over(lifts, drawn, EPSILONS, SHOWN, market.name)
        shown = [GREEDY, *(each.at(epsilon) for epsilon in (LOW, MIDDLE) for each in drawn)]
        rows += [(market.name, arm, *lifts.cells(arm)) for arm in shown]
    return outcome(
        NAME,
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


def judge(kept: Kept) -> list[Finding]:
    return [each for (market,), lifts in Lifts.by(kept, "market").items() for each in judged(lifts, market)]


def judged(lifts: Lifts, market: str) -> list[Finding]:
    low = [CLIPPED.at(LOW), RR.at(LOW), SCALED.at(LOW)]
    high, others = RR.at(HIGH), [SCALED.at(HIGH), CLIPPED.at(HIGH)]
    middle = RR.at(MIDDLE)
    reached, stuck = (lifts.share(each.at(LIMIT), "clicks") for each in (SCALED, CLIPPED))
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
            f"surplus: {lifts.said(low, 'surplus')}",
            lifts.none_above(low, "surplus"),
            where=f"{market}, RR, scaled SNM and bound {WIDE:g}",
        ),
        Finding(
            R5,
            f"at epsilon {HIGH} CTR, surplus and revenue are above those of both, 95% over auctions",
            f"RR's surplus over theirs: {_over(lifts, high, others, 'surplus')}; "
            f"CTR: {_over(lifts, high, others, 'clicks')}",
            every(lifts.above(high, other, metric) for other in others for metric in SHOWN),
            where=market,
        ),
        Finding(
            R8,
            f"at epsilon {LIMIT} it has at least {REACHED:.0%} of the greedy gain in CTR, 95% over auctions",
            f"scaled {share_words(reached, 1)}, clipped {share_words(stuck, 1)}",
            lifts.reaches(SCALED.at(LIMIT), REACHED, "clicks"),
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


STUDY = Study(
    NAME,
    "CTR, surplus and revenue over epsilon by mechanism",
    PAPER,
    "figures 3a-c, 7a-c",
    (R3, R4, R5, R8, R9, R16),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 20.0},
    SEEDS,
    run,
    judge,
)
