"""Figure 13: CTR by mechanism where auctions have more candidates and devices know less.

All panels have one clipping bound, as in the paper. The verdict hangs on that: with a bound that follows
each group's own median score (wider where there are more candidates), R15 failed on the same 20,000
auctions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.choice.contestants import CLIPPED, RR, SCALED, WIDE, run_contest
from tacit_lab.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    Lifts,
    arms_over,
    greedy_line,
    lift_line,
    records,
    write_outcome,
)
from tacit_lab.studies.choice.markets import (
    OF_REQUESTS,
    PAPER,
    SEEDS,
    auctions_of_size,
    data_words,
    mix_rates,
    study_markets,
)
from tacit_lab.studies.plotting import Panel
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

R15 = Claim("R15", "figure 13", "more candidates and closer scores make clipped SNM more dominant")

NAME = "choice-mixing"
EPSILONS = (0.5, 1, 2, 3, 5, 8)
ALPHAS = (1.0, 0.5, 0.25)
SIZES = {"3 or fewer": (1, 3), "4 to 9": (4, 9), "10 or more": (10, 10**6)}
LOW = 1
DRAWN = (RR, SCALED, CLIPPED)


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    market = study_markets(asked)[0]
    panels, table, rows = [], [], []
    for at, alpha in enumerate(ALPHAS):
        for size, limits in SIZES.items():
            asked.progress(f"{NAME}: alpha {alpha:g}, {size}", at * len(SIZES), len(ALPHAS) * len(SIZES))
            results = run_contest(auctions_of_size(mix_rates(market, alpha), *limits), DRAWN, EPSILONS)
            labels, arms = {"alpha": alpha, "candidates": size}, arms_over(DRAWN, EPSILONS)
            measured = records(results, labels, arms, [(CLIPPED.at(LOW), RR.at(LOW))])
            table += measured
            lifts = Lifts.of(measured)
            lines = [lift_line(lifts, each, EPSILONS, "clicks") for each in DRAWN]
            ends = greedy_line(lifts, EPSILONS, "clicks")
            panels.append(Panel(f"alpha {alpha:g}, {size}", [*lines, ends]))
            rows += [(f"{alpha:g}", size, each.at(LOW), *lifts.cells(each.at(LOW))) for each in DRAWN]
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=data_words([market]),
        parameters={"alphas": list(ALPHAS), "epsilons": list(EPSILONS), "clipping_bound": WIDE},
        table=table,
        columns=("alpha", "candidates", "choice", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        panels=panels,
        axes=Axes("epsilon", f"CTR {LIFT_LABEL}", EPSILONS),
    )


def judge(kept: ResultFiles) -> list[Finding]:
    ahead = {
        key: lifts.lift(CLIPPED.at(LOW), "clicks", over=RR.at(LOW))
        for key, lifts in Lifts.by(kept, "alpha", "candidates").items()
    }
    few, *_, many = SIZES
    own, *_, little = ALPHAS
    first, last = ahead[own, few], ahead[little, many]
    by_size = [[ahead[alpha, size] for alpha in ALPHAS] for size in (few, many)]
    by_alpha = [[ahead[alpha, size] for size in SIZES] for alpha in (own, little)]
    corner = True if last.low > first.high else (False if last.high < first.low else None)
    return [
        Finding(
            R15,
            f"CTR of clipped SNM over RR's at epsilon {LOW}: higher with many candidates and the smallest "
            "alpha than with few and alpha 1, and on average higher along each, 95% intervals apart; one bound "
            "for all, set after a first trial in which each group's own bound failed",
            f"{few}, alpha {own:g}: {words(first)}%; {many}, alpha {little:g}: {words(last)}%; on average "
            f"{_average(by_size[0])} to {_average(by_size[1])}% and {_average(by_alpha[0])} to "
            f"{_average(by_alpha[1])}%",
            every([corner, _rises(*by_size), _rises(*by_alpha)]),
        )
    ]


def _average(found: Sequence[MeasuredValue]) -> str:
    return f"{sum(each.value for each in found) / len(found):.1f}"


def _rises(before: Sequence[MeasuredValue], after: Sequence[MeasuredValue]) -> bool | None:
    """Whether the average rises: for all values within the intervals, or for none of them."""
    if sum(each.low for each in after) > sum(each.high for each in before):
        return True
    return False if sum(each.high for each in after) < sum(each.low for each in before) else None


STUDY = Study(
    NAME,
    "CTR over epsilon by number of candidates and by what only the device knows",
    PAPER,
    "figure 13",
    (R15,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 5.0},
    SEEDS,
    run,
    judge,
    inputs=OF_REQUESTS,
)
