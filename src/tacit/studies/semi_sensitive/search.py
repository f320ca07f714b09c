"""Figure 2, factorization machine: the search log, where devices and audiences matter by partner."""

from __future__ import annotations

from tacit.studies.results import Kept
from tacit.studies.runs import Runs
from tacit.studies.semi_sensitive.frontier import Frontier, World
from tacit.studies.semi_sensitive.frontier_verdicts import S1, S3, S6, S7, S8, Judge
from tacit.studies.semi_sensitive.recipe import (
    EPSILONS,
    PAPER,
    SEARCH,
    SEARCH_LOG,
    SEEDS,
    data_words,
    machine,
    search_log,
)
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "semi-sensitive-search"
WORLD = "sponsored search"


def run(asked: Asked) -> Outcome:
    frontier = Frontier(
        NAME,
        data_words(asked, SEARCH_LOG),
        machine(asked.scale),
        SEARCH,
        [World(WORLD, lambda seed: search_log(asked, seed), EPSILONS[asked.scale])],
    )
    return frontier.run(asked)


def judge(kept: Kept) -> list[Finding]:
    search = Judge(Runs(kept.rows), WORLD, "search")
    return [
        search.hybrid_wins(S1),
        search.cheaper_privacy(),
        search.no_gain_at_one(),
        search.plateau(),
        search.freezing_costs(),
    ]


STUDY = Study(
    NAME,
    "AUC loss and log loss over epsilon, search log, factorization machine",
    PAPER,
    "figure 2",
    (S1, S3, S6, S7, S8),
    {Scale.TOY: 0.2, Scale.SMALL: 2.5, Scale.FULL: 450.0},
    SEEDS,
    run,
    judge,
)
