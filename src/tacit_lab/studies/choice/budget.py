"""A person's epsilon over ten requests: the same for each, or where public forecasts say that it pays."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from tacit.deliver.auction.blocks import make_offers
from tacit.deliver.auction.choices import (
    GREEDY,
    NON_PERSONALISED,
    Greedy,
    NonPersonalised,
    PlannedRule,
)
from tacit.deliver.auction.market import Arm, MarketResults, measure
from tacit.deliver.auction.planned_choices import budget_rule
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.prices import Rules
from tacit.privacy.units import Window
from tacit_lab.studies.choice.contestants import CLIPPED, RR, SCALED, Forecasts
from tacit_lab.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    TITLES,
    LiftRow,
    Lifts,
    Pair,
    greedy_line,
    interval_series,
    records,
    write_outcome,
)
from tacit_lab.studies.choice.markets import (
    OURS,
    SEEDS,
    StudyMarket,
    data_words,
    half_of_auctions,
    study_markets,
)
from tacit_lab.studies.plotting import Mechanism, Panel
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

T5 = Claim(
    "T5", "the same for each request", "a person's epsilon is worth more where it is spent by public forecasts"
)

NAME = "choice-budget"
REQUESTS = 10
TOTALS = (2.5, 5.0, 10.0, 20.0, 30.0)
LADDER = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
JUDGED = 10.0
SHOWN = ("welfare", "clicks")
EVEN, POLICY = "the same for each", "where it pays"
UNTOLD = "where it pays, default prior"
WAYS = {EVEN: Mechanism.RR, POLICY: Mechanism.OURS, UNTOLD: Mechanism.OURS}
"""Forecasts are by the market's own spread, which nobody knows beforehand, or by the default prior."""
PUBLISHED = (RR, SCALED, CLIPPED)  # the paper's, at the same for each


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("a log's own periods are not known to it")
    began = time.monotonic()
    found = study_markets(asked)
    each_has = JUDGED / REQUESTS
    panels, table, rows = [], [], []
    for at, market in enumerate(found):
        asked.progress(f"{NAME}: {market.name}", at, len(found))
        arms: list[tuple[str, LiftRow]] = [(GREEDY, {})]
        arms += [(_arm(name, total), {"way": name, "total": total}) for name in WAYS for total in TOTALS]
        arms += [(each.at(each_has), {"way": f"{each.name}, {EVEN}", "total": JUDGED}) for each in PUBLISHED]
        measured = records(_measure_market(market), {"market": market.name}, arms, _pairs())
        table += measured
        lifts = Lifts.of(measured)
        for metric in SHOWN:
            lines = [
                interval_series(name, TOTALS, [lifts.lift(_arm(name, total), metric) for total in TOTALS], look)
                for name, look in WAYS.items()
            ]
            ends = greedy_line(lifts, TOTALS, metric)
            panels.append(Panel(f"{TITLES[metric]}, {market.name}", [*lines, ends]))
        shown = [*(_arm(name, JUDGED) for name in WAYS), *(each.at(each_has) for each in PUBLISHED)]
        rows += [(market.name, arm, *lifts.cells(arm)) for arm in shown]
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"requests": REQUESTS, "totals": list(TOTALS), "ladder": list(LADDER)},
        table=table,
        columns=("market", "choice", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        panels=panels,
        axes=Axes(f"epsilon a person over {REQUESTS} requests", LIFT_LABEL, TOTALS),
        unit="user",
        relation="all private scores of a period replaced",
    )


def _pairs() -> list[Pair]:
    """The policy against everything that has the same for each."""
    others = [_arm(EVEN, JUDGED), *(each.at(JUDGED / REQUESTS) for each in PUBLISHED)]
    return [(_arm(POLICY, JUDGED), other) for other in others]


def _measure_market(market: StudyMarket) -> MarketResults:
    """Thresholds are learnt from public forecasts of one half of the auctions and measured on the other."""
    matched = Spread(market.spread)
    learning, measuring = half_of_auctions(market, 0), half_of_auctions(market, 1)
    forecasts = Forecasts(LADDER)
    arms = {NON_PERSONALISED: Arm(NonPersonalised()), GREEDY: Arm(Greedy())}
    for total in TOTALS:
        steps = [step for step in LADDER if step <= total]
        for name, prior in ((POLICY, matched), (UNTOLD, Spread())):
            seen = [forecasts.of(make_offers(block.public, Rules()), prior) for block in learning.blocks]
            gains = np.concatenate([each.gain for each in seen])[:, : len(steps)]
            policy = BudgetPolicy.learn(
                gains, total=total, ladder=steps, requests=REQUESTS, window=Window.days(1)
            )
            rule = budget_rule(prior, policy, REQUESTS, partial(forecasts.of, prior=prior))
            arms[_arm(name, total)] = Arm(rule)
        evenly = partial(forecasts.evenly, prior=matched, epsilon=total / REQUESTS)
        arms[_arm(EVEN, total)] = Arm(PlannedRule(evenly))
    for each in PUBLISHED:
        arms[each.at(JUDGED / REQUESTS)] = Arm(each.make(market, JUDGED / REQUESTS))
    return measure(measuring.blocks, arms)


def judge(kept: ResultFiles) -> list[Finding]:
    return [
        each for (market,), lifts in Lifts.by(kept, "market").items() for each in judge_market(lifts, market)
    ]


def judge_market(lifts: Lifts, market: str) -> list[Finding]:
    policy, even = _arm(POLICY, JUDGED), _arm(EVEN, JUDGED)
    gained = ", ".join(
        f"{name} {words(lifts.lift(arm, 'welfare'))}%"
        for name, arm in ((POLICY, policy), (UNTOLD, _arm(UNTOLD, JUDGED)), (EVEN, even), (GREEDY, GREEDY))
    )
    theirs = [each.at(JUDGED / REQUESTS) for each in PUBLISHED]
    ahead = [f"{arm} {words(lifts.lift(policy, 'welfare', over=arm))}%" for arm in theirs]
    spent = (
        f"total {JUDGED:g} over {REQUESTS} requests, at most {LADDER[-1]:g} each, forecast by the market's own "
        "spread: welfare above"
    )
    return [
        Finding(
            T5,
            f"{spent} that of {JUDGED / REQUESTS:g} each, 95% over auctions not learnt on",
            f"{gained}; one impression's guarantee is weaker",
            lifts.above(policy, even, "welfare"),
            where=f"{market}, the same plan",
        ),
        Finding(
            T5,
            f"{spent} the paper's best: RR's and both variants of SNM's at {JUDGED / REQUESTS:g} each, and the "
            "non-personalised choice's, 95% over auctions",
            f"over {', '.join(ahead)}",
            every(lifts.above(policy, other, "welfare") for other in (*theirs, NON_PERSONALISED)),
            where=f"{market}, the paper's best",
        ),
    ]


def _arm(name: str, total: float) -> str:
    return f"{name}, {total:g} in all"


STUDY = Study(
    NAME,
    "Welfare and CTR over a person's epsilon for ten requests",
    OURS,
    "beyond section 4.3",
    (T5,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 15.0},
    SEEDS,
    run,
    judge,
)
