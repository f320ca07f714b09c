"""Figure 13: CTR by mechanism where auctions have more candidates and devices know less.

All panels have one clipping bound, as in the paper. The verdict hangs on that: with a bound that follows each
group's own median score (wider where there are more candidates), R15 failed on the same 20,000 auctions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tacit.studies.choice.contestants import CLIPPED, RR, SCALED, WIDE, contest
from tacit.studies.choice.lifts import LIFT_LABEL, cells, greedy_line, lift, line, records
from tacit.studies.choice.lifts import METRICS as NAMES
from tacit.studies.choice.parts import mixed, of_sizes
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, data_words, markets
from tacit.studies.plotting import Panel
from tacit.studies.runs import words
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every
from tacit.train.evaluation.estimates import Measured

NAME = "choice-mixing"
EPSILONS = (0.5, 1, 2, 3, 5, 8)
ALPHAS = (1.0, 0.5, 0.25)
SIZES = {"3 or fewer": (1, 3), "4 to 9": (4, 9), "10 or more": (10, 10**6)}
LOW = 1
DRAWN = (RR, SCALED, CLIPPED)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    market = markets(asked)[0]
    panels, table, rows = [], [], []
    ahead: dict[tuple[float, str], Measured] = {}
    for at, alpha in enumerate(ALPHAS):
        for size, limits in SIZES.items():
            asked.track(f"{NAME}: alpha {alpha:g}, {size}", at * len(SIZES), len(ALPHAS) * len(SIZES))
            results = contest(of_sizes(mixed(market, alpha), *limits), DRAWN, EPSILONS)
            lines = [line(results, each, EPSILONS, "clicks") for each in DRAWN]
            ends = greedy_line(results, EPSILONS, "clicks")
            panels.append(Panel(f"alpha {alpha:g}, {size}", [*lines, ends]))
            arms = [(each.at(e), {"mechanism": each.name, "epsilon": e}) for each in DRAWN for e in EPSILONS]
            table += records(results, {"alpha": alpha, "candidates": size}, arms)
            rows += [(f"{alpha:g}", size, each.at(LOW), *cells(results, each.at(LOW))) for each in DRAWN]
            ahead[alpha, size] = lift(results, CLIPPED.at(LOW), "clicks", over=RR.at(LOW))
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words([market]),
        parameters={"alphas": list(ALPHAS), "epsilons": list(EPSILONS), "clipping_bound": WIDE},
        table=table,
        columns=("alpha", "candidates", "choice", *(f"{name} +%" for name in NAMES.values())),
        rows=rows,
        findings=[_judged(ahead)],
        panels=panels,
        axes=Axes("epsilon", f"CTR {LIFT_LABEL}", EPSILONS),
    )


def _judged(ahead: dict[tuple[float, str], Measured]) -> Finding:
    few, *_, many = SIZES
    first, last = ahead[ALPHAS[0], few], ahead[ALPHAS[-1], many]
    by_size = [[ahead[alpha, size] for alpha in ALPHAS] for size in (few, many)]
    by_alpha = [[ahead[alpha, size] for size in SIZES] for alpha in (ALPHAS[0], ALPHAS[-1])]
    corner = True if last.low > first.high else (False if last.high < first.low else None)
    return Finding(
        "R15",
        "more candidates and closer scores make clipped SNM more dominant",
        f"CTR of clipped SNM over RR's at epsilon {LOW}: higher with many candidates and the smallest alpha "
        "than with few and alpha 1 (95% intervals apart), and on average higher along each; one bound for all",
        "; ".join(f"alpha {alpha:g}, {size}: {words(each)}%" for (alpha, size), each in ahead.items()),
        every([corner, _rises(*by_size), _rises(*by_alpha)]),
    )


def _rises(before: Sequence[Measured], after: Sequence[Measured]) -> bool | None:
    """Whether the average rises. That it does not is said only where no value within the intervals does."""
    if sum(each.value for each in after) > sum(each.value for each in before):
        return True
    return False if sum(each.high for each in after) < sum(each.low for each in before) else None


STUDY = Study(
    NAME,
    "CTR over epsilon by number of candidates and by what only the device knows",
    PAPER,
    "figure 13",
    ("R15",),
    {Scale.TOY: 0.1, Scale.SMALL: 0.3, Scale.FULL: 5.0},
    SEEDS,
    run,
)
