"""Claims about priors, and the rules that decide them from the table of the study of priors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.arrays import Floats
from tacit.train.evaluation.intervals import LEVEL, MeasuredValue
from tacit_lab.studies.choice.prior_trials import LEARNT_AT, SERVED
from tacit_lab.studies.choice.reports import COUNTED, DEFAULT, PUBLISHED, REPORTS, RESPONSE, TRUE
from tacit_lab.studies.choice.truths import DISPLAY, SEARCH
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import mean, words
from tacit_lab.studies.study import Claim, Finding
from tacit_lab.studies.verdicts import at_most, below, between, every, interval_within

T29 = Claim(
    "T29",
    "plans with the true prior",
    "planned by what reports teach, a choice is within 1% of the public best's score of the true prior's plans "
    "on average over many truths, and within 9% under each",
)
T30 = Claim(
    "T30",
    "the public best",
    "planned by ratios that devices counted, a choice is nowhere below the public best",
)
T31 = Claim(
    "T31",
    "RR with its best gamma",
    "planned by what reports teach, a choice gains more on average than RR with the cutoff that is best in "
    "hindsight",
)
T32 = Claim(
    "T32",
    "plans with the true prior; real check-ins",
    "served in order, reports teach a prior that keeps nearly what the true one keeps",
)

EPSILONS = (1, 2, 5)
MEAN_REGRET, WORST_REGRET = 1.0, 9.0  # % of the public best's score
NEAR = 0.05  # of the greedy gain
BARS = {"New York": {1: 0.09, 2: 0.29, 5: 0.92}}  # shares of the greedy gain, from earlier trials
CITY = "city"
OVERALL = "overall"
"""Parts of the table: a city, and one seed over all cells of regret."""


def judge(kept: ResultFiles) -> list[Finding]:
    rows = kept.rows
    if rows[0]["part"] == CITY:
        return [_judge_city(rows, city) for city in dict.fromkeys(str(row["setting"]) for row in rows)]
    return [*_judge_regret(rows), *(_judge_served(rows, market) for market in (DISPLAY, SEARCH))]


def _judge_regret(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    def overall(arm: str, figure: str) -> Floats:
        return seed_figures(rows, figure, part=OVERALL, arm=arm)

    regret, worst = overall(REPORTS, "regret_percent"), overall(REPORTS, "worst_regret")
    counted = overall(COUNTED, "worst_gain")
    ours, theirs = overall(REPORTS, "gain_percent"), overall(RESPONSE, "gain_percent")
    cells = "over truths, markets and epsilons"
    return [
        Finding(
            T29,
            f"after {LEARNT_AT[-1]:,} reports the mean regret {cells} is at most {MEAN_REGRET:g}% of the "
            f"public best's score, and the largest at most {WORST_REGRET:g}%, 95% over seeds",
            f"mean {words(mean(regret))}%, largest {words(mean(worst))}%",
            every([at_most(regret, MEAN_REGRET), at_most(worst, WORST_REGRET)]),
        ),
        Finding(
            T30,
            f"the least gain {cells} is at least 0, 95% over seeds",
            f"least {words(mean(counted))}% of the public best's score; by the default prior "
            f"{words(mean(overall(DEFAULT, 'worst_gain')))}%, from reports "
            f"{words(mean(overall(REPORTS, 'worst_gain')))}%",
            between(counted, 0.0, np.inf),
        ),
        Finding(
            T31,
            f"the mean gain {cells} is above that of RR, whose gamma is the best of its grid for each, 95% "
            "over seeds, paired",
            f"{words(mean(ours))}% of the public best's score against {words(mean(theirs))}%; with the "
            f"published gamma {words(mean(overall(PUBLISHED, 'gain_percent')))}%",
            below(theirs, ours),
        ),
    ]


def _judge_served(rows: Sequence[Mapping[str, Any]], market: str) -> Finding:
    last = max(int(row["requests"]) for row in rows if row["requests"])
    apart = {
        epsilon: shares_of(rows, market, epsilon, TRUE, None) - shares_of(rows, market, epsilon, REPORTS, last)
        for epsilon in EPSILONS
    }
    return Finding(
        T32,
        f"after the last requests served it keeps at most {NEAR:g} of the greedy gain less than plans with the "
        "true prior, at every epsilon, 95% over seeds",
        "less by " + ", ".join(f"{words(mean(each), 3)} at {epsilon}" for epsilon, each in apart.items()),
        every(at_most(each, NEAR) for each in apart.values()),
        where=market,
    )


def _judge_city(rows: Sequence[Mapping[str, Any]], city: str) -> Finding:
    """Where no bar was set the finding only tells."""
    found = {
        int(row["epsilon"]): MeasuredValue(row["share"], row["low"], row["high"], LEVEL)
        for row in rows
        if row["setting"] == city and row["arm"] == REPORTS
    }
    seen = ", ".join(f"{words(share, 3)} at {epsilon}" for epsilon, share in found.items())
    if city not in BARS:
        return Finding(T32, "no bar was set", seen, None, where=city, why="no bar was set")
    bars = BARS[city]
    asked = " / ".join(f"{bar:g}" for bar in bars.values())
    return Finding(
        T32,
        f"reports alone, from the first request on, keep at least {asked} of the greedy gain at epsilon "
        f"{' / '.join(map(str, bars))}, 95% over people",
        seen,
        every(interval_within(found[epsilon], least=bar) for epsilon, bar in bars.items()),
        where=city,
    )


def seed_figures(table: Iterable[Mapping[str, Any]], figure: str, **labels: Any) -> Floats:
    """One figure by rising seed, of the rows with these labels."""
    found = {
        row["seed"]: row[figure]
        for row in table
        if all(row.get(name) == value for name, value in labels.items()) and row.get(figure) is not None
    }
    return np.array([found[seed] for seed in sorted(found)], np.float64)


def shares_of(
    table: Iterable[Mapping[str, Any]], market: str, epsilon: float, arm: str, requests: int | None
) -> Floats:
    labels = {"setting": market, "epsilon": epsilon, "arm": arm, "requests": requests}
    return seed_figures(table, "share", part=SERVED, **labels)
