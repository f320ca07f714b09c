"""Figures 4 and 8: how far below the public best a candidate may score and still be sent to the device."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED, Greedy, NonPersonalised, TopOf
from tacit.deliver.auction.market import Arm, Results, measure
from tacit.deliver.auction.rules import Rules
from tacit.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    SHOWN,
    TITLES,
    above,
    cells,
    greedy_line,
    lift,
    records,
    series,
)
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, StudyMarket, data_words, markets
from tacit.studies.plotting import Mechanism, Panel
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

NAME = "choice-gamma"
GAMMAS = tuple(round(float(gamma), 2) for gamma in np.linspace(0, 1, 21))
EPSILONS = (3, 5, 8)
EPSILON = 5
PUBLISHED, WITHIN = 0.8, 0.15
BEST_BY = "welfare"  # surplus and revenue together


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    panels, table, rows, best, measured = [], [], [], {}, {}
    findings: list[Finding] = []
    for at, market in enumerate(found):
        asked.track(f"{NAME}: {market.name}", at, len(found))
        results = measured[market.name] = _measured(market)
        for metric in SHOWN:
            lines = [
                series(
                    f"RR at {epsilon}",
                    GAMMAS,
                    [lift(results, _arm(epsilon, gamma), metric) for gamma in GAMMAS],
                    Mechanism.RR,
                )
                for epsilon in EPSILONS
            ]
            ends = greedy_line(results, GAMMAS, metric)
            panels.append(Panel(f"{TITLES[metric]}, {market.name}", [*lines, ends]))
        arms = [(_arm(e, g), {"epsilon": e, "gamma": g}) for e in EPSILONS for g in GAMMAS]
        table += records(results, {"market": market.name}, [(GREEDY, {}), *arms])
        best[market.name] = {epsilon: best_gamma(results, epsilon) for epsilon in EPSILONS}
        rows += [
            (market.name, f"{e}", f"{best[market.name][e]:g}", *cells(results, _arm(e, best[market.name][e])))
            for e in EPSILONS
        ]
        findings.append(_interior(results, market.name))
    findings.append(_smaller(measured))
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"gammas": list(GAMMAS), "epsilons": list(EPSILONS), "best_by": BEST_BY},
        table=table,
        columns=("market", "epsilon", "best gamma", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        findings=findings,
        panels=panels,
        axes=Axes("gamma: 0 sends the public best alone, 1 sends all", LIFT_LABEL),
    )


def best_gamma(results: Results, epsilon: float, among: Sequence[float] = GAMMAS) -> float:
    return max(among, key=lambda gamma: results.mean(_arm(epsilon, gamma), BEST_BY))


def _measured(market: StudyMarket) -> Results:
    arms = {NON_PERSONALISED: Arm(NonPersonalised()), GREEDY: Arm(Greedy())}
    for epsilon in EPSILONS:
        for gamma in GAMMAS:
            arms[_arm(epsilon, gamma)] = Arm(TopOf(epsilon), Rules(cutoff=gamma))
    return measure(market.blocks, arms)


def _interior(results: Results, market: str) -> Finding:
    best = best_gamma(results, EPSILON)
    inside = [gamma for gamma in GAMMAS if 0 < gamma < 1]
    near = [gamma for gamma in GAMMAS if abs(gamma - PUBLISHED) <= WITHIN + 1e-9]
    inner = best_gamma(results, EPSILON, inside)
    ends = [above(results, _arm(EPSILON, inner), _arm(EPSILON, end), BEST_BY) for end in (0.0, 1.0)]
    return Finding(
        "R10",
        f"the cutoff gamma has an interior optimum near {PUBLISHED:g} (RR, epsilon {EPSILON}; {market})",
        f"the gamma with most {BEST_BY} beats both ends and is within {WITHIN:g} of {PUBLISHED:g}; fails where "
        "an end beats it, or it beats all of those; 95% over auctions",
        f"best at {best:g}",
        every([_best_is_among(results, near), *ends]),
    )


def _best_is_among(results: Results, few: Sequence[float]) -> bool | None:
    """Whether the best gamma is one of a few; that it is not, only where it beats all of them for sure."""
    best, best_of_few = best_gamma(results, EPSILON), best_gamma(results, EPSILON, few)
    if best in few:
        return True
    return False if above(results, _arm(EPSILON, best), _arm(EPSILON, best_of_few), BEST_BY) else None


def _smaller(measured: dict[str, Results]) -> Finding:
    words, rule = (
        "on search-like data smaller candidate sets do better",
        f"at epsilon {EPSILON} the best gamma for {BEST_BY} is smaller than on display-like data; fails where "
        "it beats all smaller ones, 95% over auctions",
    )
    if {"search-like", "display-like"} - measured.keys():
        return Finding("R11", words, rule, "one market only", None)
    search, display = (best_gamma(measured[name], EPSILON) for name in ("search-like", "display-like"))
    smaller = [gamma for gamma in GAMMAS if gamma < display]
    verdict = _best_is_among(measured["search-like"], smaller) if smaller else None
    return Finding("R11", words, rule, f"{search:g} against {display:g}", verdict)


def _arm(epsilon: float, gamma: float) -> str:
    return f"RR at {epsilon:g}, gamma {gamma:g}"


STUDY = Study(
    NAME,
    "CTR, surplus and revenue over the cutoff gamma",
    PAPER,
    "figures 4, 8",
    ("R10", "R11"),
    {Scale.TOY: 0.1, Scale.SMALL: 0.5, Scale.FULL: 10.0},
    SEEDS,
    run,
)
