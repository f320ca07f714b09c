"""Figures 4 and 8: how far below the public best a candidate may score and still be sent to the device."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED, Greedy, NonPersonalised, TopChoiceRule
from tacit.deliver.auction.market import Arm, measure
from tacit.deliver.protocol.prices import Rules
from tacit_lab.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    SHOWN,
    TITLES,
    LiftRow,
    Lifts,
    Pair,
    above_zero,
    greedy_line,
    interval_series,
    records,
    write_outcome,
)
from tacit_lab.studies.choice.markets import OF_REQUESTS, PAPER, SEEDS, StudyMarket, data_words, study_markets
from tacit_lab.studies.plotting import Mechanism, Panel
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

PUBLISHED, WITHIN = 0.8, 0.15
R10 = Claim("R10", "figure 4", "the cutoff gamma has an interior optimum near .8 (RR, epsilon 5)", ".8")
R11 = Claim("R11", "figure 8, appendix H", "on search-like data smaller candidate sets do better")

NAME = "choice-gamma"
GAMMAS = tuple(round(float(gamma), 2) for gamma in np.linspace(0, 1, 21))
INSIDE = GAMMAS[1:-1]
EPSILONS = (3, 5, 8)
EPSILON = 5
BEST_BY = "welfare"  # surplus and revenue together


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    found = study_markets(asked)
    panels, table, rows = [], [], []
    for at, market in enumerate(found):
        asked.progress(f"{NAME}: {market.name}", at, len(found))
        measured = _measure_market(market)
        table += measured
        lifts = Lifts.of(measured)
        for metric in SHOWN:
            lines = [
                interval_series(
                    f"RR at {epsilon}",
                    GAMMAS,
                    [lifts.lift(_arm(epsilon, gamma), metric) for gamma in GAMMAS],
                    Mechanism.RR,
                )
                for epsilon in EPSILONS
            ]
            ends = greedy_line(lifts, GAMMAS, metric)
            panels.append(Panel(f"{TITLES[metric]}, {market.name}", [*lines, ends]))
        for epsilon in EPSILONS:
            best = best_gamma(lifts, epsilon)
            rows.append((market.name, f"{epsilon}", f"{best:g}", *lifts.cells(_arm(epsilon, best))))
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"gammas": list(GAMMAS), "epsilons": list(EPSILONS), "best_by": BEST_BY},
        table=table,
        columns=("market", "epsilon", "best gamma", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        panels=panels,
        axes=Axes("gamma: 0 sends the public best alone, 1 sends all", LIFT_LABEL),
    )


def best_gamma(lifts: Lifts, epsilon: float, among: Sequence[float] = GAMMAS) -> float:
    return max(among, key=lambda gamma: lifts.mean(_arm(epsilon, gamma), BEST_BY))


def _measure_market(market: StudyMarket) -> list[LiftRow]:
    """Every gamma over the non-personalised choice, and at one epsilon the best over every other."""
    arms = {NON_PERSONALISED: Arm(NonPersonalised()), GREEDY: Arm(Greedy())}
    for epsilon in EPSILONS:
        for gamma in GAMMAS:
            arms[_arm(epsilon, gamma)] = Arm(TopChoiceRule(epsilon), Rules(cutoff=gamma))
    results, labels = measure(market.blocks, arms), {"market": market.name}
    named = [(_arm(e, g), {"epsilon": e, "gamma": g}) for e in EPSILONS for g in GAMMAS]
    rows = records(results, labels, [(GREEDY, {}), *named])
    lifts = Lifts.of(rows)
    best = dict.fromkeys(best_gamma(lifts, EPSILON, among) for among in (GAMMAS, INSIDE))
    pairs: list[Pair] = [
        (_arm(EPSILON, gamma), _arm(EPSILON, other)) for gamma in best for other in GAMMAS if other != gamma
    ]
    return rows + records(results, labels, (), pairs, (BEST_BY,))


def judge(kept: ResultFiles) -> list[Finding]:
    found = {market: lifts for (market,), lifts in Lifts.by(kept, "market").items()}
    return [*(_interior(lifts, market) for market, lifts in found.items()), _smaller(found)]


def _interior(lifts: Lifts, market: str) -> Finding:
    best, inner = best_gamma(lifts, EPSILON), best_gamma(lifts, EPSILON, INSIDE)
    near = [gamma for gamma in GAMMAS if abs(gamma - PUBLISHED) <= WITHIN + 1e-9]
    ends = [lifts.lift(_arm(EPSILON, inner), BEST_BY, over=_arm(EPSILON, end)) for end in (0.0, 1.0)]
    return Finding(
        R10,
        f"the gamma with most {BEST_BY} is within {WITHIN:g} of {PUBLISHED:g} and beats all that are not, both "
        "ends among them; fails where it is not and beats all that are; 95% over auctions",
        f"best at {best:g}; {inner:g} over 0: {words(ends[0])}%, over 1: {words(ends[1])}%",
        _best_is_among(lifts, near),
        where=market,
    )


def _best_is_among(lifts: Lifts, few: Sequence[float]) -> bool | None:
    """Whether the best gamma is one of a few: it is and beats all others, or is not and beats all of these."""
    best = best_gamma(lifts, EPSILON)
    rivals = [gamma for gamma in GAMMAS if (gamma in few) != (best in few)]
    beaten = every(_beats(lifts, best, rival) for rival in rivals)
    return best in few if beaten else None


def _beats(lifts: Lifts, best: float, other: float) -> bool | None:
    """The best gamma against another, by their paired row."""
    return lifts.above(_arm(EPSILON, best), _arm(EPSILON, other), BEST_BY)


def _smaller(found: dict[str, Lifts]) -> Finding:
    rule = (
        f"at epsilon {EPSILON} the best gamma for {BEST_BY} is smaller than on display-like data, and each "
        "beats the other on its own data, 95% over auctions; fails where it is larger and each does; where "
        "both are one gamma, the grid cannot tell"
    )
    if {"search-like", "display-like"} - found.keys():
        return Finding(R11, rule, "one market only", None)
    on_search, on_display = found["search-like"], found["display-like"]
    search, display = (best_gamma(each, EPSILON) for each in (on_search, on_display))
    if search == display:
        return Finding(R11, rule, f"{search:g} for both", None, why="one gamma of the grid is best for both")
    apart = [
        lifts.lift(_arm(EPSILON, own), BEST_BY, over=_arm(EPSILON, other))
        for lifts, own, other in ((on_search, search, display), (on_display, display, search))
    ]
    decided = every(map(above_zero, apart))
    return Finding(
        R11,
        rule,
        f"{search:g} against {display:g}: each over the other {words(apart[0])}% and {words(apart[1])}%",
        search < display if decided else None,
    )


def _arm(epsilon: float, gamma: float) -> str:
    return f"RR at {epsilon:g}, gamma {gamma:g}"


STUDY = Study(
    NAME,
    "CTR, surplus and revenue over the cutoff gamma",
    PAPER,
    "figures 4, 8",
    (R10, R11),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 10.0},
    SEEDS,
    run,
    judge,
    inputs=OF_REQUESTS,
)
